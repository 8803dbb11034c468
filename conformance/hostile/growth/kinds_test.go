package growth

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// kinds are ways to make a node's memory grow. Each call of grow gets a new connection.
var kinds = []struct {
	name string
	grow func(c *respclient.Conn, i int)
}{
	{"strings", func(c *respclient.Conn, i int) { c.Do("SET", fmt.Sprint("g", i), mega) }},
	{"short keys", func(c *respclient.Conn, i int) {
		pipeline(c, 500, func(j int) []string { return []string{"SET", fmt.Sprint("g", i, ":", j), "x"} })
	}},
	{"append", func(c *respclient.Conn, i int) { c.Do("APPEND", fmt.Sprint("g", i/8), mega) }},
	{"gaps", func(c *respclient.Conn, i int) { c.Do("SETRANGE", fmt.Sprint("g", i), "8000000", "x") }},
	{"copies", func(c *respclient.Conn, i int) { c.Do("SET", "g", mega); c.Do("COPY", "g", fmt.Sprint("g", i)) }},
	{"long names", func(c *respclient.Conn, i int) { c.Do("SET", "g", "x"); c.Do("RENAME", "g", fmt.Sprint(i, mega)) }},
	{"one list", func(c *respclient.Conn, i int) { c.Do("RPUSH", "g", mega, mega) }},
	{"one hash", func(c *respclient.Conn, i int) { c.Do("HSET", "g", fmt.Sprint(i), mega) }},
	{"sorted set stored", func(c *respclient.Conn, i int) {
		c.Do("ZADD", "g", "1", fmt.Sprint(i, mega))
		c.Do("ZUNIONSTORE", fmt.Sprint("g", i), "1", "g")
	}},
	{"a script that has written", func(c *respclient.Conn, i int) {
		c.Do("EVAL", "redis.call('del','x') for i=1,20 do redis.call('set',KEYS[1]..i,string.rep('x',1e6)) end", "1", fmt.Sprint("g", i))
	}},
	{"allow-oom", func(c *respclient.Conn, i int) {
		c.Do("EVAL", "#!lua flags=allow-oom\nredis.call('set',KEYS[1],string.rep('x',2e6))", "1", fmt.Sprint("g", i))
	}},
	{"scripts", func(c *respclient.Conn, i int) { c.Do("SCRIPT", "LOAD", fmt.Sprint("return ", i, " --", mega)) }},
	{"scripts of EVAL", func(c *respclient.Conn, i int) { c.Do("EVAL", fmt.Sprint("return ", i, " --", mega), "0") }},
	{"messages", func(c *respclient.Conn, i int) {
		c.Do("EVAL", "local s=string.rep('x',1e6) for i=1,1000 do redis.call('publish','c',s) end", "0")
	}},
	{"random members", func(c *respclient.Conn, i int) {
		c.Do("ZADD", "g", "1", "a")
		c.Do("ZRANDMEMBER", "g", "-1000000", "WITHSCORES")
	}},
	{"the same key", func(c *respclient.Conn, i int) {
		c.Do("SET", "g", mega)
		c.Do(append([]string{"MGET"}, slices.Repeat([]string{"g"}, 1000)...)...)
	}},
	{"a pipeline of reads", func(c *respclient.Conn, i int) {
		c.Do("SET", "g", mega)
		pipeline(c, 200, func(int) []string { return []string{"GET", "g"} })
	}},
	{"a transaction", func(c *respclient.Conn, i int) {
		c.Do("MULTI")
		pipeline(c, 20, func(j int) []string { return []string{"SET", fmt.Sprint("g", j), mega} })
		c.Do("EXEC")
	}},
	{"functions", func(c *respclient.Conn, i int) {
		c.Do("FUNCTION", "LOAD", fmt.Sprint("#!lua name=g", i, "\nredis.register_function('g", i, "',function() return 1 end) --", mega))
	}},
	{"watched keys", func(c *respclient.Conn, i int) {
		pipeline(c, 50, func(j int) []string {
			keys := []string{"WATCH"}
			for k := range 200 {
				keys = append(keys, fmt.Sprint("g", j, ":", k, mega[:500]))
			}
			return keys
		})
	}},
	{"tracked keys", func(c *respclient.Conn, i int) {
		id, _ := c.Do("CLIENT", "ID")
		c.Do("CLIENT", "TRACKING", "ON", "REDIRECT", fmt.Sprint(id))
		pipeline(c, 50, func(j int) []string {
			keys := []string{"MGET"}
			for k := range 200 {
				keys = append(keys, fmt.Sprint("g", i, ":", j, ":", k, mega[:500]))
			}
			return keys
		})
	}},
	{"patterns", func(c *respclient.Conn, i int) {
		patterns := []string{"PSUBSCRIBE"}
		for j := range 2000 {
			patterns = append(patterns, fmt.Sprint("g*", j, mega[:2000]))
		}
		c.Do(patterns...) // Do reads only the first of its replies
	}},
	{"messages that nobody reads", func(c *respclient.Conn, i int) {
		deaf, err := respclient.Dial(attacked, 5*time.Second)
		if err != nil {
			return
		}
		defer deaf.Close()
		deaf.Do("SUBSCRIBE", "g")
		pipeline(c, 100, func(int) []string { return []string{"PUBLISH", "g", mega} })
	}},
	{"names that are refused", func(c *respclient.Conn, i int) {
		pipeline(c, 20, func(j int) []string { return []string{"AUTH", fmt.Sprint("g", i, ":", j, mega), "wrong"} })
	}},
	{"the slow log", func(c *respclient.Conn, i int) {
		c.Do("CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "1000000")
		pipeline(c, 500, func(j int) []string { return slices.Repeat([]string{"ECHO", mega[:1000]}, 30) })
		c.Do("CONFIG", "SET", "slowlog-log-slower-than", "10000", "slowlog-max-len", "128")
	}},
	{"one set many times", func(c *respclient.Conn, i int) {
		c.Do("SADD", "g", fmt.Sprint("m", i))
		for _, command := range []string{"SUNION", "SINTER", "SDIFF"} {
			c.Do(append([]string{command}, slices.Repeat([]string{"g"}, 5000)...)...)
		}
		c.Do("SET", "b", mega)
		c.Do(append([]string{"BITOP", "XOR", "d"}, slices.Repeat([]string{"b"}, 50)...)...)
	}},
	{"a script that takes all memory", func(c *respclient.Conn, i int) {
		c.Do("EVAL", "local t={} while true do t[#t+1]=string.rep('x',1e5)..#t end", "0")
	}},
	{"state of functions", func(c *respclient.Conn, i int) {
		c.Do("FUNCTION", "LOAD", "REPLACE", "#!lua name=s\nlocal t={} redis.register_function('s',function() t[#t+1]=string.rep('x',1e6)..#t return #t end)")
		pipeline(c, 50, func(int) []string { return []string{"FCALL", "s", "0"} })
	}},
	{"what is said of commands", func(c *respclient.Conn, i int) {
		for _, command := range [][]string{{"COMMAND", "INFO"}, {"COMMAND", "DOCS"}, {"COMMAND", "GETKEYS", "DEL"}, {"COMMAND", "GETKEYSANDFLAGS", "DEL"},
			{"PUBSUB", "NUMSUB"}, {"CONFIG", "GET"}, {"LATENCY", "HISTOGRAM"}} {
			c.Do(append(command, slices.Repeat([]string{"get"}, 200_000)...)...)
		}
	}},
	{"channels by one command", func(c *respclient.Conn, i int) {
		for _, command := range []string{"SUBSCRIBE", "SSUBSCRIBE"} {
			channels := []string{command}
			for j := range 400_000 {
				channels = append(channels, fmt.Sprint("g", j))
			}
			c.Do(channels...) // Do reads only the first of its replies
		}
	}},
	{"keys that are waited for", func(*respclient.Conn, int) {
		keys := []string{"BLPOP"}
		for j := range 5000 {
			keys = append(keys, fmt.Sprint("g", j))
		}
		keys = append(keys, "0.2")
		beside(40, func(c *respclient.Conn) { c.Do(keys...) })
	}},
	{"large values at once", func(*respclient.Conn, int) {
		value := strings.Repeat(mega, 7)
		beside(40, func(c *respclient.Conn) { c.Do("SET", "g", value) })
	}},
	{"replies that nobody reads", func(c *respclient.Conn, i int) {
		c.Do("SET", "g", strings.Repeat(mega, 7))
		beside(40, func(c *respclient.Conn) {
			for range 20 {
				if c.Send("GET", "g") != nil {
					return
				}
			}
			time.Sleep(100 * time.Millisecond)
		})
	}},
	{"replies that one client does not read", func(c *respclient.Conn, i int) {
		c.Do("SET", "g", strings.Repeat(mega, 7))
		for range 20 {
			if c.Send("GET", "g") != nil {
				return
			}
		}
		time.Sleep(100 * time.Millisecond)
	}},
	{"a command without an end", func(*respclient.Conn, int) {
		unfinished(1, "*1000\r\n"+strings.Repeat("$16384\r\n"+mega[:16384]+"\r\n", 999)+"$16384\r\n"+mega[:10000])
	}},
	{"commands without an end", func(*respclient.Conn, int) {
		unfinished(500, "*10\r\n"+strings.Repeat("$16384\r\n"+mega[:16384]+"\r\n", 9)+"$16384\r\n"+mega[:10000])
	}},
	{"names of clients", func(c *respclient.Conn, i int) {
		c.Do("CLIENT", "SETNAME", mega)
		c.Do("CLIENT", "SETINFO", "LIB-NAME", mega)
		c.Do("CLIENT", "NO-EVICT", "ON")
	}},
}

// answerBound is how long an answer may take.
const answerBound = 30 * time.Second

var (
	mega     = strings.Repeat("m", 1<<20)
	attacked string // address of the node whose memory is made to grow

	hung *time.Timer // ends the connection if an answer does not come
)

// pipeline sends n commands at once, and reads the replies that come.
func pipeline(c *respclient.Conn, n int, command func(int) []string) {
	var sent sync.WaitGroup
	sent.Go(func() {
		for i := range n {
			if c.Send(command(i)...) != nil {
				return
			}
		}
	})
	for range n {
		if _, err := c.Receive(); err != nil && !isReply(err) {
			break
		}
		hung.Reset(answerBound)
	}
	sent.Wait()
}

// beside calls the function do n times at once, each time with a connection of its own.
func beside(n int, do func(*respclient.Conn)) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			c, err := respclient.Dial(attacked, 5*time.Second)
			if err != nil {
				return
			}
			defer c.Close()
			late := time.AfterFunc(answerBound, func() { c.Close() })
			defer late.Stop()
			do(c)
		})
	}
	all.Wait()
}

// unfinished sends the beginning of a command by each of n connections, and closes them.
func unfinished(n int, beginning string) {
	var open []net.Conn
	for range n {
		c, err := net.DialTimeout("tcp", attacked, 5*time.Second)
		if err != nil {
			break
		}
		defer c.Close()
		open = append(open, c)
	}
	for _, c := range open {
		c.SetDeadline(time.Now().Add(5 * time.Second))
		io.WriteString(c, beginning) // the node may cut the connection
	}
	time.Sleep(50 * time.Millisecond)
}

// isReply reports whether an error is an error reply, and not the end of the connection.
func isReply(err error) bool {
	_, network := err.(net.Error)
	return !network && strings.Contains(err.Error(), " ") && err.Error() == strings.TrimSpace(err.Error()) && strings.ToUpper(err.Error()[:2]) == err.Error()[:2]
}

// attack plays one kind of growth in a process of low priority, which does not slow the nodes down.
func attack(t *testing.T, kind, addr string, each time.Duration) {
	cmd := exec.Command("nice", "-n", "19", os.Args[0], "-test.run=^TestAttacker$")
	cmd.Env = append(os.Environ(), "LOCKSTEP_ATTACKER="+strings.Join([]string{kind, addr, each.String()}, "\n"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", kind, err, out)
	}
}

// TestAttacker is no test: it is the process that the function attack starts.
func TestAttacker(t *testing.T) {
	told := strings.Split(os.Getenv("LOCKSTEP_ATTACKER"), "\n")
	if len(told) != 3 {
		t.Skip("only TestGrowth starts it")
	}
	attacked = told[1]
	each, err := time.ParseDuration(told[2])
	if err != nil {
		t.Fatal(err)
	}
	for from, j := time.Now(), 0; time.Since(from) < each; j++ {
		c, err := respclient.Dial(attacked, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		hung = time.AfterFunc(answerBound, func() { c.Close() })
		over := time.AfterFunc(time.Until(from.Add(each)), func() { c.Close() }) // ends even a call in progress
		grow(t, told[0])(c, j)
		over.Stop()
		if !hung.Stop() {
			t.Errorf("no answer for %v", answerBound)
		}
		c.Close()
	}
}

// grow returns the kind with a name.
func grow(t *testing.T, name string) func(*respclient.Conn, int) {
	for _, kind := range kinds {
		if kind.name == name {
			return kind.grow
		}
	}
	for _, kind := range besideData {
		if kind.name == name {
			return func(_ *respclient.Conn, i int) { kind.grow(i) }
		}
	}
	t.Fatalf("no kind %q", name)
	return nil
}

// TestGrowth plays each kind of growth, through the leader and a follower in turn. Meanwhile other clients take, renew and release
// locks.
func TestGrowth(t *testing.T) {
	each := growthTime(t, 300*time.Millisecond)
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			list := start(t, n)
			calm := locks(t, list, "calm", func() { time.Sleep(each) })
			for i, kind := range kinds {
				t.Run(kind.name, func(t *testing.T) {
					by := list[i%n]
					took := locks(t, list, kind.name, func() { attack(t, kind.name, by.Addr, each) })
					alive(t, list)
					t.Logf("median %v, 99 of 100 within %v (calm %v, %v)", took[0], took[1], calm[0], calm[1])
					if limit := max(3*calm[1], 3*time.Second); took[1] > limit {
						t.Errorf("99 of 100 locks of others within %v, want %v", took[1], limit)
					}
					c := by.Dial()
					must(t, c, "OK", "FLUSHALL")
					must(t, c, "OK", "SCRIPT", "FLUSH")
					must(t, c, "OK", "FUNCTION", "FLUSH")
					must(t, c, "OK", "SET", "after", kind.name)
				})
			}
		})
	}
}

// locks returns the median and the 99th percentile of the time for a lock while the function "during" runs.
func locks(t *testing.T, list []*nodes.Node, what string, during func()) [2]time.Duration {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		during()
	}()
	c, err := respclient.Dial(list[len(list)-1].Addr, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var took []time.Duration
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		from := time.Now()
		got, err := c.Do("SET", "lock", what, "NX", "PX", "600000")
		full := err != nil && strings.HasPrefix(err.Error(), "OOM ")
		if !full && (err != nil || got != "OK") {
			t.Fatalf("%s: a lock: %v, %v", what, got, err)
		}
		if !full {
			must(t, c, int64(1), "PEXPIRE", "lock", "700000")
			must(t, c, int64(1), "EVAL", "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end", "1", "lock", what)
		}
		took = append(took, time.Since(from))
	}
	slices.Sort(took)
	return [2]time.Duration{took[len(took)/2], took[len(took)*99/100]}
}

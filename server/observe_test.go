package server

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// TestWait: WAIT and WAITAOF return the number of other members that the backend reports.
func TestWait(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, func(c *Config) { c.Loops, c.Durable = loops, true })
		ts.fake.others.Store(1)
		c := ts.dial(t)
		c.do("WAIT 0 0", ":1\r\n")
		c.do("WAIT 1 0", ":1\r\n")
		c.do("WAIT 2 1", ":1\r\n") // there is only one other member, so WAIT waits until its timeout
		c.do("WAITAOF 0 0 0", "*2\r\n:1\r\n:1\r\n")
		c.do("WAITAOF 1 1 0", "*2\r\n:1\r\n:1\r\n")
		c.do("WAITAOF 1 2 1", "*2\r\n:1\r\n:1\r\n")
		c.do("WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1\r\n")
		c.do("WAITAOF x 0 0", "-ERR value is not an integer or out of range\r\n")
		c.do("WAITAOF 0 -1 0", "-ERR value is out of range, must be positive\r\n")
		c.do("WAITAOF 0 0 -1", "-ERR timeout is negative\r\n")
		c.do("WAITAOF 0 0 x", "-ERR timeout is not an integer or out of range\r\n")
		c.do("WAITAOF 0 0", "-ERR wrong number of arguments for 'waitaof' command\r\n")
	})
	c := newTestServer(t, nil).dial(t)
	c.do("WAITAOF 0 0 0", "*2\r\n:0\r\n:0\r\n")
	c.do("WAITAOF 1 0 0", "-"+string(errNoLocalDisk)+"\r\n")
}

// TestWaitEnds: a client whose WAIT has no timeout does not keep the server from stopping.
func TestWaitEnds(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.dial(t).send("WAIT 9 0\r\n")
}

// TestWaitOfOneWhoLeaves: WAIT and WAITAOF end when their client leaves, even if the client has sent other commands before or behind
// them.
func TestWaitOfOneWhoLeaves(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, func(c *Config) { c.Loops, c.Durable = loops, true })
		for _, waits := range []string{"WAIT 9 0", "WAITAOF 1 9 0", "PING\r\nWAIT 9 0", "WAIT 9 0\r\nPING"} {
			c := ts.dial(t)
			c.send(waits + "\r\n")
			until(t, "the client to be there", func() bool { return ts.clients() == 1 })
			time.Sleep(20 * time.Millisecond) // by now the client usually waits; if not, it may still leave before its wait begins
			c.conn.Close()
			until(t, "the client to be gone: "+waits, func() bool { return ts.clients() == 0 })
		}
	})
}

// TestFailoverCommand: FAILOVER hands leadership over, also to a given address. FORCE, unknown addresses, REPLICAOF, SYNC and MIGRATE are
// refused.
func TestFailoverCommand(t *testing.T) {
	c := newTestServer(t, nil).dial(t)
	c.do("FAILOVER", "+OK\r\n")
	c.do("FAILOVER TO 127.0.0.1 6380 TIMEOUT 100", "+OK\r\n")
	c.do("FAILOVER TO 127.0.0.1 6380 FORCE", "-"+string(errFailoverForce)+"\r\n")
	c.do("FAILOVER TO 192.0.2.1 1", "-"+string(errFailoverTarget)+"\r\n")
	c.do(`FAILOVER TO "" 6380`, "-"+string(errFailoverTarget)+"\r\n")
	c.do("REPLICAOF 192.0.2.1 1", "-"+string(errNoReplicaOf)+"\r\n")
	c.do("SYNC", "-"+string(errNoSync)+"\r\n")
	c.do("MIGRATE h 1 k 0 10", "-"+string(errNoMigrate)+"\r\n")
	ts := newTestServer(t, nil)
	ts.fake.elect("n2", "127.0.0.1:6380")
	ts.dial(t).do("REPLICAOF NO ONE", "-"+string(errNoPromotion)+"\r\n")
}

// TestLatencyMonitor: the monitor keeps one event per second, with the longest time. LATENCY HISTOGRAM counts all commands.
func TestLatencyMonitor(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	c.do("PING", "+PONG\r\n") // from here on the server knows the connection
	cmd := ts.table.Lookup([]byte("set"))
	s := ts.each()[0]
	slow := func(took time.Duration) { s.ran(cmd, [][]byte{[]byte("set"), []byte("k")}, took) }
	slow(200 * time.Millisecond)
	c.do("LATENCY LATEST", "*0\r\n")
	c.do("CONFIG SET latency-monitor-threshold 100", "+OK\r\n")
	slow(99 * time.Millisecond)
	c.do("LATENCY LATEST", "*0\r\n")
	slow(150 * time.Millisecond)
	slow(300 * time.Millisecond)
	ts.fake.advance(time.Second)
	slow(120 * time.Millisecond)
	c.do("LATENCY LATEST", "*1\r\n*4\r\n$7\r\ncommand\r\n:1795262401\r\n:120\r\n:300\r\n")
	c.do("LATENCY HISTORY command", "*2\r\n*2\r\n:1795262400\r\n:300\r\n*2\r\n:1795262401\r\n:120\r\n")
	if g := c.ask("LATENCY", "GRAPH", "command").Text; !strings.HasPrefix(g, "command - high 300 ms, low 120 ms (all time high 300 ms)\n---") {
		t.Errorf("graph:\n%s", g)
	}
	if d := c.ask("LATENCY", "DOCTOR").Text; !strings.Contains(d, "at worst 300 ms") {
		t.Errorf("doctor: %s", d)
	}
	c.do("LATENCY RESET nosuch", ":0\r\n")
	c.do("LATENCY RESET", ":1\r\n")
	c.do("LATENCY HISTOGRAM set", "*2\r\n$3\r\nset\r\n*4\r\n$5\r\ncalls\r\n:5\r\n$14\r\nhistogram_usec\r\n*6\r\n:135266\r\n:2\r\n:270532\r\n:4\r\n:541065\r\n:5\r\n")
	if v := c.ask("SLOWLOG", "LEN"); v.Text != "5" && len(v.Lines()) != 1 {
		t.Errorf("slow log: %q", v.Lines())
	}
}

// TestMemoryUsage: the result of MEMORY USAGE is near the size of the value, even with a sample of its elements.
func TestMemoryUsage(t *testing.T) {
	c := newTestServer(t, nil).dial(t)
	size := func(args ...string) int64 {
		t.Helper()
		n := int64(0)
		for _, d := range strings.TrimPrefix(c.ask(append([]string{"MEMORY", "USAGE"}, args...)...).Lines()[0], ":") {
			n = n*10 + int64(d-'0')
		}
		return n
	}
	c.ask("SET", "small", "v")
	c.ask("SET", "large", strings.Repeat("v", 100_000))
	if s, l := size("small"), size("large"); s < 50 || s > 500 || l < 100_000 || l > 120_000 {
		t.Errorf("strings: %d and %d bytes", s, l)
	}
	for i := range 2000 {
		field := strings.Repeat("f", 10) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
		c.ask("HSET", "h", field, "value")
		c.ask("ZADD", "z", "1", field)
		c.ask("SADD", "s", field)
		c.ask("RPUSH", "l", field)
	}
	for _, key := range []string{"h", "z", "s", "l"} {
		all, sampled := size(key, "SAMPLES", "0"), size(key)
		if all < 2000*16 || all > 2000*400 || sampled < all/2 || sampled > all*2 {
			t.Errorf("%s: %d bytes, %d by samples", key, all, sampled)
		}
	}
}

// TestInfoMemory: used_memory is the sum of used_memory_overhead and used_memory_dataset. It does not include the ballast, memory
// that the process has allocated but does not use.
func TestInfoMemory(t *testing.T) {
	const ballast = 32 << 20
	unused := make([]byte, ballast)
	defer runtime.KeepAlive(unused)
	c := newTestServer(t, func(cfg *Config) { cfg.Ballast = ballast }).dial(t)
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	text := c.ask("INFO", "memory").Text
	value := func(name string) (n int64) {
		t.Helper()
		_, rest, _ := strings.Cut(text, "\r\n"+name+":")
		if _, err := fmt.Sscan(rest, &n); err != nil {
			t.Fatalf("%s: %v in %q", name, err, text)
		}
		return n
	}
	used, rss := value("used_memory"), value("used_memory_rss")
	if used <= 0 || used > int64(heap.HeapAlloc)-ballast/2 {
		t.Errorf("%d bytes are used of a heap of %d with a ballast of %d", used, heap.HeapAlloc, ballast)
	}
	if overhead, data := value("used_memory_overhead"), value("used_memory_dataset"); overhead+data != used {
		t.Errorf("%d bytes are used, for %d and %d", used, overhead, data)
	}
	if peak := value("used_memory_peak"); peak < used || peak < value("used_memory_startup") {
		t.Errorf("%d bytes at most, %d at the start, %d now", peak, value("used_memory_startup"), used)
	}
	if runtime.GOOS == "linux" && (rss < 1<<20 || value("total_system_memory") < rss) {
		t.Errorf("%d bytes are resident of %d", rss, value("total_system_memory"))
	}
}

// TestMonitorIsCutOff: the server cuts off a client in MONITOR that does not read, at the output buffer limit of normal clients.
func TestMonitorIsCutOff(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		other, mon := ts.dial(t), ts.dial(t)
		other.do(`CONFIG SET client-output-buffer-limit "normal 1mb 0 0"`, "+OK\r\n")
		mon.do("MONITOR", "+OK\r\n")
		value := strings.Repeat("v", 100_000)
		for range 200 {
			other.ask("SET", "k", value)
			if ts.stats.outputLimit.Load() > 0 {
				break
			}
		}
		if n := ts.stats.outputLimit.Load(); n != 1 {
			t.Fatalf("%d clients were cut off, want the monitor", n)
		}
		for ts.monitors.count.Load() > 0 {
			other.ask("PING")
		}
	})
}

// TestLogsAreBounded: the ACL log and the slow log keep to their maximum lengths, and no entry grows with names that a client chooses.
func TestLogsAreBounded(t *testing.T) {
	ts := newTestServer(t, nil)
	admin, c := ts.dial(t), ts.dial(t)
	admin.do("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 20 acllog-max-len 20 latency-monitor-threshold 1", "+OK\r\n")
	admin.do("ACL SETUSER u on nopass ~a +@all -get", "+OK\r\n")
	c.ask("CLIENT", "SETNAME", strings.Repeat("n", 100_000))
	c.ask("CLIENT", "SETINFO", "LIB-NAME", strings.Repeat("l", 100_000))
	c.do("AUTH u x", "+OK\r\n")
	long := strings.Repeat("x", 20_000)
	for i := range 30 {
		c.ask("AUTH", fmt.Sprint(i, long), long)
		c.ask("SET", fmt.Sprint(i, long), long)
		c.ask("SET", "a", long)
		c.ask(append([]string{"DEL"}, strings.Fields(strings.Repeat("a ", 500))...)...)
	}
	if entries := ts.denials(); len(entries) != 20 {
		t.Errorf("%d entries in the ACL log", len(entries))
	}
	for _, e := range ts.denials() {
		if n := len(e.object) + len(e.user) + len(e.client); n > 4*aclLogWord {
			t.Fatalf("an entry of the ACL log has %d bytes", n)
		}
	}
	slow := ts.slow.latest(100)
	if len(slow) != 20 {
		t.Errorf("%d entries in the slow log", len(slow))
	}
	for _, e := range slow {
		n := len(e.name) + len(e.addr)
		for _, arg := range e.args {
			n += len(arg)
		}
		if n > 2*aclLogWord+redistext.ShownArgs*(redistext.ShownArgBytes+64) {
			t.Fatalf("an entry of the slow log has %d bytes", n)
		}
	}
	if names := ts.spikes.names(); len(names) > 2 {
		t.Errorf("the latency monitor knows %q", names)
	}
}

// TestRefusalsCopyNoNames: the ACL log does not copy a client's long names, because a refusal costs the client only a few bytes.
func TestRefusalsCopyNoNames(t *testing.T) {
	ts := newTestServer(t, nil)
	admin, c := ts.dial(t), ts.dial(t)
	admin.do("ACL SETUSER u on nopass +client", "+OK\r\n")
	c.do("AUTH u x", "+OK\r\n")
	c.ask("CLIENT", "SETNAME", strings.Repeat("n", 1<<20))
	c.ask("CLIENT", "SETINFO", "LIB-NAME", strings.Repeat("l", 1<<20))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 30 {
		if got := c.ask("GET", "k"); got.Type != '-' {
			t.Fatal(got.Text)
		}
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 8<<20 {
		t.Errorf("30 refusals allocated %d KB", (after.TotalAlloc-before.TotalAlloc)>>10)
	}
}

// TestLogsAreBoundedByBytes: the slow log and the ACL log are bounded in bytes, however many entries they may have. They keep the
// latest entries.
func TestLogsAreBoundedByBytes(t *testing.T) {
	ts := newTestServer(t, nil)
	admin := ts.dial(t)
	admin.do("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 100000000 acllog-max-len 100000000", "+OK\r\n")
	list := ts.each()
	s, now := list[len(list)-1], ts.cfg.Clock()
	word := []byte(strings.Repeat("x", 2*redistext.ShownArgBytes))
	args := slices.Repeat([][]byte{word}, 2*redistext.ShownArgs)
	cmd, _ := ts.table.Resolve([][]byte{[]byte("set"), word, word})
	for i := range 5000 {
		args[0] = fmt.Append(nil, i)
		ts.note(s, cmd, args, time.Second)
		ts.aclLog.add(now, int(ts.params.aclLogMax.Load()), aclLogEntry{object: fmt.Sprint(i) + strings.Repeat("o", aclLogWord)}, s)
	}
	slow, size := ts.slow.latest(math.MaxInt64), 0
	for _, e := range slow {
		for _, arg := range e.args {
			size += len(arg)
		}
	}
	if size > maxSlowBytes || size < maxSlowBytes/2 || slow[0].args[0] != "4999" {
		t.Errorf("the slow log has %d entries of %d bytes, the latest %s", len(slow), size, slow[0].args[0])
	}
	denials, size := ts.denials(), 0
	for _, e := range denials {
		size += len(e.object)
	}
	if size > maxACLLogBytes || size < maxACLLogBytes/2 || !strings.HasPrefix(denials[0].object, "4999o") {
		t.Errorf("the ACL log has %d entries of %d bytes, the latest %.10s", len(denials), size, denials[0].object)
	}
	admin.do("SLOWLOG RESET", "+OK\r\n")
	admin.do("ACL LOG RESET", "+OK\r\n")
	admin.do("CONFIG SET slowlog-log-slower-than 10000", "+OK\r\n")
	if len(ts.denials()) != 0 || ts.aclLog.size != 0 {
		t.Errorf("%d bytes are counted of an empty ACL log", ts.aclLog.size)
	}
}

// TestParametersAreShort: CONFIG SET refuses long values, even for parameters without effect. It also refuses long lists of
// percentiles.
func TestParametersAreShort(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	for _, name := range []string{"ignore-warnings", "masterauth", "save", "requirepass", "latency-tracking-info-percentiles"} {
		value := strings.Repeat("1 ", maxParamBytes/2+1)
		if got := c.ask("CONFIG", "SET", name, value).Text; !strings.Contains(got, "too long") {
			t.Errorf("%s: %.100s", name, got)
		}
	}
	if got := c.ask("CONFIG", "SET", "latency-tracking-info-percentiles", strings.Repeat("1 ", maxPercentiles+1)).Text; !strings.Contains(got, "too many") {
		t.Errorf("percentiles: %.100s", got)
	}
	c.do("CONFIG SET latency-tracking-info-percentiles 1", "+OK\r\n")
	if got := c.ask("CONFIG", "SET", "masterauth", strings.Repeat("x", maxParamBytes)).Text; got != "OK" {
		t.Errorf("masterauth of the largest length: %.100s", got)
	}
}

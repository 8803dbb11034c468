package server

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/redcon"
)

// pieces is a connection that delivers its input in given pieces.
type pieces struct {
	net.Conn
	in [][]byte
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.in) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.in[0])
	if p.in[0] = p.in[0][n:]; len(p.in[0]) == 0 {
		p.in = p.in[1:]
	}
	return n, nil
}

// rules is a policy with fixed answers.
type rules struct {
	auth     bool
	max      int64
	query    int64
	long     int64 // 0: no command is too long
	failures []string
	memory   userMemory
}

func (r *rules) needsAuth() bool { return r.auth }
func (r *rules) batch() int {
	if r.auth {
		return unauthBatch
	}
	return maxCalls
}
func (r *rules) spared(int64) bool       { return false }
func (r *rules) exempts(int64)           {}
func (r *rules) holds(int64)             {}
func (r *rules) userMemory() *userMemory { return &r.memory }
func (r *rules) maxBulk() int64          { return r.max }
func (r *rules) maxQuery() int64         { return r.query }
func (r *rules) tooLong(n int64) int64 {
	if r.long == 0 || n <= r.long {
		return 0
	}
	return r.long
}
func (r *rules) protocolError(text string) { r.failures = append(r.failures, text) }
func (r *rules) received(int)              {}
func (r *rules) brings(int)                {}
func (r *rules) waitsForInput()            {}

func usualRules() *rules { return &rules{max: 512 << 20, query: 1 << 30, long: 8 << 20} }

// read runs input through a guard and redcon, as a connection would, and
// returns the commands and the error message, if any.
func read(in [][]byte, r *rules) (commands [][]string, failure string) {
	g := newGuard(&pieces{in: in})
	g.policy = r
	rd := redcon.NewReader(g)
	for {
		cmds, err := rd.ReadCommands()
		if err != nil {
			if err != io.EOF {
				commands = append(commands, []string{"redcon: " + err.Error()})
			}
			return commands, strings.Join(r.failures, "|")
		}
		for _, c := range cmds {
			commands = append(commands, g.shown(g.claim(c.Args), len(cmds)))
		}
	}
}

// shown returns a command in the form that the tests compare. The argument named of is the number of commands in its
// batch.
func (g *guard) shown(args [][]byte, of int) (show []string) {
	for _, a := range args {
		show = append(show, string(a))
	}
	if g.cut > 0 {
		show = append(show, fmt.Sprint("cut by ", g.cut, ", batch of ", of))
	}
	return show
}

// readDirect does what read does, but as an event loop does it, without redcon.
func readDirect(in [][]byte, r *rules) (commands [][]string, failure string) {
	g := newGuard(&pieces{in: in})
	g.policy, g.direct = r, true
	for g.end == nil && g.failure == "" {
		g.parse()
		for i := range g.ends {
			commands = append(commands, g.shown(g.command(i), len(g.ends)))
		}
		if len(g.ends) > 0 {
			g.recycle()
		} else if g.end == nil && g.failure == "" {
			g.fill()
		}
	}
	if g.failure != "" {
		failure = "Protocol error: " + g.failure
	}
	return commands, failure
}

func whole(s string) [][]byte { return [][]byte{[]byte(s)} }

func bytewise(s string) [][]byte {
	var in [][]byte
	for i := range len(s) {
		in = append(in, []byte{s[i]})
	}
	return in
}

func array(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

func TestGuardReads(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, c := range []struct {
		name, in string
		want     [][]string
		failure  string
	}{
		{"arrays", array("SET", "k", "v") + array("GET", "k"), [][]string{{"SET", "k", "v"}, {"GET", "k"}}, ""},
		{"inline", "PING\r\nget  k\n", [][]string{{"PING"}, {"get", "k"}}, ""},
		{"ignored", "*0\r\n*-1\r\n*-10\r\n\r\n\n  \r\nPING\r\n", [][]string{{"PING"}}, ""},
		{"empty name", "*1\r\n$0\r\n\r\n\"\"\r\n", [][]string{{""}, {""}}, ""},
		{"no line end", "*1xx$4xxPINGxx", nil, ""},
		{"line ends of arguments", "*1\r\n$4\r\nPINGab*1\ra$1\rbcde", [][]string{{"PING"}, {"c"}}, ""},
		{"quotes", `set "a\x41\n" 'it\'s' "\q"` + "\r\n", [][]string{{"set", "aA\n", "it's", "q"}}, ""},
		{"blanks", "a\tb\vc \v\fd \"e\"\vf\r\n", [][]string{{"a", "b\vc", "d", "e", "f"}}, ""},
		{"after good ones", array("PING") + "*1\r\n+x\r\n", [][]string{{"PING"}}, "Protocol error: expected '$', got '+'"},
		{"large", array("SET", "k", long) + array("GET", "k"), [][]string{{"SET", "k", long}, {"GET", "k"}}, ""},
		{"forged stand-in", array("parcel") + array("A", long) + array("parcel"), [][]string{{"parcel"}, {"A", long}, {"parcel"}}, ""},
		{"large inline", "SET k " + long[:40_000] + "\r\nPING\r\n", [][]string{{"SET", "k", long[:40_000]}, {"PING"}}, ""},
		{"longest inline", strings.Repeat("a", 65536) + "\n", [][]string{{strings.Repeat("a", 65536)}}, ""},
		{"too long inline", long + "\r\n", nil, "Protocol error: too big inline request"},
		{"too long inline at the end", strings.Repeat("a", 65537) + "\n", nil, "Protocol error: too big inline request"},
		{"zero byte hides the line end", "PI\x00NG\r\n" + long, nil, "Protocol error: too big inline request"},
		{"many arguments", array(strings.Split(strings.Repeat("a,", 20_000), ",")...),
			[][]string{strings.Split(strings.Repeat("a,", 20_000), ",")}, ""},
		{"unfinished", array("PING") + "*2\r\n$4\r\nECHO\r\n$3\r\nab", [][]string{{"PING"}}, ""},
		{"unbalanced", "set \"a\r\n", nil, "Protocol error: unbalanced quotes in request"},
	} {
		for how, in := range map[string][][]byte{"whole": whole(c.in), "bytewise": bytewise(c.in)} {
			got, failure := read(slices.Clone(in), usualRules())
			if !slices.EqualFunc(got, c.want, slices.Equal) || failure != c.failure {
				t.Errorf("%s, %s: got %.200q, %q; want %.200q, %q", c.name, how, got, failure, c.want, c.failure)
			}
			got, failure = readDirect(in, usualRules())
			if !slices.EqualFunc(got, c.want, slices.Equal) || failure != c.failure {
				t.Errorf("%s, %s, direct: got %.200q, %q; want %.200q, %q", c.name, how, got, failure, c.want, c.failure)
			}
		}
	}
}

// TestGuardLimits checks the limits of clients that have not authenticated, of one argument and of a whole command.
func TestGuardLimits(t *testing.T) {
	big := array("SET", "k", strings.Repeat("v", 2<<20))
	for _, c := range []struct {
		name, in string
		rules    *rules
		commands int
		failure  string
	}{
		{"arguments before AUTH", "*11\r\n", &rules{auth: true, max: 1 << 29, query: 1 << 30}, 0, "Protocol error: unauthenticated multibulk length"},
		{"argument before AUTH", "*1\r\n$16385\r\n", &rules{auth: true, max: 1 << 29, query: 1 << 30}, 0, "Protocol error: unauthenticated bulk length"},
		{"longest before AUTH", array("AUTH", strings.Repeat("p", 16384)), &rules{auth: true, max: 1 << 29, query: 1 << 30}, 1, ""},
		{"proto-max-bulk-len", big, &rules{max: 1 << 20, query: 1 << 30}, 0, "Protocol error: invalid bulk length"},
		{"client-query-buffer-limit", array("PING") + big, &rules{max: 1 << 29, query: 1 << 20}, 1, ""},
		{"within client-query-buffer-limit", big + big, &rules{max: 1 << 29, query: 3 << 20}, 2, ""},
	} {
		got, failure := read(whole(c.in), c.rules)
		if len(got) != c.commands || failure != c.failure {
			t.Errorf("%s: %d commands, %q; want %d, %q", c.name, len(got), failure, c.commands, c.failure)
		}
		got, failure = readDirect(whole(c.in), c.rules)
		if len(got) != c.commands || failure != c.failure {
			t.Errorf("%s, direct: %d commands, %q; want %d, %q", c.name, len(got), failure, c.commands, c.failure)
		}
	}
}

// TestGuardAsksAgain: a command in a pipeline may lift a limit. The guard applies the limit to the later commands only after
// that command has run.
func TestGuardAsksAgain(t *testing.T) {
	r := usualRules()
	r.auth = true
	args := strings.Split(strings.Repeat("a", 11), "")
	g := newGuard(&pieces{in: whole(array("AUTH", "secret") + array(args...))})
	g.policy = r
	rd := redcon.NewReader(g)
	cmds, err := rd.ReadCommands()
	if err != nil || len(cmds) != 1 {
		t.Fatalf("got %d commands, %v; want AUTH alone", len(cmds), err)
	}
	r.auth = false
	cmds, err = rd.ReadCommands()
	if err != nil || len(cmds) != 1 || len(cmds[0].Args) != 11 {
		t.Fatalf("after AUTH: %d commands, %v", len(cmds), err)
	}
}

// TestGuardMemory: an announced length takes no memory by itself.
func TestGuardMemory(t *testing.T) {
	for _, header := range []string{"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nabc", "*2147483647\r\n$4\r\nMGET\r\n"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		read(whole(header), usualRules())
		readDirect(whole(header), usualRules())
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%q made the server allocate %d bytes", header, n)
		}
	}
}

// chop cuts input at places that seed decides.
func chop(in []byte, seed uint64) [][]byte {
	r := rand.New(rand.NewPCG(seed, 1))
	var out [][]byte
	for len(in) > 0 {
		n := 1 + r.IntN(min(len(in), 1+r.IntN(40_000)))
		out = append(out, slices.Clone(in[:n]))
		in = in[n:]
	}
	return out
}

// FuzzGuard: commands are the same however the input was cut into pieces, and redcon gets only well-formed input.
func FuzzGuard(f *testing.F) {
	for _, s := range []string{
		array("SET", "k", "v"), "PING\r\n", "*x\r\n", "*1\r\n$4\r\nPING\r\n*0\r\n\r\nGET k\n", "*2\r\n$3\r\nGET\r\n$1\r\nk",
		"set \"a\\x41\" 'b'\r\n", "*1\r\n$-1\r\n", array("A", strings.Repeat("b", 17_000)) + "PING\r\n",
		strings.Repeat("a", 65537), "*" + strings.Repeat("1", 65537), "*1\r\n$" + strings.Repeat("1", 65537),
		"GET \x00\r\n", "*1\r\n\r\n", strings.Repeat(array("INCR", "n"), 500),
		array("ECHO", strings.Repeat("x", 16_000)) + array("SET", "key", "value"),
	} {
		f.Add([]byte(s), uint64(1))
		f.Add([]byte(s), uint64(2))
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		fuzzRules := func() *rules { return &rules{max: 512 << 20, query: 1 << 30, long: int64(seed%3) * 10_000} }
		want, wantFailure := read([][]byte{slices.Clone(in)}, fuzzRules())
		got, failure := read(chop(in, seed), fuzzRules())
		if !slices.EqualFunc(got, want, slices.Equal) || failure != wantFailure {
			t.Fatalf("in one piece %.300q, %q; in pieces %.300q, %q", want, wantFailure, got, failure)
		}
		got, failure = readDirect(chop(in, seed), fuzzRules())
		if !slices.EqualFunc(got, want, slices.Equal) || failure != wantFailure {
			t.Fatalf("through redcon %.300q, %q; direct %.300q, %q", want, wantFailure, got, failure)
		}
		for _, c := range want {
			if len(c) == 0 || strings.HasPrefix(c[0], "redcon: ") && !bytes.Contains(in, []byte("redcon")) {
				t.Fatalf("redcon got something malformed: %q", c)
			}
		}
	})
}

// TestCutsBehindMuchInput: when the guard frees its buffer after a large pipeline, it keeps the part of the next command that has
// arrived.
func TestCutsBehindMuchInput(t *testing.T) {
	for _, auth := range []bool{false, true} {
		for size := 8000; size < largeCommand; size += 500 {
			in := array("ECHO", strings.Repeat("x", size)) + array("SET", "key", "value")
			for cut := len(in) - 40; cut < len(in); cut++ {
				r := usualRules()
				r.auth = auth
				got, failure := readDirect([][]byte{[]byte(in[:size/2]), []byte(in[size/2 : cut]), []byte(in[cut:])}, r)
				if len(got) != 2 || failure != "" || !slices.Equal(got[1], []string{"SET", "key", "value"}) {
					t.Fatalf("ECHO of %d bytes, cut at %d: %d commands, %.50q, %q", size, cut, len(got), got, failure)
				}
			}
		}
	}
}

// TestAnnouncedSizesTakeNoMemory: a long argument takes memory for what has arrived, not for what was announced.
func TestAnnouncedSizesTakeNoMemory(t *testing.T) {
	for _, limit := range []int64{0, 20 << 20} {
		ts := newTestServer(t, func(c *Config) { c.MaxMemoryClients = limit })
		c := ts.dial(t)
		c.do("CONFIG SET max-entry-size 33554432", "+OK\r\n")
		c.send("*2\r\n$3\r\nGET\r\n$33554433\r\n")
		piece := strings.Repeat("x", 1<<20)
		sent := int64(0)
		for range 32 {
			if _, err := c.conn.Write([]byte(piece)); err != nil {
				break
			}
			sent += int64(len(piece))
			if held := ts.clientMemory.arriving.Load(); held > sent*5/2+1<<20 || limit > 0 && held > limit+limit/8 {
				t.Fatalf("%d bytes are held for %d that were sent", held, sent)
			}
		}
		if limit > 0 {
			until(t, "the client to be cut off", func() bool { return ts.clientMemory.cut.Load() == 1 && ts.clientMemory.arriving.Load() == 0 })
		}
	}
}

// After a pipeline of commands whose arguments were split between two reads, the guard of an idle client keeps little
// memory.
func TestIdleGuardKeepsLittle(t *testing.T) {
	g := newGuard(nil)
	g.policy, g.direct, g.memory = usualRules(), true, &clientMemory{limit: new(atomic.Int64)}
	echo := []byte("*2\r\n$4\r\nECHO\r\n$15000\r\n" + strings.Repeat("x", 15_000) + "\r\n")
	for range 3 {
		g.Conn = &pieces{in: [][]byte{echo[:9000], echo[9000:]}}
		for range 2 {
			g.fill()
			g.parse()
		}
	}
	if len(g.ends) != 3 {
		t.Fatalf("%d commands", len(g.ends))
	}
	g.recycle()
	if n := cap(g.out) + cap(g.buf); n > 2*inputBuffer {
		t.Errorf("%d bytes are kept", n)
	}
}

// The guard counts all the memory that it allocates for a large argument, and allocates it in few steps, which leave little garbage.
func TestRoomOfALargeArgumentCounts(t *testing.T) {
	const size = 7 << 20
	long := bytes.Repeat([]byte("x"), size)
	g := newGuard(&pieces{in: bytewise("")})
	g.policy, g.direct, g.memory = usualRules(), true, &clientMemory{limit: new(atomic.Int64)}
	send := func(s []byte) {
		for len(s) > 0 {
			n := min(len(s), 100_000)
			g.Conn = &pieces{in: [][]byte{s[:n:n]}}
			s = s[n:]
			for g.end == nil {
				before := g.payload
				g.fill()
				g.parse()
				if g.payload == before && g.payload > 0 {
					break
				}
			}
			g.end = nil
		}
	}
	send(append([]byte("*2\r\n$4\r\nECHO\r\n$"+strconv.Itoa(size)+"\r\n"), long[:seriousArg/2]...))
	if held := g.held.Load(); held > 4*seriousArg {
		t.Errorf("%d bytes are held for the first %d", held, seriousArg/2)
	}
	send(long[seriousArg/2 : 2*seriousArg])
	if held := g.held.Load(); held < size || held > size+1<<20 {
		t.Errorf("%d bytes are held for %d", held, size)
	}
	if room := cap(g.large[len(g.large)-1]); room < size || room > size+64<<10 {
		t.Errorf("there is room for %d of %d bytes", room, size)
	}
	send(long[2*seriousArg:])
	send([]byte("\r\n"))
	if len(g.ends) != 1 || !bytes.Equal(g.command(0)[1], long) {
		t.Errorf("%d commands", len(g.ends))
	}
}

// A command may begin to wait after its client has left. The wait must end: otherwise the command would take an element for
// nobody.
func TestWatchOfAConnectionThatHasEnded(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	g := &guard{Conn: near, policy: &rules{}}
	far.Close()
	for range 2 {
		gone := make(chan struct{})
		stop := g.watch(func() { close(gone) })
		select {
		case <-gone:
		case <-time.After(10 * time.Second):
			t.Fatal("nobody is told that the client has left")
		}
		stop()
	}
	if _, err := g.read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the end of the connection is read as %v", err)
	}
}

// TestManyArgumentsAreFewObjects: the short arguments of a large command share memory. An append to one of them must not
// overwrite the next.
func TestManyArgumentsAreFewObjects(t *testing.T) {
	const many = 20_000
	in := []byte("*" + strconv.Itoa(many) + "\r\n")
	for i := range many {
		arg := strconv.Itoa(i)
		in = fmt.Appendf(in, "$%d\r\n%s\r\n", len(arg), arg)
	}
	var g *guard
	if n := testing.AllocsPerRun(5, func() {
		g = newGuard(&pieces{in: [][]byte{in}})
		g.policy, g.direct = usualRules(), true
		for len(g.ends) == 0 {
			g.fill()
			g.parse()
		}
	}); n > many/50 {
		t.Errorf("%v objects for %d arguments", n, many)
	}
	for i, arg := range g.command(0) {
		if string(arg) != strconv.Itoa(i) || cap(arg) > len(arg) {
			t.Fatalf("argument %d is %q with room for %d bytes", i, arg, cap(arg))
		}
	}
}

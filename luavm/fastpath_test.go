package luavm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// plainGenerator makes random scripts that resemble the scripts of locks. Some of them fail.
type plainGenerator struct {
	*rand.Rand
	strings.Builder
	locals int
}

// generatePlain returns a script for plainKeys and plainArgs.
func generatePlain(seed int64) string {
	g := &plainGenerator{Rand: rand.New(rand.NewSource(seed))}
	for range 1 + g.Intn(4) {
		g.statement(2)
	}
	g.WriteString("return ")
	g.expression(2)
	return g.String()
}

var (
	plainKeys   = []string{"s", "h", "absent", "l", "n"}
	plainArgs   = []string{"mine", "f", "10", "", "0x10", "1e2", "abc"}
	plainBefore = [][]string{{"set", "s", "mine"}, {"hset", "h", "f", "1", "g", "x"}, {"rpush", "l", "a", "b"}, {"set", "n", "41"}, {"zadd", "z", "1.5", "m"}}
)

func (g *plainGenerator) pick(of ...string) { g.WriteString(of[g.Intn(len(of))]) }

func (g *plainGenerator) statement(depth int) {
	switch g.Intn(4) {
	case 0:
		fmt.Fprintf(g, "local v%d=", g.locals)
		g.expression(2)
		g.locals++
	case 1:
		if depth > 0 {
			g.WriteString("if ")
			g.expression(2)
			g.WriteString(" then ")
			g.block(depth - 1)
			if g.Intn(2) == 0 {
				g.WriteString(" else ")
				g.block(depth - 1)
			}
			g.WriteString(" end")
			break
		}
		fallthrough
	default:
		g.command()
	}
	g.WriteString("\n")
}

func (g *plainGenerator) block(depth int) {
	locals := g.locals
	for range 1 + g.Intn(2) {
		g.statement(depth)
	}
	if g.Intn(3) == 0 {
		g.WriteString("return ")
		g.expression(1)
	}
	g.locals = locals
}

func (g *plainGenerator) command() {
	g.pick("redis.call(", "redis.call(", "redis.call(", "redis.pcall(")
	g.arguments()
	g.WriteString(")")
}

// arguments writes a random command with its arguments. Most of the commands fit the type of their key.
func (g *plainGenerator) arguments() {
	const str, hash, absent, list, number = "KEYS[1]", "KEYS[2]", "KEYS[3]", "KEYS[4]", "KEYS[5]"
	const text, field, hundred = "ARGV[1]", "ARGV[2]", "ARGV[3]"
	command := [][]string{
		{"'get'", str}, {"'get'", absent}, {"'get'", number}, {"'set'", str, text}, {"'set'", absent, text, "'nx'", "'px'", "100000"},
		{"'exists'", hash}, {"'exists'", absent}, {"'hexists'", hash, field}, {"'hexists'", absent, field}, {"'hincrby'", hash, field, "1"}, {"'del'", str},
		{"'del'", absent}, {"'incr'", number}, {"'incrby'", number, hundred}, {"'pexpire'", hash, hundred}, {"'zscore'", "'z'", "'m'"},
		{"'hget'", hash, field}, {"'hset'", hash, text, hundred}, {"'lrange'", list, "0", "-1"}, {"'ping'"}, {"'publish'", text, "0"}, {"'pttl'", absent}, {"'llen'", list},
	}[g.Intn(23)]
	for i, arg := range command {
		if i > 0 {
			g.WriteString(",")
		}
		if g.Intn(30) == 0 {
			g.expression(0)
		} else {
			g.WriteString(arg)
		}
	}
}

func (g *plainGenerator) expression(depth int) {
	if depth == 0 || g.Intn(3) == 0 {
		switch {
		case g.locals > 0 && g.Intn(2) == 0:
			fmt.Fprintf(g, "v%d", g.Intn(g.locals))
		case g.Intn(12) > 0:
			g.pick("nil", "true", "false", "0", "1", "-1", "3.7", "1e20", "'f'", "'10'", "''", "KEYS[1]", "KEYS[2]", "KEYS[9]", "ARGV[3]", "ARGV[1]", "ARGV[0]")
		default:
			g.pick("ARGV[1.5]", "KEYS", "redis.call", "redis", "tonumber", "'get'", "KEYS.x")
		}
		return
	}
	switch g.Intn(8) {
	case 0, 1:
		g.command()
	case 2:
		g.WriteString("tonumber(")
		g.expression(depth - 1)
		g.WriteString(")")
	case 3:
		g.WriteString("(not ")
		g.expression(depth - 1)
		g.WriteString(")")
	case 4:
		g.WriteString("((tonumber(")
		g.expression(depth - 1)
		g.pick(") or 0)<", ") or 1)<=", ") or 2)>")
		g.pick("10", "0", "tonumber(ARGV[3])", "tonumber(ARGV[5])")
		g.WriteString(")")
	default:
		g.WriteString("(")
		g.expression(depth - 1)
		g.pick("==", "==", "~=", " and ", " or ", " and ", " or ", "==", "~=", "==", "<")
		g.expression(depth - 1)
		g.WriteString(")")
	}
}

// TestPlainCorpus runs scripts that are made at random. Their replies were recorded
// from a real server, by -record like the corpus.
func TestPlainCorpus(t *testing.T) {
	const golden, scripts = "testdata/plain.json", 200
	if *record != "" {
		var cases []corpusCase
		for seed := range int64(scripts) {
			cases = append(cases, corpusCase{Script: generatePlain(seed), Keys: plainKeys, Args: plainArgs, Before: plainBefore, Resp: 2})
		}
		recordCases(t, cases, golden)
	}
	var recorded []corpusCase
	if data, err := os.ReadFile(golden); err != nil {
		t.Fatal(err)
	} else if err := json.Unmarshal(data, &recorded); err != nil {
		t.Fatal(err)
	}
	if len(recorded) != scripts {
		t.Fatalf("%d scripts are recorded, not %d", len(recorded), scripts)
	}
	w := newWorld(t, Options{})
	for i, c := range recorded {
		if c.Script != generatePlain(int64(i)) {
			t.Fatalf("script %d is not the recorded one: record it", i)
		}
		w.reset()
		for _, cmd := range c.Before {
			w.do(2, cmd...)
		}
		if got := wire(w.do(2, c.command()...), 2); got != latin1(c.Reply) {
			t.Errorf("script %d:\n%s\n got %q\nwant %q", i, c.Script, got, latin1(c.Reply))
		}
	}
}

// twin runs each script in two engines: one has the fast path, the other does not.
type twin struct {
	with, without *world
	traced        [2][]string
	faults        []string
}

func newTwin(tb testing.TB) *twin {
	t := &twin{}
	for i, w := range []**world{&t.with, &t.without} {
		*w = newWorld(tb, Options{
			Interpret: i == 1,
			Trace:     func(c *store.Ctx) { t.traced[i] = append(t.traced[i], string(bytes.Join(c.Args, []byte(" ")))) },
			Fault:     func(msg string) { t.faults = append(t.faults, msg) },
		})
	}
	return t
}

// run runs a script in both engines, compares the results, and reports whether the fast path ran the script to its end.
func (t *twin) run(tb testing.TB, before [][]string, command []string) (fast bool) {
	tb.Helper()
	t.traced, t.faults = [2][]string{}, nil
	var replies [2]string
	for i, w := range []*world{t.with, t.without} {
		w.reset()
		for _, cmd := range before {
			w.do(2, cmd...)
		}
		if c, _, err := w.e.chunkOf(&store.Ctx{}, command[1]); err == nil {
			c.fn, c.fast = nil, nil
		}
		replies[i] = wire(w.do(2, command...), 2)
	}
	if replies[0] != replies[1] {
		tb.Errorf("%s\n  fast path %q\n gopher-lua %q", command[1], replies[0], replies[1])
	}
	if a, b := t.with.txn.Writes().Bytes(), t.without.txn.Writes().Bytes(); !bytes.Equal(a, b) {
		tb.Errorf("%s\n  fast path wrote %q\n gopher-lua wrote %q", command[1], a, b)
	}
	if a, b := strings.Join(t.traced[0], "\n"), strings.Join(t.traced[1], "\n"); a != b {
		tb.Errorf("%s\n  fast path ran %s\n gopher-lua ran %s", command[1], a, b)
	}
	if len(t.faults) > 0 {
		tb.Errorf("%s: %s", command[1], t.faults)
	}
	if c := t.without.e.byBody[command[1]]; c != nil && c.fast != nil {
		tb.Errorf("%s: the fast path in an engine without one", command[1])
	}
	c := t.with.e.byBody[command[1]]
	return c != nil && c.fast != nil && c.fast.regret == 0
}

// TestFastPathIsTheSame: the fast path gives the same replies, writes and traces as gopher-lua, for the corpus and for random scripts.
func TestFastPathIsTheSame(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	both, corpus := newTwin(t), 0
	for _, file := range files {
		for _, c := range readCases(t, file) {
			if both.run(t, c.Before, c.command()) {
				corpus++
			}
		}
	}
	const scripts = 4000
	random := 0
	for seed := range int64(scripts) {
		c := corpusCase{Script: generatePlain(1000 + seed), Keys: plainKeys, Args: plainArgs}
		if both.run(t, plainBefore, c.command()) {
			random++
		}
	}
	t.Logf("the fast path ran %d of the corpus and %d of %d", corpus, random, scripts)
	if corpus < 50 || random < scripts/4 {
		t.Errorf("the fast path ran %d of the corpus and %d of %d", corpus, random, scripts)
	}
}

// FuzzFastPath compares the fast path with gopher-lua for any script.
func FuzzFastPath(f *testing.F) {
	for seed := range int64(50) {
		f.Add(generatePlain(seed))
	}
	both := newTwin(f)
	f.Fuzz(func(t *testing.T, script string) {
		// Random numbers depend on the scripts that have run before.
		if strings.Contains(script, "rand") {
			return
		}
		c := corpusCase{Script: toLatin1(script), Keys: plainKeys, Args: plainArgs}
		both.run(t, plainBefore, c.command())
	})
}

// TestFastPathRunsLocks: the fast path runs the scripts of locks, and allocates no memory for a run.
func TestFastPathRunsLocks(t *testing.T) {
	w := newWorld(t, Options{})
	w.do(2, "set", "k", "mine")
	for _, script := range []string{
		unlockScript,
		"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end",
		"local v=redis.call('get',KEYS[1]) if v==false or v~=ARGV[1] then return -1 end return tonumber(ARGV[2])",
	} {
		w.do(2, "script", "load", script)
		c := &store.Ctx{Txn: w.txn, RESP: 2, Args: [][]byte{[]byte("eval"), []byte(script), []byte("1"), []byte("k"), []byte("another"), []byte("10000")}}
		cmd, _ := w.table.Resolve(c.Args)
		if got := testing.AllocsPerRun(100, func() { cmd.Run(c) }); got != 0 {
			t.Errorf("%s\n%.0f allocations", script, got)
		}
	}
	both := newTwin(t)
	for _, script := range []string{
		"return tonumber(redis.call('get',KEYS[1]))",
		"do local p,q,r=1,2,3 end local a,b,c=redis.call('get',KEYS[1]) return (b or c)==nil",
		"return redis.call('zscore','z','m')",
	} {
		if !both.run(t, plainBefore, []string{"eval", script, "1", "n"}) {
			t.Errorf("the fast path did not run\n%s", script)
		}
	}
	// Redisson's.
	for _, script := range []string{
		"if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then redis.call('hincrby', KEYS[1], ARGV[2], 1); " +
			"redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; return redis.call('pttl', KEYS[1]);",
		"local val = redis.call('get', KEYS[3]); if val ~= false then return tonumber(val); end; if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil; end; " +
			"local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); redis.call('set', KEYS[3], 0, 'px', ARGV[5]); return 0; " +
			"else redis.call('del', KEYS[1]); redis.call(ARGV[4], KEYS[2], ARGV[1]); redis.call('set', KEYS[3], 1, 'px', ARGV[5]); return 1; end;",
	} {
		args := []string{"eval", script, "3", "lock", "channel", "latch", "0", "30000", "me", "publish", "1000"}
		for _, before := range [][][]string{nil, {{"hset", "lock", "30000", "1"}}, {{"hset", "lock", "me", "2"}}, {{"hset", "lock", "me", "1"}}, {{"set", "latch", "1"}}} {
			if !both.run(t, before, args) {
				t.Errorf("the fast path did not run, after %v\n%s", before, script)
			}
		}
	}
}

// TestFastPathGivesUp: the engine stops trying the fast path for a script that is mostly left to gopher-lua.
func TestFastPathGivesUp(t *testing.T) {
	for every, kept := range map[int]bool{2: false, 10: true} {
		w := newWorld(t, Options{})
		const script = "return redis.call(ARGV[1],KEYS[1])"
		for i := range 200 {
			command := "get"
			if i%every == 0 {
				command = "lrange"
			}
			w.do(2, "eval", script, "1", "k", command)
		}
		if c := w.e.byBody[script]; (c.fast != nil) != kept {
			t.Errorf("one of %d left to gopher-lua: kept is %v", every, !kept)
		}
	}
}

// TestFastPathKeepsNothing: after a script has ended, the fast path holds neither the request's memory nor a value of the script.
// No reply uses the request's memory.
func TestFastPathKeepsNothing(t *testing.T) {
	w := newWorld(t, Options{})
	const script = "redis.call('set',KEYS[1],ARGV[1]) local v=redis.call('get',KEYS[1]) return ARGV[1]"
	c := &store.Ctx{Txn: w.txn, RESP: 2, Args: [][]byte{[]byte("eval"), []byte(script), []byte("1"), []byte("k"), []byte("value")}}
	cmd, _ := w.table.Resolve(c.Args)
	reply := cmd.Run(c)
	copy(c.Args[4], "other")
	if chunk := w.e.byBody[script]; chunk.fast == nil || chunk.fast.regret != 0 {
		t.Fatal("the fast path did not run")
	}
	if reply.Str != "value" {
		t.Errorf("the reply is %q", reply.Str)
	}
	for i, v := range w.e.registers {
		if v != (value{}) {
			t.Errorf("register %d holds %v", i, v)
		}
	}
	for _, arg := range w.e.args[:cap(w.e.args)] {
		if arg != nil {
			t.Errorf("an argument is held: %q", arg)
		}
	}
}

// with adds a command to those that scripts may call.
func (w *world) with(name string, run func()) {
	w.table = store.NewTable(store.Commands(), w.e.Commands(), testCommands(), []store.Command{
		{Name: name, Arity: 1, Flags: store.ReadOnly, Group: "test", Run: func(*store.Ctx) store.Reply { run(); return store.OK }},
	})
	w.e.Bind(w.table)
}

// TestFastPathIsKilled: a script is killed while the fast path runs it. If the fast path then leaves the script to gopher-lua,
// gopher-lua stops the script.
func TestFastPathIsKilled(t *testing.T) {
	for name, stop := range map[string]func(e *Engine){"SCRIPT KILL": func(e *Engine) { e.Kill() }, "the end of leadership": (*Engine).Abort} {
		w := newWorld(t, Options{})
		calls := 0
		w.with("t.stop", func() {
			if calls++; calls == 1 {
				stop(w.e)
			}
		})
		r := w.eval("redis.call('t.stop') return redis.call('set',KEYS[1],'x')", "k")
		if !r.IsError() || !strings.Contains(r.Str, "user_script:1") || w.do(2, "exists", "k").Int != 0 {
			t.Errorf("%s: %q", name, r.Str)
		}
	}
}

// TestFastPathHasNoTimeOfItsOwn: the time on the fast path counts when gopher-lua then runs the script.
func TestFastPathHasNoTimeOfItsOwn(t *testing.T) {
	now := time.Duration(0)
	w := newWorld(t, Options{Now: func() time.Duration { return now }, TimeLimit: 5 * time.Second})
	w.with("t.slow", func() { now += time.Second })
	r := w.eval(strings.Repeat("redis.call('t.slow') ", 60) + "return 1")
	if !r.IsError() || now > 50*time.Second { // both look at the clock after 16 calls
		t.Errorf("after %v: %q", now, r.Str)
	}
	if since, running := w.e.BusySince(); running {
		t.Error("busy since", since)
	}
}

// TestFastPathDrawsNoLots: the fast path runs no command with a random result, because gopher-lua may have to run the script again.
func TestFastPathDrawsNoLots(t *testing.T) {
	both := newTwin(t)
	for _, script := range []string{"return redis.call('spop',KEYS[1])", "return redis.call('SPOP',KEYS[1])", "return redis.call(ARGV[1],KEYS[1])"} {
		if both.run(t, [][]string{{"sadd", "set", "m"}}, []string{"eval", script, "1", "set", "sPop"}) {
			t.Errorf("%s took the fast path", script)
		}
	}
}

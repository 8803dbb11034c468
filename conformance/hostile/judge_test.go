package hostile

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/judge"
	"github.com/lockstep-io/lockstep/conformance/transcript/redisd"
)

// repeat calls the function do every few milliseconds, until the function that it returns is called.
func repeat(do func()) (off func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
				do()
			}
		}
	}()
	return func() { close(stop); <-done }
}

// plant is a harm that no attacker may be able to do: the tests do it as the nodes' owner.
type plant struct {
	name string
	want judge.Fault
	harm func(t *testing.T, s *siege) (undo func())
}

// ask sends a command of the owner that must succeed.
func ask(t *testing.T, s *siege, args ...string) any {
	got, err := s.f.ask(0, args...)
	if err != nil {
		t.Errorf("%q: %v", args, err)
	}
	return got
}

// during makes a harm: the owner sends a command again and again for as long as the round lasts.
func during(args ...string) func(*testing.T, *siege) func() {
	return func(_ *testing.T, s *siege) func() {
		l, err := s.f.dial(0)
		return repeat(func() {
			if err == nil {
				_, err = l.do(args...)
			}
		})
	}
}

// before makes a harm of commands: the owner sends the list harm before the round and the list undo after it.
func before(harm, undo [][]string) func(*testing.T, *siege) func() {
	return func(t *testing.T, s *siege) func() {
		for _, args := range harm {
			ask(t, s, args...)
		}
		return func() {
			for _, args := range undo {
				ask(t, s, args...)
			}
		}
	}
}

// stay opens n connections that stay open, and sends a command on each.
func stay(n int, says ...string) func(*testing.T, *siege) func() {
	return func(t *testing.T, s *siege) func() {
		var lines []*line
		for range n {
			l, err := s.f.dial(0)
			if err == nil {
				_, err = l.do(says...)
			}
			if err != nil {
				t.Error(err)
				continue
			}
			lines = append(lines, l)
		}
		return func() {
			for _, l := range lines {
				l.Close()
			}
		}
	}
}

// pause stops a node's process for longer than the bound.
func pause(t *testing.T, s *siege) func() {
	p := s.f.nodes[0].Process()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Error(err)
	}
	time.Sleep(plantBound + plantBound/2)
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Error(err)
	}
	time.Sleep(plantBound) // the waiting innocents get their replies
	return func() {}
}

// plantBound is how long an innocent may wait in these tests.
const plantBound = 2 * time.Second

var plants = []plant{
	{"a lock that is gone", judge.LockLost, before([][]string{{"DEL", "held:i1"}}, [][]string{{"SET", "held:i1", "i1", "PX", fmt.Sprint(forever.Milliseconds())}})},
	{"a lock of another owner", judge.LockLost, before([][]string{{"SET", "held:i2", "thief", "KEEPTTL"}}, [][]string{{"SET", "held:i2", "i2", "PX", fmt.Sprint(forever.Milliseconds())}})},
	{"locks released by another", judge.LockLost, during("DEL", "mutex:0", "mutex:1", "mutex:2", "mutex:3")},
	{"locks granted while they are held", judge.TwoHolders, during("DEL", "mutex:0", "mutex:1", "mutex:2", "mutex:3")},
	{"leases that end early", judge.LeaseShort, during("DEL", "lease:i0", "lease:i1", "lease:i2", "lease:i3", "lease:i4", "lease:i5")},
	{"a lease that is shortened", judge.LeaseShort, before([][]string{{"PEXPIRE", "held:i0", "60000"}}, [][]string{{"PEXPIRE", "held:i0", fmt.Sprint(forever.Milliseconds())}})},
	{"a node that does not answer", answersLate, pause},
	{"connections cut", judge.ClientError, during("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")},
	{"connections left", leftBehind, stay(20, "PING")},
	{"a subscription left", leftBehind, stay(1, "SUBSCRIBE", "evil:left")},
	{"a client left that tracks", leftBehind, stay(1, "CLIENT", "TRACKING", "ON", "BCAST")},
	{"a user left", leftBehind, before([][]string{{"ACL", "SETUSER", "evil", "on", "nopass"}}, [][]string{{"ACL", "DELUSER", "evil"}})},
	{"a parameter left", leftBehind, before([][]string{{"CONFIG", "SET", "slowlog-max-len", "3"}}, [][]string{{"CONFIG", "SET", "slowlog-max-len", "128"}})},
	{"memory left", leftBehind, before(big("SET", strings.Repeat("x", 3<<20)), big("DEL"))},
	{"a key made by nobody", rightsBroken, before([][]string{{"SET", "nobody", "1"}}, nil)},
	{"a secret written", rightsBroken, func(t *testing.T, s *siege) func() {
		ask(t, s, "SET", "secret:string", "spoiled")
		return func() { ask(t, s, s.f.treasure()[0]...) }
	}},
}

// big returns commands for keys that together take more memory than an attack may leave behind.
func big(name string, values ...string) (list [][]string) {
	for i := range 25 {
		list = append(list, append([]string{name, fmt.Sprintf("held:big%d", i)}, values...))
	}
	return list
}

// TestJudgeFinds does every kind of harm that the judge must find. The judge must find each kind, and must find nothing in a round
// without harm.
func TestJudgeFinds(t *testing.T) {
	var count tally
	s := besiege(quiet{t}, 1, 1, &count, plantBound)
	s.settle = 200 * time.Millisecond
	nothing := []input{{door: clientDoor, user: wide, pieces: commands("PING"), read: readEach, hold: 400 * time.Millisecond}}
	if found := s.round(nothing); len(found) > 0 {
		_, told := s.f.judge.Found()
		t.Fatalf("in a round of nothing: %q", told)
	}
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			undo := p.harm(t, s)
			found := s.round(nothing)
			for again := 0; found[p.want] == 0 && again < 15; again++ { // the innocents may have had too little time to notice the harm
				found = s.round(nothing)
			}
			if found[p.want] == 0 {
				t.Errorf("not found: %s; but %v", p.want, found)
			}
			undo()
			time.Sleep(50 * time.Millisecond)
			s.settle = 5 * time.Second
			s.check() // so that the next round does not find this harm
			s.settle = 200 * time.Millisecond
		})
	}
	t.Run("what only others may read is told", func(t *testing.T) {
		ask(t, s, "SET", "evil:told", s.f.forbidden[:5]+"x"+s.f.forbidden)
		if found := s.round([]input{{door: clientDoor, user: wide, pieces: commands("GET evil:told"), read: readAll}}); found[rightsBroken] == 0 {
			t.Errorf("not found: %v", found)
		}
	})
	t.Run("a global left", func(t *testing.T) {
		l := &levels{texts: map[string]string{}}
		for name, text := range s.before[0].texts {
			l.texts[name] = text
		}
		l.texts["scripts"] = strings.Replace(l.texts["scripts"], "_G.string:", "_G.string:evil number:1\n_G.string:", 1)
		if found := l.above(s.before[0]); len(found) != 1 {
			t.Errorf("%q", found)
		}
	})
	t.Run("a process that ends", func(t *testing.T) {
		s.f.nodes[0].Kill()
		if found := s.round(nothing); found[processEnded] == 0 {
			t.Errorf("not found: %v", found)
		}
	})
}

// TestJudgeLooksAgain: a stopped script differs from Redis only if it ran alone, with all of the time, and is little work for Redis.
func TestJudgeLooksAgain(t *testing.T) {
	if _, version, err := redisd.Find(); err != nil || version != redisd.Version {
		t.Skip("no redis-server " + redisd.Version)
	}
	var count tally
	s := besiege(quiet{t}, 1, 1, &count, plantBound)
	play := func(beside bool, text string) map[judge.Fault]int {
		pieces := [][]byte{command("DEL", "evil:1"), script(text)}
		return s.round([]input{{door: clientDoor, user: wide, pieces: pieces, read: readEach, script: true, beside: beside}})
	}
	for range 3 {
		play(false, "while true do end")
	}
	// The first script must need more time than the user has left, which depends on the machine.
	for loops := 50_000; count.again.Load() == 0; loops *= 2 {
		if found := play(true, fmt.Sprintf("for i = 1, %d do end return 1", loops)); found[unlikeRedis] != 0 || loops > 1e8 {
			t.Fatalf("after endless scripts and %d loops: %v, and %d were looked at again", loops, found, count.again.Load())
		}
	}
	much := count.much.Load()
	if found := play(true, "for i = 1, 1e8 do end return 1"); found[unlikeRedis] != 0 || count.much.Load() != much+1 {
		t.Errorf("much work for Redis, too: %v, counted %d times", found, count.much.Load()-much)
	}
	s.f.muchWork = time.Hour
	if found := play(true, "for i = 1, 1e8 do end return 1"); found[unlikeRedis] != 1 {
		t.Errorf("not found: %v", found)
	}
}

// TestJudgeAsksRedisAgain: a garbage collection can change Redis's reply to a deeply nested script, because cjson.new makes finalizers.
// The judge must accept both replies.
func TestJudgeAsksRedisAgain(t *testing.T) {
	if _, version, err := redisd.Find(); err != nil || version != redisd.Version {
		t.Skip("no redis-server " + redisd.Version)
	}
	var count tally
	s := besiege(quiet{t}, 1, 1, &count, plantBound)
	var pieces [][]byte
	for n := range 80 { // tables, so that Redis collects garbage elsewhere
		pieces = append(pieces, command("DEL", "evil:1"), script("local tables = {"+strings.Repeat("{},", n*20)+`}
local f f = function(n)
  if n <= 0 then
    local t = setmetatable({}, {__newindex = function(t, k, v) local s = cjson.new() s[k] = v end})
    t['evil'] = cjson.null
  end
  return xpcall(function() return f(n-1) end, function(e) return e end)
end
return select('#', pcall(function() return f(10) end))`))
	}
	if found := s.round([]input{{door: clientDoor, user: wide, pieces: pieces, read: readEach, script: true, beside: true}}); found[unlikeRedis] != 0 || count.unsteady.Load() == 0 {
		t.Errorf("%v, and Redis has either reply to %d of 80 scripts", found, count.unsteady.Load())
	}
}

// TestMemoryWatch: on a machine without control groups, the judge itself watches the nodes' memory.
func TestMemoryWatch(t *testing.T) {
	var count tally
	s := besiege(quiet{t}, 1, 1, &count, plantBound)
	s.f.ungrouped = errNoGroup
	s.memory = 1 << 20
	if found := s.round([]input{{door: clientDoor, user: wide, pieces: commands("PING"), read: readEach, hold: 100 * time.Millisecond}}); found[memoryHigh] == 0 {
		t.Errorf("not found: %v", found)
	}
}

// TestFrontRecords: a front records what passes through it, until somebody asks for the recordings.
func TestFrontRecords(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	fr := newFront(t)
	in, err := net.Dial("tcp", fr.before(ln.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	buf := make([]byte, 100)
	for _, word := range []string{"hello", "later"} {
		if _, err := in.Write([]byte(word)); err != nil {
			t.Fatal(err)
		}
		if n, err := out.Read(buf); err != nil || string(buf[:n]) != word {
			t.Fatalf("%q, %v", buf[:n], err)
		}
		if list := fr.recordings(); len(list) != 1 || string(list[0].chunks[0]) != "hello" || len(list[0].chunks) != 1 {
			t.Errorf("recorded: %v", list)
		}
	}
}

func TestShown(t *testing.T) {
	for in, want := range map[string]string{
		"a\r\n":                               `"a\r\n"`,
		"ab" + strings.Repeat("x", 100) + "c": `"ab" + "x" x 100 + "c"`,
		strings.Repeat("y", 70):               `"y" x 70`,
	} {
		if got := shown([]byte(in)); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

// The same seed makes the same inputs every time; another seed makes others.
func TestSeeds(t *testing.T) {
	rec := []*recording{{chunks: [][]byte{[]byte("handshake"), []byte("frame")}}}
	for _, a := range attacks {
		one, again, other := told(a.round(1, 3, rec, rec)), told(a.round(1, 3, rec, rec)), told(a.round(2, 3, rec, rec))
		if one != again || one == other || one == "" {
			t.Errorf("%s: the same seed must make the same, another another", a.name)
		}
	}
}

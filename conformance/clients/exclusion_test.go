package clients

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/judge"
	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

const (
	everybodysLock = "lock:everybody"
	// exclusionLease is the lease of all workers, and exclusionReserve is how much of it a worker must have left to go in.
	exclusionLease   = 10 * time.Second
	exclusionReserve = 3 * time.Second
	// nobodyInside bounds the time with nobody inside. A grant whose reply is lost may keep the lock for a whole lease.
	nobodyInside = 3 * exclusionLease
	// workersCome is how long the workers may take to come: Maven may have to load Redisson.
	workersCome = 5 * time.Minute
	// workersGo is how long they may take to end.
	workersGo = time.Minute
)

// foreignKinds are the workers in other processes. Each starts one worker for each node.
var foreignKinds = []struct {
	kind, suite string
	command     func(t *testing.T) *exec.Cmd
}{
	{"Redisson RLock", "java", func(*testing.T) *exec.Cmd {
		cmd := exec.Command("mvn", "-B", "-ntp", "-Dstyle.color=never", "-pl", "redisson", "-am", "-DexcludedGroups=", "-Dgroups=exclusion",
			"-DfailIfNoTests=false", "-Dsurefire.timeout=86400", "test")
		cmd.Dir = "../java"
		return cmd
	}},
	{"redis-py Lock", "python", func(*testing.T) *exec.Cmd { return exec.Command("../run-python.sh", "exclusion.py") }},
	{"redsync", "go", func(t *testing.T) *exec.Cmd {
		binary := filepath.Join(t.TempDir(), "exclusion")
		if out, err := exec.Command("go", "-C", "../go", "build", "-o", binary, "./exclusion").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return exec.Command(binary)
	}},
}

// ownKinds are the workers that use lockstep's own commands.
var ownKinds = []struct {
	kind    string
	options []string
}{
	{"LOCK.ACQUIRE", nil},
	{"LOCK.ACQUIRE REENTRANT", []string{"REENTRANT"}},
}

// TestOneNameEveryClient: one lock name excludes clients of all kinds, while the leader is killed again and again. Redisson's locks are
// hashes, the others strings. The tokens rise strictly from one owner to the next, whatever kinds they are of.
func TestOneNameEveryClient(t *testing.T) {
	if os.Getenv("LOCKSTEP_CLIENTS") == "" {
		t.Skip("`make conformance` runs the clients of other projects")
	}
	var long time.Duration
	if s := os.Getenv("LOCKSTEP_EXCLUSION"); s != "" {
		var err error
		if long, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range suites {
		for _, k := range foreignKinds {
			if s.name == k.suite {
				s.require(t)
			}
		}
	}
	list := nodes.Start(t, 3)
	r := newRoom(t.Logf)
	address := r.open(t)
	workers := startWorkers(t, r, list, address)
	kinds := len(foreignKinds) + len(ownKinds)
	within(t, workersCome, "all workers were there", r, func() bool { return r.present() == kinds*len(list) })
	began := time.Now()
	close(r.begin)
	settled(t, r, kinds)
	kills := 0
	for ; !t.Failed() && (time.Since(began) < long || kills < 2); kills++ {
		time.Sleep(time.Second + rand.N(3*time.Second))
		killUnder(t, r, list)
		r.healthy(t)
	}
	settled(t, r, kinds)
	r.stop()
	select {
	case <-workers:
	case <-time.After(workersGo):
		t.Fatalf("not all workers have ended after %v", workersGo)
	}
	text, wrong := r.report(kills, time.Since(began))
	t.Log("\n" + text)
	if wrong {
		t.Error("faults were found")
	}
	if r.longest > nobodyInside {
		t.Errorf("nobody was inside for %v, the limit is %v", r.longest, nobodyInside)
	}
	if got, err := list[0].Do("EXISTS", everybodysLock); got != int64(0) || err != nil {
		t.Errorf("all workers have released, and EXISTS replies %v, %v", got, err)
	}
}

// startWorkers starts the workers of all kinds. They end when the room stops. Then the channel is closed.
func startWorkers(t *testing.T, r *room, list []*nodes.Node, address string) <-chan struct{} {
	t.Helper()
	var addrs []string
	for _, n := range list {
		addrs = append(addrs, n.Addr)
	}
	environment := append(os.Environ(), "LOCKSTEP_ADDRS="+strings.Join(addrs, ","), "LOCKSTEP_JUDGE="+address,
		"LOCKSTEP_LOCK="+everybodysLock, fmt.Sprint("LOCKSTEP_LEASE_MS=", exclusionLease.Milliseconds()),
		fmt.Sprint("LOCKSTEP_RESERVE_MS=", exclusionReserve.Milliseconds()), "LOCKSTEP_RESULTS=")
	var all sync.WaitGroup
	ended := func(kind string, err error) {
		if err != nil && !t.Failed() { // a test that has failed ends its workers
			r.judge.Fault(judge.ClientError, "the workers of %s: %v", kind, err)
		}
	}
	var commands []*exec.Cmd
	for _, k := range foreignKinds {
		cmd, out := k.command(t), new(bytes.Buffer)
		cmd.Env, cmd.Stdout, cmd.Stderr = environment, out, out
		cmd.WaitDelay = 10 * time.Second // a grandchild may keep the output open
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		commands = append(commands, cmd)
		all.Go(func() {
			err := cmd.Wait()
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, lastLines(out.String(), 60))
			}
			ended(k.kind, err)
		})
	}
	for _, k := range ownKinds {
		for _, addr := range addrs {
			w := &ownWorker{kind: k.kind, addr: addr, options: k.options, room: r}
			all.Go(func() { ended(k.kind, w.work(address)) })
		}
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	t.Cleanup(func() {
		r.stop()
		select {
		case <-done:
		case <-time.After(workersGo):
			for _, cmd := range commands {
				_ = cmd.Process.Kill()
			}
		}
		<-done
	})
	return done
}

// healthy fails the test when the first faults have been found.
func (r *room) healthy(t *testing.T) {
	t.Helper()
	if found, told := r.judge.Found(); len(found) > 0 {
		t.Errorf("%v: %q", found, told)
	}
}

// within waits for something that must happen.
func within(t *testing.T, limit time.Duration, what string, r *room, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !done(); time.Sleep(20 * time.Millisecond) {
		r.healthy(t)
		if t.Failed() || time.Now().After(deadline) {
			t.Fatalf("not in time: %s; %v", what, r.visits())
		}
	}
}

// settled waits until workers of each kind have been inside several times from now on.
func settled(t *testing.T, r *room, kinds int) {
	t.Helper()
	before := r.visits()
	within(t, time.Minute, "each kind was inside", r, func() bool {
		now := r.visits()
		for kind, n := range now {
			if n < before[kind]+3 {
				return false
			}
		}
		return len(now) == kinds
	})
}

// killUnder kills the leader, and starts it again when another node has led for a moment.
func killUnder(t *testing.T, r *room, list []*nodes.Node) {
	t.Helper()
	leader := electedOf(list)
	if leader == nil {
		t.Fatal("no node leads")
	}
	leader.Kill()
	r.kill()
	if electedOf(slices.DeleteFunc(slices.Clone(list), func(n *nodes.Node) bool { return n == leader })) == nil {
		t.Fatal("no new leader in time")
	}
	time.Sleep(rand.N(time.Second))
	leader.Run()
	leader.WaitReady()
}

// ownWorker takes the lock by LOCK.ACQUIRE over connections to one node.
type ownWorker struct {
	kind, addr string
	options    []string
	room       *room
	conn       *respclient.Conn
}

// do sends a command. The outcome is unknown if err is not nil, except that of a refusal.
func (w *ownWorker) do(args ...string) (reply any, err error) {
	if w.conn == nil {
		if w.conn, err = respclient.Dial(w.addr, time.Second); err != nil {
			w.conn = nil
			return nil, err
		}
	}
	conn := w.conn
	timer := time.AfterFunc(exclusionLease, func() { conn.Close() })
	defer timer.Stop()
	reply, err = conn.Do(args...)
	var refused respclient.ServerError
	if err != nil && !errors.As(err, &refused) {
		conn.Close()
		w.conn = nil
	}
	return reply, err
}

// release releases the lock if it is the owner's. It repeats the command until the outcome is known or the lease must be over. once is
// true if the first command was answered.
func (w *ownWorker) release(owner string) (reply any, once bool) {
	once = true
	for deadline := time.Now().Add(2 * exclusionLease); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		reply, err := w.do("LOCK.RELEASE", everybodysLock, owner)
		if err == nil {
			return reply, once
		}
		once = false
		if strings.HasPrefix(err.Error(), "WRONGTYPE") {
			break
		}
	}
	return nil, false
}

// work takes the lock, goes in, comes out and releases the lock, until the room stops.
func (w *ownWorker) work(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer func() {
		if w.conn != nil {
			w.conn.Close()
		}
	}()
	lines := bufio.NewReader(conn)
	tell := func(format string, args ...any) (string, error) {
		if _, err := io.WriteString(conn, fmt.Sprintf(format, args...)+"\n"); err != nil {
			return "", err
		}
		return lines.ReadString('\n')
	}
	if _, err := tell("HELLO %s", w.kind); err != nil {
		return err
	}
	lease := fmt.Sprint(exclusionLease.Milliseconds())
	for i := 0; ; i++ {
		if word, err := tell("NEXT"); err != nil || word == "STOP\n" {
			return err
		}
		owner := fmt.Sprintf("own-%s-%d", strings.ReplaceAll(conn.LocalAddr().String(), ":", "-"), i)
		asked := time.Now()
		reply, err := w.do(append([]string{"LOCK.ACQUIRE", everybodysLock, owner, "PX", lease, "WAIT", "2000"}, w.options...)...)
		grant, _ := reply.([]any)
		switch left := time.Until(asked.Add(exclusionLease)); {
		case err != nil:
			text, _, _ := strings.Cut(err.Error(), " ")
			if !errors.As(err, new(respclient.ServerError)) {
				text = "connection lost"
			}
			if _, err := tell("NOTE %s", text); err != nil {
				return err
			}
			w.release(owner)
		case len(grant) != 3: // not within the time that it waits
		case left < exclusionReserve:
			w.release(owner)
		default:
			if err := w.visit(tell, owner, grant[0], asked, left); err != nil {
				return err
			}
		}
		// While a worker waits in the queue, the lock goes to nobody else.
		time.Sleep(rand.N(500 * time.Millisecond))
	}
}

// visit goes in and comes out.
func (w *ownWorker) visit(tell func(string, ...any) (string, error), owner string, token any, asked time.Time, left time.Duration) error {
	if _, err := tell("ENTER %s %d", owner, left.Milliseconds()); err != nil {
		return err
	}
	// The reply has the token. LOCK.TOKEN must say the same.
	if now, err := w.do("LOCK.TOKEN", everybodysLock, "OWNER", owner); err == nil && now == nil {
		token = "none"
	} else if err == nil && now != token {
		w.room.judge.Fault(judge.WrongToken, "%s %s: granted with token %v, and LOCK.TOKEN replies %v", w.kind, owner, token, now)
	}
	time.Sleep(stay())
	out := fmt.Sprintf("LEAVE %s %v", owner, token)
	if late := time.Since(asked) >= exclusionLease; late {
		out = "LATE " + owner
	}
	if _, err := tell("%s", out); err != nil {
		return err
	}
	if reply, once := w.release(owner); once && reply != int64(0) && time.Since(asked) < exclusionLease {
		w.room.judge.Fault(judge.LockLost, "%s %s: the release replied %v", w.kind, owner, reply)
	}
	return nil
}

// stay returns how long a worker stays inside: a few ms, and sometimes so long that a kill may come meanwhile.
func stay() time.Duration {
	if rand.IntN(40) == 0 {
		return 200*time.Millisecond + rand.N(400*time.Millisecond)
	}
	return time.Millisecond + rand.N(5*time.Millisecond)
}

// TestRoom: the room finds two workers inside, tokens that fall and locks that are gone. It finds no fault in one whose lease was over.
func TestRoom(t *testing.T) {
	now := time.Now()
	at := func(s float64) time.Time { return now.Add(time.Duration(s * float64(time.Second))) }
	for _, c := range []struct {
		name string
		play func(r *room)
		want []judge.Fault
	}{
		{"in turn", func(r *room) {
			r.enter("a", "1", 10*time.Second, at(0))
			r.leave("a", "1", "5", at(1))
			r.enter("b", "2", 10*time.Second, at(2))
			r.leave("b", "2", "unknown", at(3))
			r.enter("b", "3", 10*time.Second, at(4))
			r.leave("b", "3", "6", at(5))
		}, nil},
		{"two inside", func(r *room) {
			r.enter("a", "1", 10*time.Second, at(0))
			r.enter("b", "2", 10*time.Second, at(1))
			r.leave("a", "1", "5", at(2))
			r.leave("b", "2", "6", at(3))
		}, []judge.Fault{judge.TwoHolders}},
		{"late", func(r *room) {
			r.enter("a", "1", 10*time.Second, at(0))
			r.enter("b", "2", 10*time.Second, at(10))
			r.overstayed("1", at(11))
			r.leave("b", "2", "6", at(12))
		}, nil},
		{"the same token", func(r *room) {
			for i, owner := range []string{"1", "2"} {
				r.enter("a", owner, 10*time.Second, at(float64(i)))
				r.leave("a", owner, "5", at(float64(i)+.5))
			}
		}, []judge.Fault{judge.WrongToken}},
		{"no lock", func(r *room) {
			r.enter("a", "1", 10*time.Second, at(0))
			r.leave("a", "1", "none", at(1))
		}, []judge.Fault{judge.LockLost}},
	} {
		r := newRoom(func(string, ...any) {})
		c.play(r)
		found, _ := r.judge.Found()
		for _, f := range c.want {
			if found[f] != 1 {
				t.Errorf("%s: %d %s, want 1", c.name, found[f], f)
			}
		}
		if len(found) != len(c.want) {
			t.Errorf("%s: found %v, want %v", c.name, found, c.want)
		}
	}
}

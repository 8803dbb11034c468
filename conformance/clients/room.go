package clients

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/judge"
)

// room is what one lock protects, and the judge of those who come in: workers of many kinds, in several processes. A worker tells the
// room before it goes in and before it goes out, each time waits for the answer, and releases the lock only then.
//
// A worker sends these lines over a connection of its own. Each is answered by a line:
//
//	HELLO kind         OK
//	NEXT               GO once all workers are there, STOP when the run is over
//	ENTER owner ms     OK; the owner's lease lasts for at least so long, by the worker's clock
//	LEAVE owner token  OK; the token is "none" if LOCK.TOKEN replied nil, and "unknown" if it failed
//	LATE owner         OK; the lease was over before the worker left, which is nobody's fault
//	NOTE text          OK; the texts are counted
type room struct {
	judge *judge.Judge
	begin chan struct{} // closed when all workers are there
	over  chan struct{} // closed when the run is over

	mu      sync.Mutex
	workers int
	conns   map[net.Conn]bool
	inside  *visit
	entered map[string]int // by kind
	turns   int            // visits that followed one of another kind
	last    string         // kind of the last visit
	late    int
	tokens  []int64
	free    time.Time // when the last visitor left
	longest time.Duration
	killed  time.Time // the last kill, until somebody enters
	after   []time.Duration
}

// visit is the time of one owner inside.
type visit struct {
	kind, owner string
	since, end  time.Time // end is that of the lease
}

// slack is how much earlier than the room believes a lease may be over, because the worker's word was under way.
const slack = time.Second

// newRoom returns a room without workers.
func newRoom(tell func(string, ...any)) *room {
	return &room{judge: judge.New(tell), begin: make(chan struct{}), over: make(chan struct{}), conns: map[net.Conn]bool{}, entered: map[string]int{}}
}

// enter judges a worker that goes in.
func (r *room) enter(kind, owner string, left time.Duration, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if in := r.inside; in == nil {
		if !r.free.IsZero() {
			r.longest = max(r.longest, now.Sub(r.free))
		}
	} else if now.Before(in.end.Add(-slack)) {
		r.judge.Fault(judge.TwoHolders, "%s %s came in, and %s %s had been inside for %v, with %v of its lease left",
			kind, owner, in.kind, in.owner, now.Sub(in.since), in.end.Sub(now))
	} else {
		r.late++
	}
	if !r.killed.IsZero() {
		r.after, r.killed = append(r.after, now.Sub(r.killed)), time.Time{}
	}
	if r.last != kind && r.last != "" {
		r.turns++
	}
	r.last = kind
	r.entered[kind]++
	r.inside = &visit{kind, owner, now, now.Add(left)}
}

// leave judges a worker that goes out, and its token.
func (r *room) leave(kind, owner, token string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if in := r.inside; in == nil || in.owner != owner {
		return // another one came in too early, or this one's lease was over: enter has judged that
	}
	r.inside, r.free = nil, now
	n, err := strconv.ParseInt(token, 10, 64)
	switch {
	case token == "unknown":
		r.judge.Count("tokens unknown, their node killed", 1)
	case token == "none":
		r.judge.Fault(judge.LockLost, "%s %s was inside, and LOCK.TOKEN found no lock of that owner", kind, owner)
	case err != nil:
		r.judge.Fault(judge.ClientError, "%s %s: token %q", kind, owner, token)
	case len(r.tokens) > 0 && n <= r.tokens[len(r.tokens)-1]:
		r.judge.Fault(judge.WrongToken, "%s %s: token %d after %d", kind, owner, n, r.tokens[len(r.tokens)-1])
	default:
		r.tokens = append(r.tokens, n)
	}
}

// overstayed takes out a worker whose lease was over before it left.
func (r *room) overstayed(owner string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if in := r.inside; in != nil && in.owner == owner {
		r.late++
		r.inside, r.free = nil, now
	}
}

// kill records that the leader has been killed now.
func (r *room) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killed = time.Now()
}

// visits returns how often each kind has been inside.
func (r *room) visits() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.entered)
}

// present returns how many workers there are.
func (r *room) present() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.workers
}

// stop ends each worker when it asks for its next turn.
func (r *room) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped() {
		close(r.over)
	}
}

func (r *room) stopped() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// open lets workers connect until the test ends, and returns the address.
func (r *room) open(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return // the listener is closed
			}
			r.mu.Lock()
			r.conns[conn] = true
			r.mu.Unlock()
			all.Go(func() { r.serve(conn) })
		}
	})
	t.Cleanup(func() {
		r.stop()
		ln.Close()
		r.mu.Lock()
		for conn := range r.conns {
			conn.Close()
		}
		r.mu.Unlock()
		all.Wait()
	})
	return ln.Addr().String()
}

// serve answers one worker.
func (r *room) serve(conn net.Conn) {
	defer conn.Close()
	kind, lines := "a worker without a name", bufio.NewReader(conn)
	for {
		line, err := lines.ReadString('\n')
		answer := ""
		if err == nil {
			answer, err = r.answer(&kind, strings.TrimSuffix(line, "\n"))
		}
		if err == nil {
			_, err = io.WriteString(conn, answer+"\n")
		}
		if err != nil {
			if !r.stopped() {
				r.judge.Fault(judge.ClientError, "%s has left: %v", kind, err)
			}
			return
		}
	}
}

// answer returns the answer to a line.
func (r *room) answer(kind *string, line string) (string, error) {
	now := time.Now()
	word, rest, _ := strings.Cut(line, " ")
	owner, value, _ := strings.Cut(rest, " ")
	switch word {
	case "HELLO":
		*kind = rest
		r.mu.Lock()
		r.workers++
		r.mu.Unlock()
	case "NEXT":
		select {
		case <-r.begin:
		case <-r.over:
		}
		if r.stopped() {
			return "STOP", nil
		}
		return "GO", nil
	case "ENTER":
		left, err := strconv.Atoi(value)
		if err != nil {
			return "", err
		}
		r.enter(*kind, owner, time.Duration(left)*time.Millisecond, now)
	case "LEAVE":
		r.leave(*kind, owner, value, now)
	case "LATE":
		r.overstayed(owner, now)
	case "NOTE":
		r.judge.Count(*kind+": "+rest, 1)
	default:
		return "", errors.New("not understood: " + line)
	}
	return "OK", nil
}

// report returns what happened, as text for people, and whether anything was wrong.
func (r *room) report(kills int, took time.Duration) (text string, wrong bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d workers, %d kills of the leader, %.0f s; workers inside:\n", r.workers, kills, took.Seconds())
	for _, kind := range slices.Sorted(maps.Keys(r.entered)) {
		fmt.Fprintf(&b, "  %8d %s\n", r.entered[kind], kind)
	}
	fmt.Fprintf(&b, "  %8d times another kind came next\n", r.turns)
	if n := len(r.tokens); n > 0 {
		fmt.Fprintf(&b, "  %8d tokens, from %d to %d\n", n, r.tokens[0], r.tokens[n-1])
	}
	fmt.Fprintf(&b, "longest time with nobody inside: %v\n", r.longest.Round(time.Millisecond))
	if after := slices.Sorted(slices.Values(r.after)); len(after) > 0 {
		fmt.Fprintf(&b, "from a kill to the next one inside: median %v, longest %v\n",
			after[len(after)/2].Round(time.Millisecond), after[len(after)-1].Round(time.Millisecond))
	}
	counted := r.judge.Counted()
	for _, what := range slices.Sorted(maps.Keys(counted)) {
		fmt.Fprintf(&b, "  %8d %s\n", counted[what], what)
	}
	fmt.Fprintf(&b, "  %8d workers inside when their leases were over\n", r.late)
	found, _ := r.judge.Found()
	for _, f := range []judge.Fault{judge.TwoHolders, judge.LockLost, judge.WrongToken, judge.ClientError} {
		fmt.Fprintf(&b, "  %8d %s\n", found[f], f)
	}
	return b.String(), len(found) > 0
}

package cluster

import (
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clock"
	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

const ms = time.Millisecond

// bubble runs a test in virtual time. The pool of waiters holds channels,
// which must not leave the bubble they were made in.
func bubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		waiters = sync.Pool{New: waiters.New}
		t.Cleanup(func() {
			synctest.Wait() // goroutines that the end of a node has woken still put their waiters back
			waiters = sync.Pool{New: waiters.New}
		})
		fn(t)
	})
}

// nodeOf returns a node without a log.
func nodeOf(cfg Config) *Node {
	n, err := newNode(cfg)
	if err != nil {
		panic(err)
	}
	n.cons = noLog{diskless{n.fsm}}
	return n
}

// noLog is the consensus of a node that only forwards.
type noLog struct{ diskless }

func (noLog) Propose([]byte) (raftfsm.Outcome, error) { return raftfsm.Outcome{}, errNotExecuted }
func (noLog) Verify() error                           { return errNotExecuted }
func (noLog) Barrier() error                          { return errNotExecuted }
func (noLog) LastContact() (time.Duration, bool)      { return 0, false }
func (noLog) Members() ([]raftnode.Member, error)     { return nil, nil }
func (noLog) Facts() raftnode.Facts                   { return raftnode.Facts{} }
func (noLog) Transfer(string) error                   { return ErrNoSuchMember }
func (noLog) Snapshot() error                         { return nil }
func (noLog) Close() error                            { return nil }

// verdict is what an adversarial log does with a proposal.
type verdict int

const (
	commit         verdict = iota
	commitSlowly           // after fakeLog.delay
	returnSlowly           // committed, but the proposer learns it after fakeLog.delay
	refuse                 // errNotExecuted
	applyLater             // errUnknown; takes effect before the next barrier
	supersedeLater         // errUnknown; another leader's entry takes its place
	overtake               // another leader's entry comes first
	forget                 // errUnknown, and nothing is ever heard of it
)

// fakeLog is a consensus that a test controls.
type fakeLog struct {
	diskless
	after func(raftfsm.Outcome)
	src   TimeSource

	mu        sync.Mutex
	delay     time.Duration
	decide    func(raftfsm.Entry) verdict // nil: commit
	verify    func() error                // nil: still the leader
	barrier   func() error                // nil: succeeds after the entries in limbo are settled
	contact   time.Time                   // zero: right now
	deposed   bool
	overdue   string
	index     uint64
	term      uint64
	limbo     []limboEntry
	foreign   uint64 // number of entries by other leaders
	stamp     int64  // the least stamp of these entries
	proposals []raftfsm.Entry
	verified  int
	copies    []*Node // apply the same entries
}

type limboEntry struct {
	data  []byte
	apply bool
}

var _ consensus = (*fakeLog)(nil)

func (l *fakeLog) Propose(data []byte) (raftfsm.Outcome, error) {
	e, err := raftfsm.DecodeEntry(data)
	if err != nil {
		return raftfsm.Outcome{}, err
	}
	l.mu.Lock()
	v, delay, decide := commit, l.delay, l.decide
	deposed := l.deposed
	l.mu.Unlock()
	if deposed {
		v = refuse
	} else if decide != nil {
		v = decide(e)
	}
	if v == commitSlowly {
		time.Sleep(delay)
	}
	if v == returnSlowly {
		defer time.Sleep(delay)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proposals = append(l.proposals, e)
	switch v {
	case refuse:
		return raftfsm.Outcome{}, errNotExecuted
	case applyLater, supersedeLater:
		l.limbo = append(l.limbo, limboEntry{data, v == applyLater})
		return raftfsm.Outcome{}, errUnknown
	case forget:
		return raftfsm.Outcome{}, errUnknown
	case overtake:
		l.otherLeader()
	}
	return l.apply(data), nil
}

// apply puts an entry into the log; the caller holds mu.
func (l *fakeLog) apply(data []byte) raftfsm.Outcome {
	l.index++
	out, err := l.fsm.Apply(l.index, data)
	if err != nil {
		panic(err)
	}
	out.Term = l.term
	l.after(out)
	for _, n := range l.copies {
		if _, err := n.fsm.Apply(l.index, data); err != nil {
			panic(err)
		}
		n.applied(out)
	}
	return out
}

// otherLeader adds an entry of another leader; the caller holds mu.
func (l *fakeLog) otherLeader(writes ...func(*store.Txn)) {
	var e raftfsm.Entry
	l.foreign++
	l.fsm.View(func(s *store.Store, seq uint64) {
		lease := max(l.stamp, 1) // the state's clock never runs back, so any stamp will do
		txn := s.Begin(store.Time{Lease: lease}, seq+1, store.Env{})
		for _, w := range writes {
			w(txn)
		}
		e = raftfsm.Entry{Prev: seq, Lease: lease, Proposer: 99, Batch: l.foreign, Writes: slices.Clone(txn.Writes().Bytes())}
	})
	l.apply(e.Append(nil))
}

// settle decides what becomes of the entries in limbo; the caller holds mu.
func (l *fakeLog) settle() {
	limbo := l.limbo
	l.limbo = nil
	for _, e := range limbo {
		if !e.apply {
			l.otherLeader()
		}
		// A superseded entry may still be in the log, behind that of the other leader.
		l.apply(e.data)
	}
}

func (l *fakeLog) Barrier() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deposed {
		return errDeposed
	}
	if l.barrier != nil {
		if err := l.barrier(); err != nil {
			return err
		}
	}
	l.settle()
	return nil
}

func (l *fakeLog) Verify() error {
	l.mu.Lock()
	l.verified++
	deposed, verify := l.deposed, l.verify
	l.mu.Unlock()
	// The hook runs without mu, because it may sleep: a goroutine that waits for a mutex would stop the bubble's time.
	if deposed {
		return errDeposed
	}
	if verify != nil {
		return verify()
	}
	return nil
}

// set changes what the log does.
func (l *fakeLog) set(fn func(l *fakeLog)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn(l)
}

// decides sets what becomes of proposals; delay is that of commitSlowly and returnSlowly.
func (l *fakeLog) decides(delay time.Duration, fn func(raftfsm.Entry) verdict) {
	l.set(func(l *fakeLog) { l.delay, l.decide = delay, fn })
}

func (l *fakeLog) Transfer(string) error { return nil }
func (l *fakeLog) Members() ([]raftnode.Member, error) {
	return []raftnode.Member{{ID: "n1", Voter: true}, {ID: "n2", Voter: true}}, nil
}
func (l *fakeLog) Snapshot() error { return nil }
func (l *fakeLog) Close() error    { return nil }

func (l *fakeLog) Overdue() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.overdue
}

func (l *fakeLog) LastContact() (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.contact.IsZero() {
		return l.src.Monotonic(), true
	}
	return clock.ForRaft{Source: l.src}.At(l.contact), true
}

func (l *fakeLog) Facts() raftnode.Facts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return raftnode.Facts{Term: l.term}
}

func (l *fakeLog) count() (proposals, verified int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.proposals), l.verified
}

// testNode is a node over a fakeLog, whose leadership the test decides.
type testNode struct {
	*Node
	t     testing.TB
	log   *fakeLog
	leads chan raftnode.Leadership
	table *store.Table
}

// newTestNode returns a node that does not lead yet. commands are added to
// those of the store.
func newTestNode(t testing.TB, commands ...store.Command) *testNode {
	return newTestNodeOn(t, clustertest.NewClock(), commands...)
}

// newTestNodeOn is newTestNode for a node with another clock.
func newTestNodeOn(t testing.TB, src TimeSource, commands ...store.Command) *testNode {
	cfg := Default()
	cfg.Time, cfg.Logger = src, slog.New(slog.DiscardHandler)
	cfg.Table = store.NewTable(store.Commands(), commands)
	cfg.Fatal = func(err error) { t.Error(err) }
	n := nodeOf(cfg)
	log := &fakeLog{diskless: diskless{n.fsm}, after: n.applied, src: cfg.Time, term: 1}
	n.cons = log
	close(n.opened)
	tn := &testNode{Node: n, t: t, log: log, leads: make(chan raftnode.Leadership), table: cfg.Table}
	n.work.Add(1)
	go n.watch(tn.leads)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return tn
}

// newEphemeralNode is a node without a log.
func newEphemeralNode(t testing.TB, commands ...store.Command) *testNode {
	cfg := Default()
	cfg.Ephemeral, cfg.Time, cfg.Logger = true, clustertest.NewClock(), slog.New(slog.DiscardHandler)
	cfg.Table = store.NewTable(store.Commands(), commands)
	n, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return &testNode{Node: n, t: t, table: cfg.Table}
}

// lead makes the node the leader and waits until it serves.
func (n *testNode) lead() {
	n.t.Helper()
	n.elect()
	synctest.Wait()
	if n.routes.get().seq == nil {
		n.t.Fatal("the node does not lead")
	}
}

func (n *testNode) elect() {
	n.log.set(func(l *fakeLog) { l.term, l.deposed = l.term+1, false })
	n.leads <- raftnode.Leadership{ID: n.cfg.ID, Self: true}
}

// depose takes leadership away.
func (n *testNode) depose() {
	n.log.set(func(l *fakeLog) { l.term, l.deposed = l.term+1, true })
	n.leads <- raftnode.Leadership{}
}

// call makes the calls of a pipeline, one command a line.
func (n *testNode) call(lines ...string) []Call {
	n.t.Helper()
	var calls []Call
	for _, line := range lines {
		var args [][]byte
		for _, word := range strings.Fields(line) {
			args = append(args, []byte(word))
		}
		cmd, ok := n.table.Resolve(args)
		if !ok {
			n.t.Fatalf("no command %q", line)
		}
		calls = append(calls, Call{Cmd: cmd, Args: args, RESP: 2})
	}
	return calls
}

// do submits a pipeline and returns the replies as text.
func (n *testNode) do(lines ...string) string {
	n.t.Helper()
	return n.doOn(n.Node, lines...)
}

// doOn is do through another node.
func (n *testNode) doOn(node *Node, lines ...string) string {
	n.t.Helper()
	return text(node.Submit(n.call(lines...), nil))
}

// start submits a pipeline from another goroutine.
func (n *testNode) start(lines ...string) <-chan string {
	calls, done := n.call(lines...), make(chan string, 1)
	go func() { done <- text(n.Submit(calls, nil)) }()
	return done
}

// startForwarded submits a pipeline as a peer would.
func (n *testNode) startForwarded(lines ...string) <-chan string {
	done := make(chan string, 1)
	n.routes.get().seq.submit(&request{calls: n.call(lines...), finish: func(r *request) { done <- text(r.replies) }})
	return done
}

// text shows replies as a client would print them.
func text(replies []store.Reply) string {
	var words []string
	for _, r := range replies {
		switch r.Kind {
		case store.Null:
			words = append(words, "nil")
		case store.Integer:
			words = append(words, strconv.FormatInt(r.Int, 10))
		case store.Failure:
			code, _, _ := strings.Cut(r.Str, " ")
			words = append(words, "-"+code)
		case store.Array, store.Map:
			words = append(words, "["+text(r.Elems)+"]")
		default:
			words = append(words, r.Str)
		}
	}
	return strings.Join(words, " ")
}

func (n *testNode) expect(want string, lines ...string) {
	n.t.Helper()
	if got := n.do(lines...); got != want {
		n.t.Errorf("%s: got %q, want %q", strings.Join(lines, "; "), got, want)
	}
}

var errDeposed = errors.New("not the leader")

package cluster

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// txn makes the call of an EXEC.
func (n *testNode) txn(watched []Watched, lines ...string) []Call {
	n.t.Helper()
	return []Call{{Cmd: call.Exec, RESP: 2, Txn: &Transaction{Watched: watched, Calls: n.call(lines...)}}}
}

// watchCall makes the call of a WATCH.
func watchCall(keys ...string) []Call {
	t := &Transaction{Observe: true}
	for _, k := range keys {
		t.Watched = append(t.Watched, Watched{Key: []byte(k)})
	}
	return []Call{{Cmd: call.Exec, Txn: t}}
}

// seen returns what a WATCH has learned: its keys with their versions.
func seen(t testing.TB, calls []Call, replies []store.Reply) []Watched {
	t.Helper()
	list := calls[0].Txn.Watched
	if len(replies) != 1 || replies[0].Kind != store.Array || len(replies[0].Elems) != len(list) {
		t.Errorf("WATCH: %q", text(replies))
		return list
	}
	for i := range list {
		list[i].Version = uint64(replies[0].Elems[i].Int)
	}
	return list
}

func watch(t testing.TB, n *Node, keys ...string) []Watched {
	t.Helper()
	calls := watchCall(keys...)
	return seen(t, calls, n.Submit(calls, nil))
}

func (n *testNode) expectTxn(want string, watched []Watched, lines ...string) {
	n.t.Helper()
	if got := execText(n.Submit(n.txn(watched, lines...), nil)); got != want {
		n.t.Errorf("EXEC of %q: got %q, want %q", lines, got, want)
	}
}

// execText does what the function text does. But for a transaction that did not take place it returns the word "changed".
func execText(replies []store.Reply) string {
	if len(replies) == 1 && replies[0].Kind == store.NullArray {
		return "changed"
	}
	return text(replies)
}

func TestTransactionIsOneEntry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.expectTxn("[OK 1 2 -ERR nil x]", nil, "SET k x", "INCR n", "INCR n", "INCR k", "BLMOVE none k left left 0", "GET k")
		if proposals, _ := n.log.count(); proposals != 2 {
			t.Errorf("%d proposals, want 2: the term's first and the transaction", proposals)
		}
		n.expectTxn("[x 2]", nil, "GET k", "GET n")
		n.expectTxn("[]", nil)
		if proposals, verified := n.log.count(); proposals != 2 || verified != 2 {
			t.Errorf("%d proposals, %d checks after two transactions that wrote nothing", proposals, verified)
		}
	})
}

func TestWatchedKeys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.do("SET k x", "SET e x PX 50", "SET dead x PX 1")
		w := watch(t, n.Node, "k", "none")
		n.expectTxn("[x]", w, "GET k")
		n.expectTxn("[OK]", w, "SET k y")
		n.expectTxn("changed", w, "GET k")
		n.expectTxn("[OK]", watch(t, n.Node, "none"), "SET none x")
		n.expectTxn("changed", w[1:], "GET k")
		w = watch(t, n.Node, "e")
		synctest.Wait()
		n.log.decides(100*ms, once(commitSlowly))
		n.do("SET blocker x")
		n.expectTxn("changed", w, "GET k")
		n.expectTxn("[y]", watch(t, n.Node, "dead"), "GET k")
	})
}

// A WATCH must not see a version from its own batch: a later write of that batch would leave the key with the same version.
func TestWatchBetweenWritesOfOneBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.log.decides(10*ms, once(commitSlowly))
		blocker := n.start("SET blocker x")
		synctest.Wait()
		before := n.start("SET k a", "SWAPDB 3 4")
		synctest.Wait()
		calls := watchCall("k")
		watching := make(chan []store.Reply, 1)
		go func() { watching <- n.Submit(calls, nil) }()
		synctest.Wait()
		after := n.start("SET k b")
		synctest.Wait()
		<-blocker
		w := seen(t, calls, <-watching)
		<-before
		<-after
		if got := w[0].Version; got == 0 || got == call.NeverWatched {
			t.Errorf("version %d", got)
		}
		// The write that follows the WATCH may have been in the batch of the WATCH, or in the next one.
		n.expectTxn("changed", w, "GET k")
		n.expect("b", "GET k")
		n.expectTxn("[b]", watch(t, n.Node, "k"), "GET k")
	})
}

// If the same request wrote the key before the WATCH, the WATCH cannot wait for
// another batch, and EXEC fails.
func TestWatchBehindAWriteInOneRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		calls := watchCall("k", "other")
		replies := n.Submit(append(n.call("SET k a"), calls...), nil)
		w := seen(t, calls, replies[1:])
		n.expectTxn("changed", w, "GET k")
		n.expectTxn("[a]", w[1:], "GET k")
	})
}

// The leader takes the excess of a late lease back in the batch before a WATCH. So EXEC sees no change.
func TestWatchOfALeaseThatWasLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		writes := 0
		n.log.decides(0, func(raftfsm.Entry) verdict {
			if writes++; writes <= 2 {
				time.Sleep(300 * ms)
			}
			return commit
		})
		n.expect("OK", "SET lock mine NX PX 30000")
		proposals, _ := n.log.count()
		w := watch(t, n.Node, "lock")
		if after, _ := n.log.count(); after != proposals+1 {
			t.Errorf("%d entries at the WATCH, want one that takes back a part of the lease", after-proposals)
		}
		n.expectTxn("[mine 1]", w, "GET lock", "DEL lock")
	})
}

// If one command of a transaction is refused for its size, or panics, the whole transaction is discarded.
func TestTransactionRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t, append(badCommands, scriptCommand)...)
		n.lead()
		for want, lines := range map[string][]string{
			string(store.ErrExecAbort(store.ErrEntryTooBig(store.DefaultMaxEntry))): {"INCR counter", "FILL a 5", "FILL b 5"},
			string(store.ErrExecAbort(ErrInternal)):                                 {"INCR counter", "PANIC"},
		} {
			if got := n.Submit(n.txn(nil, lines...), nil); len(got) != 1 || got[0].Str != want {
				t.Errorf("%q: got %v, want %s", lines, got, want)
			}
		}
		n.expect("nil", "GET counter")
	})
}

// A script in a transaction keeps others waiting as any script does.
func TestScriptInATransaction(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t, scriptCommand)
		n.lead()
		done := make(chan string, 1)
		go func() {
			done <- text(n.Submit(n.txn(nil, "INCR counter", "SCRIPT 8", "SCRIPT 8", "INCR counter"), nil))
		}()
		synctest.Wait()
		other := n.start("INCR counter")
		if got := <-other; got != "-BUSY" {
			t.Errorf("beside it: %q", got)
		}
		if got := n.Submit(n.txn(nil, "INCR counter"), nil); got[0].Str != string(store.ErrExecAbort(store.ErrBusyScript)) {
			t.Errorf("another transaction: %v", got)
		}
		if got := <-done; got != "[1 OK OK 2]" {
			t.Errorf("the transaction: %q", got)
		}
		n.expect("3", "INCR counter")
	})
}

// The node does not run a transaction again if the transaction writes and its outcome is unknown.
// It runs a read-only transaction again, and also WATCH.
func TestTransactionOfUnknownFate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.log.decides(0, always(forget))
		n.log.set(func(l *fakeLog) { l.barrier = func() error { return errDeposed } })
		if got := n.Submit(n.txn(nil, "GET counter", "INCR counter"), nil); got[0].Str != string(ErrIndeterminate) {
			t.Errorf("with a write: %v", got)
		}
		for _, calls := range [][]Call{n.txn(nil, "GET counter", "EXISTS k"), watchCall("k")} {
			if got := n.Submit(calls, nil); got[0].Str != string(ErrClusterDown) {
				t.Errorf("without a write: %v", got)
			}
		}
	})
}

func sampleTransactions(t testing.TB) []Call {
	return []Call{
		{Cmd: call.Exec, DB: 3, RESP: 3, Txn: &Transaction{Watched: []Watched{{DB: 15, Key: []byte("k"), Version: 1<<64 - 1}, {Key: []byte{}}}, Calls: sampleCalls(t)}},
		{Cmd: call.Exec, Txn: &Transaction{Watched: []Watched{{DB: 1, Key: []byte("k")}}, Observe: true}},
		{Cmd: call.Exec, Txn: &Transaction{}},
	}
}

func TestTransactionsOnTheWire(t *testing.T) {
	want := append(sampleCalls(t), sampleTransactions(t)...)
	whole := call.Append(nil, want, forward.Minor)
	got, err := call.Read(whole, wireTable)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for n := range whole {
		if calls, err := call.Read(whole[:n], wireTable); err == nil {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(whole), calls)
		}
	}
	inner := sampleTransactions(t)[2]
	for name, c := range map[string]Call{
		"a transaction inside": {Txn: &Transaction{Calls: []Call{inner}}},
		"database 16":          {Txn: &Transaction{Watched: []Watched{{DB: 16}}}},
		"WATCH with commands":  {Txn: &Transaction{Observe: true, Calls: sampleCalls(t)}},
	} {
		if calls, err := call.Read(call.Append(nil, []Call{c}, forward.Minor), wireTable); !errors.Is(err, frame.ErrMalformed) {
			t.Errorf("%s: %v, %v", name, calls, err)
		}
	}
	deep := append([]byte{1}, bytes.Repeat([]byte{0, 0, 0, 0, 0, 0, 1}, 2_000_000)...)
	if _, _, err := call.ReadFirst(deep, wireTable); !errors.Is(err, frame.ErrMalformed) {
		t.Errorf("two million transactions, one inside the other: %v", err)
	}
	unknown := Call{Txn: &Transaction{Calls: []Call{{Args: [][]byte{[]byte("XYZ")}}}}}
	if calls, err := call.Read(call.Append(nil, []Call{unknown}, forward.Minor), wireTable); err != nil || unknownIn(calls) != "XYZ" {
		t.Errorf("an unknown command inside: %v", err)
	}
}

// TestRightsToTransactions: a user who has lost the right to EXEC, WATCH or a watched key is refused on every node.
func TestRightsToTransactions(t *testing.T) {
	restrict := store.Command{Name: "restrict", Arity: -2, Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
		u, wrong := store.NewUser(c.Cmd.Table(), "u", true).WithRules([]string{"on", "nopass", "+@all", "~*", c.Arg(1)}, true)
		if wrong != "" {
			return store.Err(wrong)
		}
		if len(c.Args) > 2 {
			u, _ = u.WithRules([]string{"resetkeys", c.Arg(2)}, true)
		}
		c.Txn.SetUser(u)
		return store.OK
	}}
	exec := store.Command{Name: "exec", Arity: 1}
	watchRow := store.Command{Name: "watch", Arity: -2, Keys: []store.KeySpec{{Begin: 1, Last: -1, Step: 1, Flags: store.KeyRO}}}
	bubble(t, func(t *testing.T) {
		p := newPair(t, makeUser, restrict, exec, watchRow)
		for _, node := range []*Node{p.Node, p.b} {
			said := func(calls []Call) string {
				calls[0].User = "u"
				for i := range calls[0].Txn.Calls {
					calls[0].Txn.Calls[i].User = "u"
				}
				r := node.Submit(calls, nil)
				if len(r) == 1 && r[0].Kind == store.Noted {
					r[0] = r[0].Elems[0]
				}
				if r[0].IsError() {
					return r[0].Str
				}
				return text(r)
			}
			p.expect("OK", "MAKEUSER u")
			if got := said(p.txn(nil, "INCR n")); !strings.HasPrefix(got, "[") {
				t.Errorf("EXEC: %s", got)
			}
			p.expect("OK", "RESTRICT -exec")
			if got, want := said(p.txn(nil, "INCR n")), string(store.ErrExecAbort(store.ErrNoPermCommand("exec"))); got != want {
				t.Errorf("EXEC without the right is told %s, want %s", got, want)
			}
			if got := said(watchCall("k")); !strings.HasPrefix(got, "[") {
				t.Errorf("WATCH: %s", got)
			}
			p.expect("OK", "RESTRICT -watch")
			if got, want := said(watchCall("k")), string(store.ErrNoPermCommand("watch")); got != want {
				t.Errorf("WATCH without the right is told %s, want %s", got, want)
			}
			p.expect("OK", "RESTRICT on ~other")
			if got, want := said(watchCall("k")), string(store.ErrNoPermKey); got != want {
				t.Errorf("WATCH of another's key is told %s, want %s", got, want)
			}
		}
	})
}

// TestWatchOfALockThatCameAndExpired: a lock that came and expired between WATCH and EXEC is a change, as in Redis.
func TestWatchOfALockThatCameAndExpired(t *testing.T) {
	for name, others := range map[string]func(n *testNode){
		"deleted":   func(n *testNode) { n.expect("OK 1", "SET lock you NX PX 50", "DEL lock") },
		"expired":   func(n *testNode) { n.expect("OK", "SET lock you NX PX 50"); time.Sleep(200 * ms) },
		"persisted": func(n *testNode) { n.expect("OK", "SET lock you NX") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newTestNode(t)
				n.lead()
				watch := watchCall("lock")
				w := seen(t, watch, n.Submit(watch, nil))
				others(n)
				n.expectTxn("changed", w, "SET lock me NX PX 1000")
			})
		})
	}
}

func unknownIn(calls []Call) string {
	name, _ := calls[0].UnknownName()
	return string(name)
}

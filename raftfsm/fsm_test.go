package raftfsm

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// Of the entries evaluated on one state, the first in the log takes effect. The others never do, wherever they are in the log.
func TestCompareAndAppend(t *testing.T) {
	f := New(nil)
	first, second := propose(f, 10, set("lock", "A", 0)), propose(f, 11, set("lock", "B", 0))
	if out := apply(t, f, 1, first); !out.Accepted || out.Prev != 0 || out.Sequence != 1 || out.Lease != 10 || out.Proposer != 7 || out.Batch != 1 {
		t.Errorf("first: %+v", out)
	}
	if out := apply(t, f, 2, second); out.Accepted || out.Prev != 0 || out.Sequence != 1 || out.Lease != 10 {
		t.Errorf("second: %+v", out)
	}
	if out := apply(t, f, 3, first); out.Accepted {
		t.Errorf("the first entry again: %+v", out)
	}
	stale := propose(f, 20, set("lock", "C", 0))
	apply(t, f, 4, propose(f, 21, set("other", "x", 0)))
	if out := apply(t, f, 5, stale); out.Accepted || out.Sequence != 2 {
		t.Errorf("stale: %+v", out)
	}
	future := (&Entry{Prev: 9}).Append(nil)
	if out := apply(t, f, 6, future); out.Accepted {
		t.Errorf("an entry on a state that is not there yet: %+v", out)
	}
	if v := value(f, "lock"); v != "A" {
		t.Errorf("the lock belongs to %s, want A", v)
	}
	if i := f.Snapshot().Index(); i != 6 {
		t.Errorf("index %d, want 6: refused entries count", i)
	}
}

// A refused entry leaves no trace: not a byte of the snapshot changes, nothing
// is published.
func TestRefusedEntriesLeaveNoTrace(t *testing.T) {
	var sink messages
	f := New(&sink)
	stale := propose(f, 900, func(t *store.Txn) { sampleWrites(t) })
	apply(t, f, 1, propose(f, 10, set("a", "1", 500)))
	before := encode(t, f)
	apply(t, f, 2, stale)
	if !bytes.Equal(encode(t, f), before) || len(sink) != 0 {
		t.Errorf("a refused entry changed the state or published %q", sink)
	}
}

func TestMessagesGoOutInLogOrder(t *testing.T) {
	var sink messages
	f := New(&sink)
	for i := range 3 {
		out := apply(t, f, uint64(i+1), propose(f, 1, func(t *store.Txn) {
			t.Publish(store.Channel, "c", fmt.Sprint(i, "a"))
			t.Publish(store.Shard, "s", fmt.Sprint(i, "b"))
		}))
		if !out.Messages {
			t.Error("the outcome does not tell of messages")
		}
	}
	for i, write := range []func(*store.Txn){set("lock", "A", 0), func(t *store.Txn) { t.Note("node", "of no client") }} {
		if out := apply(t, f, uint64(i+4), propose(f, 1, write)); out.Messages {
			t.Error("the outcome tells of messages where there are none")
		}
	}
	sink = slices.DeleteFunc(sink, func(s string) bool { return strings.Contains(s, "of no client") })
	if want := (messages{"0 c 0a", "1 s 0b", "0 c 1a", "1 s 1b", "0 c 2a", "1 s 2b"}); !slices.Equal(sink, want) {
		t.Errorf("got %q, want %q", sink, want)
	}
}

// Entries from before the start of the process change the state, but their
// messages are not sent a second time.
func TestReplayIsSilent(t *testing.T) {
	var sink messages
	f := New(&sink)
	f.Replay(2)
	for i := range 3 {
		apply(t, f, uint64(i+1), propose(f, 1, func(t *store.Txn) {
			t.SetString(0, []byte("k"), fmt.Sprint(i), 0)
			t.Publish(store.Channel, "c", fmt.Sprint(i))
		}))
	}
	if want := (messages{"0 c 2"}); !slices.Equal(sink, want) || value(f, "k") != "2" {
		t.Errorf("published %q, want %q; k=%s", sink, want, value(f, "k"))
	}
}

// The lease clock never runs back, whatever proposers stamp, and a refused
// entry does not move it.
func TestLeaseNeverRunsBack(t *testing.T) {
	f := New(nil)
	r := rand.New(rand.NewPCG(3, 4))
	high := int64(0)
	for i := range uint64(500) {
		e := Entry{Prev: uint64(r.IntN(2)), Lease: r.Int64N(1 << 40), Wall: int64(i)}
		if i%3 == 0 {
			e.Prev, _ = f.Position()
		}
		if i == 400 {
			e.Lease = -5
		}
		seq, _ := f.Position()
		if e.Prev == seq {
			high = max(high, e.Lease)
		}
		out := apply(t, f, i+1, e.Append(nil))
		if _, lease := f.Position(); lease != high || out.Lease != high {
			t.Fatalf("entry %d: lease %d (outcome %d), want %d", i, lease, out.Lease, high)
		}
	}
	g := restored(t, encode(t, f))
	if _, lease := g.Position(); lease != high {
		t.Errorf("lease %d after a restore, want %d", lease, high)
	}
}

// Nodes that apply one log have the same bytes of state at the same entry, wherever they took snapshots or were restored.
func TestSchedulesDoNotMatter(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { testSchedules(t, seed) })
	}
}

func testSchedules(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	leader := New(nil)
	nodes := []*FSM{New(nil), New(nil), New(nil)}
	var stale []byte
	lease := int64(1)
	for i := range uint64(400) {
		lease += r.Int64N(40)
		data := propose(leader, lease, randomWrite(r, lease))
		if stale != nil && r.IntN(5) == 0 {
			data, stale = stale, data
		} else if r.IntN(5) == 0 {
			stale = data
		}
		want := apply(t, leader, i+1, data)
		for n := range nodes {
			if got := apply(t, nodes[n], i+1, data); got != want {
				t.Fatalf("entry %d: node %d says %+v, the leader %+v", i, n, got, want)
			}
		}
		nodes[1].Snapshot() // a snapshot that is taken and not written: it makes later writes copy data
		if r.IntN(10) == 0 {
			nodes[2] = restored(t, encode(t, nodes[2]))
		}
		if i%20 == 0 || i > 390 {
			sameHash(t, leader, nodes)
		}
	}
}

func sameHash(t *testing.T, leader *FSM, nodes []*FSM) {
	t.Helper()
	want, err := leader.Snapshot().Hash()
	if err != nil {
		t.Fatal(err)
	}
	for n, f := range nodes {
		if got, err := f.Snapshot().Hash(); err != nil || got != want {
			t.Fatalf("node %d: hash %s, %v; the leader has %s", n, got, err, want)
		}
	}
}

// A snapshot does not change while entries are applied, and its writer has no data race (run with -race).
func TestSnapshotIsFrozen(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	f := New(nil)
	lease := int64(1)
	step := func(i uint64) {
		lease += r.Int64N(10)
		apply(t, f, i, propose(f, lease, randomWrite(r, lease)))
	}
	for i := range uint64(300) {
		step(i + 1)
	}
	snap, before := f.Snapshot(), encode(t, f)
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for range 20 {
			var buf bytes.Buffer
			if err := snap.Encode(&buf); err != nil || !bytes.Equal(buf.Bytes(), before) {
				t.Errorf("the snapshot has changed under its reader: %v", err)
				return
			}
		}
	}()
	for i := range uint64(300) {
		step(301 + i)
	}
	wg.Wait()
	if bytes.Equal(encode(t, f), before) {
		t.Error("the test wrote nothing")
	}
	if snap.Sequence() != 300 || snap.Index() != 300 {
		t.Errorf("sequence %d, index %d", snap.Sequence(), snap.Index())
	}
}

// Restore works whatever the size of the pieces in which the source returns the bytes.
func TestRestoreFromSmallPieces(t *testing.T) {
	f := New(nil)
	apply(t, f, 1, propose(f, 1000, sampleWrites))
	g := New(nil)
	if err := g.Restore(onePiece{bytes.NewReader(encode(t, f))}, f.Index()); err != nil {
		t.Fatal(err)
	}
	sameHash(t, f, []*FSM{g})
	if g.Index() != 1 {
		t.Errorf("the state belongs to entry %d", g.Index())
	}
}

type onePiece struct{ r io.Reader }

func (o onePiece) Read(p []byte) (int, error) { return o.r.Read(p[:min(len(p), 1)]) }

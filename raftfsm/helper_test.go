package raftfsm

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// messages is a sink that notes what is published.
type messages []string

func (m *messages) Publish(kind store.PublishKind, channel, message string) {
	*m = append(*m, fmt.Sprint(kind, " ", channel, " ", message))
}

// propose returns the entry that a leader would propose for fn at the time lease, in ms on the lease clock.
func propose(f *FSM, lease int64, fn func(t *store.Txn)) []byte {
	var data []byte
	f.View(func(s *store.Store, seq uint64) {
		txn := s.Begin(store.Time{Lease: lease, Wall: 1_700_000_000_000_000 + lease*1000}, seq+1, store.Env{})
		fn(txn)
		e := Entry{Prev: seq, Lease: lease, Wall: txn.Now().Wall, Proposer: 7, Batch: seq + 1, Writes: txn.Writes().Bytes(), Version: txn.Writes().Version()}
		data = e.Append(nil)
	})
	return data
}

func set(key, value string, deadline int64) func(*store.Txn) {
	return func(t *store.Txn) { t.SetString(0, []byte(key), value, deadline) }
}

func apply(t testing.TB, f *FSM, index uint64, data []byte) Outcome {
	t.Helper()
	out, err := f.Apply(index, data)
	if err != nil {
		t.Fatalf("entry %d: %v", index, err)
	}
	return out
}

func value(f *FSM, key string) string {
	v := "(none)"
	f.View(func(s *store.Store, seq uint64) {
		if e := s.Begin(store.Time{}, seq, store.Env{}).Lookup(0, []byte(key)); e != nil {
			v = e.Str()
		}
	})
	return v
}

func encode(t testing.TB, f *FSM) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := f.Snapshot().Encode(&buf); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func restored(t testing.TB, snapshot []byte) *FSM {
	t.Helper()
	f := New(nil)
	if err := f.Restore(bytes.NewReader(snapshot), 0); err != nil {
		t.Fatal(err)
	}
	return f
}

// randomWrite returns a function that makes a few random writes in a transaction. They may be of any kind.
func randomWrite(r *rand.Rand, lease int64) func(*store.Txn) {
	return func(t *store.Txn) {
		t.ExpireDue(10, math.MaxInt, math.MaxInt)
		if r.IntN(10) == 0 {
			t.SetConfig(fmt.Sprint("p", r.IntN(3)), fmt.Sprint(r.IntN(5)))
		}
		for range 1 + r.IntN(5) {
			randomOp(r, t, lease)
		}
	}
}

func randomOp(r *rand.Rand, t *store.Txn, lease int64) {
	db, key := r.IntN(3), []byte(fmt.Sprint("k", r.IntN(40)))
	e := t.LookupWrite(db, key)
	switch op := r.IntN(14); {
	case op < 4 || e == nil && op < 8:
		deadline := int64(0)
		if r.IntN(2) == 0 {
			deadline = lease + r.Int64N(500)
		}
		t.SetString(db, key, fmt.Sprint("v", r.IntN(1000)), deadline)
	case op < 8:
		if e.Type() == store.TypeHash {
			e.Fields().Each(func(f store.Field) bool {
				t.HashDelete(db, key, f.Name)
				return false
			})
		} else {
			t.SetDeadline(db, key, lease+r.Int64N(500))
		}
	case op == 8 && e != nil:
		t.Delete(db, key)
	case op == 9 && e != nil:
		t.Move(db, key, r.IntN(3), []byte(fmt.Sprint("k", r.IntN(40))))
	case op == 10:
		sha := fmt.Sprintf("%040d", r.IntN(600))
		t.LoadScript(sha, "return "+sha, r.IntN(4) == 0)
	case op == 11 && r.IntN(20) == 0:
		t.Flush(db)
	case op == 12 && r.IntN(10) == 0:
		t.Swap(db, r.IntN(3))
	case e == nil || e.Type() == store.TypeHash:
		// A value of more than 64 bytes gives the hash its large form; many fields make such a value likely.
		for range 1 + r.IntN(2)*r.IntN(80) {
			t.HashSet(db, key, fmt.Sprint("f", r.IntN(300)), strings.Repeat("x", r.IntN(70)))
		}
	default:
		t.Publish(store.Channel, "c", fmt.Sprint(r.IntN(100)))
	}
}

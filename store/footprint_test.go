package store

import (
	"fmt"
	"runtime"
	"testing"
	"weak"
)

// lockWrites returns the writes of n typical locks: each has a short name, a UUID as its value, and a lease.
func lockWrites(from, n int) []byte {
	s := New()
	txn := s.Begin(Time{Lease: 1000, Wall: 1000_000}, 1, Env{})
	for i := from; i < from+n; i++ {
		txn.SetString(0, fmt.Appendf(nil, "lock:%07d", i), fmt.Sprintf("%036x", i), 3_600_000+int64(i%60_000))
	}
	return append([]byte(nil), txn.Writes().Bytes()...)
}

// live returns how many bytes of the heap are in use.
func live() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestBytesPerLock checks that the memory of a held lock does not grow unnoticed. It measures the heap, not the time.
func TestBytesPerLock(t *testing.T) {
	const locks, limit = 200_000, 184
	s := New()
	before := live()
	for i := 0; i < locks; i += 100 {
		if err := s.Apply(lockWrites(i, 100), uint64(i+2), nil); err != nil {
			t.Fatal(err)
		}
	}
	each := float64(live()-before) / locks
	t.Logf("%.0f bytes for each lock", each)
	if each > limit {
		t.Errorf("a lock takes %.0f bytes, want at most %d", each, limit)
	}
	runtime.KeepAlive(s)
}

// When a string replaces a collection, the memory of the collection is freed.
func TestOverwrittenCollectionIsFreed(t *testing.T) {
	d := newTestDB(t)
	d.do("HSET", "k", "f", "v")
	d.do("RPUSH", "l", "x")
	kept := func(key string) weak.Pointer[elements] { return weak.Make(d.s.dbs[0].get(key).elems) }
	hash, list := kept("k"), kept("l")
	d.do("SET", "k", "v")
	if h := hash.Value(); h != nil && h.collection != nil {
		t.Error("a string holds the hash that it was")
	}
	if l := list.Value(); l == nil || l.collection == nil {
		t.Error("a list is gone")
	}
	runtime.KeepAlive(d)
}

// A transaction that has written much gives up the memory for it before the transaction is used again. Otherwise it might keep the
// memory for ever.
func TestTxnKeepsLittle(t *testing.T) {
	s := New()
	txn := s.Begin(Time{Lease: 1000, Wall: 1000_000}, 1, Env{})
	before := live()
	sp := txn.Savepoint()
	value := string(make([]byte, 1000))
	for i := range 50_000 {
		txn.SetString(i%2, fmt.Append(nil, "key", i), value, 0)
	}
	txn.Release(sp)
	txn.Restart(Time{Lease: 2000, Wall: 2000_000}, 1)
	const limit = 128 << 10
	if after := live(); after > before+limit {
		t.Errorf("%d bytes are kept, want %d at most", after-before, limit)
	}
	runtime.KeepAlive(txn)
}

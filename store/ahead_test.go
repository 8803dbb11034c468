package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// largeStore returns a store with n keys in database 0.
func largeStore(tb testing.TB, n int) (*Store, []string) {
	s, names := New(), make([]string, n)
	txn := s.Begin(Time{Lease: 1}, 1, Env{})
	for i := range names {
		names[i] = fmt.Sprint("lock:", i)
		txn.SetString(0, []byte(names[i]), "owner", 0)
	}
	if err := s.Apply(txn.Writes().Bytes(), 1, nil); err != nil {
		tb.Fatal(err)
	}
	return s, names
}

// TestReadAhead: ReadAhead finds the keys of commands in large databases, and accepts any arguments.
func TestReadAhead(t *testing.T) {
	s, names := largeStore(t, 3*aheadSize)
	long := bytes.Repeat([]byte("k"), aheadLength+1)
	set := s.Begin(Time{Lease: 1}, 2, Env{})
	set.SetString(0, long, "owner", 0)
	if err := s.Apply(set.Writes().Bytes(), 2, nil); err != nil {
		t.Fatal(err)
	}
	txn := s.Begin(Time{Lease: 1}, 3, Env{})
	first, script := &Command{Keys: firstKey(KeyRO)}, &Command{Keys: []KeySpec{{NumKeys: 2}}}
	var a Ahead
	for len(names) > 0 {
		some := names[:min(len(names), aheadLimit)]
		for i, name := range some {
			if i%2 == 0 {
				a.Add(first, [][]byte{nil, []byte(name)}, 0)
			} else {
				a.Add(script, [][]byte{nil, nil, []byte("1"), []byte(name)}, 0)
			}
		}
		if found := txn.ReadAhead(&a); found != len(some) {
			t.Fatalf("%d of %d keys found", found, len(some))
		}
		names = names[len(some):]
	}

	there := []byte("lock:7")
	for range 2 * aheadLimit {
		a.Add(first, [][]byte{nil, there}, 0)
	}
	if found := txn.ReadAhead(&a); found != aheadLimit {
		t.Errorf("%d keys found, want as many as there is room for", found)
	}
	for name, add := range map[string]func(){
		"an absent key":         func() { a.Add(first, [][]byte{nil, []byte("lock:x")}, 0) },
		"the empty key":         func() { a.Add(first, [][]byte{nil, {}}, 0) },
		"a small database":      func() { a.Add(first, [][]byte{nil, there}, 1) },
		"no keys":               func() { a.Add(&Command{}, [][]byte{nil, there}, 0) },
		"keys to be looked for": func() { a.Add(&Command{Keys: []KeySpec{{}}}, [][]byte{nil, there}, 0) },
		"too few arguments":     func() { a.Add(script, [][]byte{nil, nil, []byte("1")}, 0) },
		"a long argument":       func() { a.Add(script, [][]byte{nil, nil, []byte("0"), long}, 0) },
		"nothing":               func() {},
	} {
		add()
		if found := txn.ReadAhead(&a); found != 0 {
			t.Errorf("%s: %d keys found", name, found)
		}
	}
	txn.Flush(0)
	a.Add(first, [][]byte{nil, there}, 0)
	if found := txn.ReadAhead(&a); found != 0 {
		t.Errorf("%d keys found in a database that is to be emptied", found)
	}
}

func BenchmarkLookups(b *testing.B) {
	s, names := largeStore(b, 1<<20)
	cmd := &Command{Keys: firstKey(KeyRO)}
	for _, ahead := range []bool{false, true} {
		b.Run(fmt.Sprint("ahead=", ahead), func(b *testing.B) {
			txn := s.Begin(Time{Lease: 1}, 2, Env{})
			var a Ahead
			var keys [aheadLimit][2][]byte
			for b.Loop() {
				for i := range keys {
					keys[i][1] = []byte(names[rand.IntN(len(names))])
				}
				if ahead {
					for i := range keys {
						a.Add(cmd, keys[i][:], 0)
					}
					txn.ReadAhead(&a)
				}
				for i := range keys {
					if txn.Lookup(0, keys[i][1]) == nil {
						b.Fatal("absent")
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/aheadLimit, "ns/key")
		})
	}
}

// TestApplyReadsAhead: reading ahead while write sets are applied gets to the end of the writes, and keeps no
// key of them.
func TestApplyReadsAhead(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	s, names := largeStore(t, 3*aheadSize)
	if !s.anyLarge() || New().anyLarge() {
		t.Fatal("the wrong store is large")
	}
	big := string(bytes.Repeat([]byte("v"), aheadBytes))
	for seq := uint64(2); seq < 60; seq++ {
		txn := s.Begin(Time{Lease: 1}, seq, Env{})
		for range r.IntN(200) {
			key := []byte(names[r.IntN(len(names))])
			switch db := r.IntN(3); r.IntN(9) {
			case 0:
				txn.Delete(db, key)
			case 1:
				txn.SetString(db, key, big, 0)
			case 2:
				txn.SetDeadline(db, key, 1000)
			case 3:
				txn.SetString(db, bytes.Repeat(key, aheadLength/4), "long", 0)
			default:
				txn.SetString(db, key, "owner", 5000)
			}
		}
		if seq%20 == 0 {
			txn.Flush(1)
			txn.Swap(1, 2)
		}
		writes := txn.Writes().Bytes()
		parts := 0
		for left, db := len(writes), 0; left > 0; parts++ {
			rest := s.readAhead(writes[len(writes)-left:], db)
			if rest >= left || s.ahead.n != 0 {
				t.Fatalf("%d bytes are left of %d", rest, left)
			}
			left = rest
		}
		if least := len(writes)/(aheadBytes+2*len(big)) + 1; len(writes) > 0 && parts < least {
			t.Errorf("%d bytes in %d parts", len(writes), parts)
		}
		if err := s.Apply(writes, seq, nil); err != nil {
			t.Fatal(err)
		}
	}
}

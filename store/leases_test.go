package store

import (
	"slices"
	"testing"
)

// TestLeasedBetween: every write that gives a key a deadline is found where the
// key is in the end, in whatever database, and nothing before or behind.
func TestLeasedBetween(t *testing.T) {
	txn := newTestDB(t).begin()
	txn.SetString(3, []byte("before"), "v", 50)
	from := txn.Writes().Mark()
	txn.SetString(3, []byte("a"), "v", 100)
	txn.SetString(3, []byte("plain"), "v", 0)
	txn.HashSet(4, []byte("h"), "f", "v")
	txn.SetDeadline(4, []byte("h"), 200)
	txn.Move(4, []byte("h"), 5, []byte("moved"))
	txn.Swap(5, 6)
	txn.Publish(Channel, "c", "m")
	to := txn.Writes().Mark()
	txn.SetString(3, []byte("behind"), "v", 300)
	got := LeasedBetween(txn.Writes().Bytes(), from, to)
	want := []LeasedKey{{3, "a", 100}, {4, "h", 200}, {6, "moved", 200}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestRenew: a lease begins anew unless it is over, another has the key, or it was
// made shorter on purpose.
func TestRenew(t *testing.T) {
	for _, test := range []struct {
		name    string
		since   func(t *Txn)
		now     int64
		want    int64 // the deadline then
		expired bool
	}{
		{name: "as it was", now: 1500, want: 2500},
		{name: "at once", now: 1000, want: 2000},
		{name: "over", now: 2001, expired: true},
		{name: "deleted", since: func(t *Txn) { t.Delete(0, []byte("k")) }, now: 1500, expired: true},
		{name: "another's", since: func(t *Txn) { t.Delete(0, []byte("k")); t.SetString(0, []byte("k"), "you", 9000) }, now: 1500, expired: true},
		{name: "shorter", since: func(t *Txn) { t.SetDeadline(0, []byte("k"), 1700) }, now: 1500, want: 1700},
		{name: "longer", since: func(t *Txn) { t.SetDeadline(0, []byte("k"), 9000) }, now: 1500, want: 9000},
		{name: "for ever", since: func(t *Txn) { t.SetDeadline(0, []byte("k"), 0) }, now: 1500},
	} {
		s := New()
		apply := func(seq uint64, write func(t *Txn)) {
			txn := s.Begin(Time{Lease: 1000}, seq, Env{})
			write(txn)
			if err := s.Apply(txn.Writes().Bytes(), seq, nil); err != nil {
				t.Fatal(err)
			}
		}
		apply(1, func(t *Txn) { t.SetString(0, []byte("k"), "me", 2000) })
		if test.since != nil {
			apply(2, test.since)
		}
		txn := s.Begin(Time{Lease: test.now}, 3, Env{})
		_, alive := txn.Renew(LeasedKey{0, "k", 2000}, 1, 1000)
		if alive == test.expired {
			t.Errorf("%s: alive %v", test.name, alive)
		}
		if e := txn.Lookup(0, []byte("k")); !test.expired && e.Deadline() != test.want {
			t.Errorf("%s: until %d, want %d", test.name, e.Deadline(), test.want)
		}
	}
}

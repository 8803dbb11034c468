package store

import (
	"slices"
	"strconv"
	"testing"
)

// TestLeasedBetween: LeasedBetween finds exactly the deadlines of the span, with the last database and name of each key.
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
	expect := func(name string, want ...LeasedKey) {
		t.Helper()
		if got := LeasedBetween(txn.Writes().Bytes(), from, to, txn.Writes().Mark()); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if got, want := LeasedBetween(txn.Writes().Bytes(), from, to, to), []LeasedKey{{3, "a", "", 100}, {6, "moved", "", 200}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	expect("later keys", LeasedKey{3, "a", "", 100}, LeasedKey{6, "moved", "", 200})
	txn.SetDeadline(3, []byte("a"), 150)
	txn.Move(6, []byte("moved"), 0, []byte("again"))
	expect("later changes", LeasedKey{0, "again", "", 200}, LeasedKey{3, "a", "", 150})
	txn.Delete(3, []byte("a"))
	txn.SetString(3, []byte("a"), "v", 900)
	expect("deleted", LeasedKey{0, "again", "", 200})
	txn.Flush(0)
	expect("flushed")
}

// TestLeasesOfALargeWriteSet: one pass over an entry finds all leases, however many keys it sets and renames.
func TestLeasesOfALargeWriteSet(t *testing.T) {
	const keys = 300_000
	txn := newTestDB(t).begin()
	for i := range keys {
		key := strconv.Itoa(i)
		txn.SetString(0, []byte(key), "v", 100)
		txn.Move(0, []byte(key), 0, []byte("x"+key))
	}
	writes, end := txn.Writes().Bytes(), txn.Writes().Mark()
	for name, list := range map[string][]LeasedKey{
		"between": LeasedBetween(writes, Mark{}, end, end),
		"all":     Leased(writes, []Span{{Mark{}, end}}, nil),
	} {
		if len(list) != keys {
			t.Errorf("%s: found %d of %d", name, len(list), keys)
		}
	}
}

// TestLeased: Leased finds leases, and no other deadlines, with the last name and database of each key.
func TestLeased(t *testing.T) {
	key := func(s string) []byte { return []byte(s) }
	for name, tt := range map[string]struct {
		lease func(t *Txn) // the writes within a span
		later func(t *Txn) // the writes behind the span
		anew  []LeasedKey
		want  []LeasedKey
	}{
		"stays":              {want: []LeasedKey{{0, "k", "", 100}}},
		"renamed":            {later: func(t *Txn) { t.Move(0, key("k"), 0, key("k2")) }, want: []LeasedKey{{0, "k2", "", 100}}},
		"renamed twice":      {later: func(t *Txn) { t.Move(0, key("k"), 0, key("k2")); t.Move(0, key("k2"), 3, key("k3")) }, want: []LeasedKey{{3, "k3", "", 100}}},
		"copied":             {later: func(t *Txn) { t.Copy(0, key("k"), 4, key("k")) }, want: []LeasedKey{{0, "k", "", 100}, {4, "k", "", 100}}},
		"swapped":            {later: func(t *Txn) { t.Swap(0, 7) }, want: []LeasedKey{{7, "k", "", 100}}},
		"given a Unix time":  {later: func(t *Txn) { t.SetDeadline(0, key("k"), 90) }},
		"the same again":     {later: func(t *Txn) { t.SetString(0, key("k"), "v", 100) }, want: []LeasedKey{{0, "k", "", 100}}},
		"made to last":       {later: func(t *Txn) { t.SetDeadline(0, key("k"), 0) }},
		"overwritten":        {later: func(t *Txn) { t.SetString(0, key("k"), "v", 80) }},
		"overwritten by one": {later: func(t *Txn) { t.SetString(0, key("o"), "v", 80); t.Move(0, key("o"), 0, key("k")) }},
		"begun anew":         {later: func(t *Txn) { t.SetDeadline(0, key("old"), 300); t.Move(0, key("old"), 0, key("new")) }, anew: []LeasedKey{{0, "old", "", 300}}, want: []LeasedKey{{0, "k", "", 100}, {0, "new", "", 300}}},
		"two spans":          {lease: func(t *Txn) { t.SetString(2, key("k"), "v", 200) }, want: []LeasedKey{{0, "k", "", 100}, {2, "k", "", 200}}},
	} {
		txn := newTestDB(t).begin()
		txn.SetString(0, key("old"), "v", 50)
		txn.SetString(3, key("before"), "v", 50)
		var spans []Span
		within := func(write func(t *Txn)) {
			from := txn.Writes().Mark()
			write(txn)
			spans = append(spans, Span{from, txn.Writes().Mark()})
		}
		within(func(t *Txn) { t.SetString(0, key("k"), "v", 100) })
		txn.SetString(5, key("between"), "v", 60)
		if tt.lease != nil {
			within(tt.lease)
		}
		if tt.later != nil {
			tt.later(txn)
		}
		if got := Leased(txn.Writes().Bytes(), spans, tt.anew); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

// TestRenew: a lease begins anew unless it is over, the name belongs to another key, or a command has made the lease shorter.
func TestRenew(t *testing.T) {
	for _, test := range []struct {
		name    string
		since   func(t *Txn)
		now     int64
		want    int64 // the deadline after Renew; 0: none
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
		apply(t, s, 1, func(t *Txn) { t.SetString(0, []byte("k"), "me", 2000) })
		if test.since != nil {
			apply(t, s, 2, test.since)
		}
		txn := s.Begin(Time{Lease: test.now}, 3, Env{})
		mark := txn.Writes().Mark()
		until, alive := txn.Renew(LeasedKey{0, "k", "", 2000}, 1, 0, 1000)
		if alive == test.expired {
			t.Errorf("%s: alive %v", test.name, alive)
		}
		// If this reply is late, the leader lengthens the deadline that Renew has set.
		renewed, end := []LeasedKey{{0, "k", "", until}}, txn.Writes().Mark()
		if late := Leased(txn.Writes().Bytes(), []Span{{mark, mark}}, renewed); end != mark && !slices.Equal(late, renewed) {
			t.Errorf("%s: a late reply lengthens %v, want %v", test.name, late, renewed)
		}
		if e := txn.Lookup(0, []byte("k")); !test.expired && e.Deadline() != test.want {
			t.Errorf("%s: until %d, want %d", test.name, e.Deadline(), test.want)
		} else if test.want >= 2000 && e.Leased() != 3 {
			t.Errorf("%s: leased by write set %d, want 3: it would not be lengthened", test.name, e.Leased())
		}
	}
}

// TestRenewKeepsTheGrace: a late reply to a later command has given the deadline a grace. A lease that begins anew keeps this grace.
func TestRenewKeepsTheGrace(t *testing.T) {
	s := New()
	env := Env{Grace: func(seq uint64) int64 { return map[uint64]int64{2: 40}[seq] }}
	apply(t, s, 1, func(t *Txn) { t.SetString(0, []byte("k"), "me", 2000) })
	apply(t, s, 2, func(t *Txn) { t.SetDeadline(0, []byte("k"), 9000) })
	txn := s.Begin(Time{Lease: 1500}, 3, env)
	if until, alive := txn.Renew(LeasedKey{0, "k", "", 2000}, 1, 0, 1000); until != 9040 || !alive {
		t.Errorf("until %d, alive %v; want 9040 and true", until, alive)
	}
	if _, alive := txn.Renew(LeasedKey{0, "k", "", 0}, 1, 0, 1000); alive {
		t.Error("a lease that ended in the write set that granted it is alive")
	}
}

// TestRenewAfterASwap: a lease is not renewed if SWAPDB has given its name to another key, however old.
func TestRenewAfterASwap(t *testing.T) {
	for name, earlier := range map[string]bool{"by a write set": true, "by this transaction": false} {
		for _, old := range []uint64{1, 3} {
			s := New()
			for seq := uint64(1); seq <= 3; seq++ {
				apply(t, s, seq, func(t *Txn) {
					switch seq {
					case old:
						t.SetString(1, []byte("k"), "old", 9000)
					case 2:
						t.SetString(0, []byte("k"), "me", 2000)
					}
				})
			}
			swap := func(t *Txn) { t.Swap(0, 1) }
			if earlier {
				apply(t, s, 4, swap)
			}
			txn := s.Begin(Time{Lease: 1500}, 5, Env{})
			if !earlier {
				swap(txn)
			}
			if until, alive := txn.Renew(LeasedKey{0, "k", "", 2000}, 2, 0, 1000); alive {
				t.Errorf("swapped %s: the key of write set %d has the lease until %d", name, old, until)
			}
		}
	}
}

// TestReplaced: a lease is over if later writes of the write set give its name to another key, unless they are undone.
func TestReplaced(t *testing.T) {
	k := []byte("k")
	for name, others := range map[string]func(t *Txn){
		"SWAPDB":            func(t *Txn) { t.Swap(1, 0) },
		"DEL, SET":          func(t *Txn) { t.Delete(0, k); t.SetString(0, k, "you", 9000) },
		"DEL, RENAME":       func(t *Txn) { t.Delete(0, k); t.Move(1, k, 0, k) },
		"RENAME":            func(t *Txn) { t.Move(1, k, 0, k) },
		"MOVE away, COPY":   func(t *Txn) { t.Move(0, k, 5, k); t.Copy(1, k, 0, k) },
		"FLUSHDB, SET":      func(t *Txn) { t.Flush(0); t.SetString(0, k, "you", 9000) },
		"HDEL, HSET":        func(t *Txn) { t.HashDelete(0, []byte("h"), "f"); t.HashSet(0, []byte("h"), "f", "you") },
		"renewed":           func(t *Txn) { t.SetDeadline(0, k, 9000) },
		"overwritten":       func(t *Txn) { t.SetString(0, k, "you", 9000) },
		"DEL of another":    func(t *Txn) { t.Delete(1, k); t.SetString(1, k, "you", 9000) },
		"SWAPDB of another": func(t *Txn) { t.Swap(1, 2) },
	} {
		want := !slices.Contains([]string{"renewed", "overwritten", "DEL of another", "SWAPDB of another"}, name)
		s := New()
		apply(t, s, 1, func(t *Txn) { t.SetString(1, k, "you", 9000); t.SetString(0, k, "before", 0) })
		txn := s.Begin(Time{Lease: 1000}, 2, Env{})
		txn.Delete(0, k)
		txn.SetString(0, k, "me", 2000)
		txn.HashSet(0, []byte("h"), "f", "me")
		mark := txn.Writes().Mark()
		replaced := func() bool {
			r := txn.Replaced()
			return r != nil && (r.Since(mark, 0, "k") || r.Since(mark, 0, "h"))
		}
		if replaced() {
			t.Fatalf("%s: my own write has ended the lease", name)
		}
		sp := txn.Savepoint()
		others(txn)
		if replaced() != want {
			t.Errorf("%s: another key has the name: %v, want %v", name, replaced(), want)
		}
		txn.Rollback(sp)
		if replaced() {
			t.Errorf("%s, undone: the lease has ended", name)
		}
		others(txn)
		txn.Restart(Time{Lease: 1000}, 2)
		if txn.Replaced() != nil {
			t.Errorf("%s: the next transaction has %v", name, txn.Replaced())
		}
	}
}

// apply calls the function write, and applies its writes as the write set with the number seq.
func apply(t *testing.T, s *Store, seq uint64, write func(t *Txn)) {
	t.Helper()
	txn := s.Begin(Time{Lease: 1000}, seq, Env{})
	write(txn)
	if err := s.Apply(txn.Writes().Bytes(), seq, nil); err != nil {
		t.Fatal(err)
	}
}

package store

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

// version returns the version that WATCH of a key would remember.
func (d *testDB) version(key string) uint64 {
	v, _ := d.begin().Version(0, []byte(key))
	return v
}

func (d *testDB) unchanged(key string, v uint64) bool {
	return d.begin().Unchanged(0, []byte(key), v)
}

// If the current write set has changed the key, Version says that the version of the key is not settled.
func TestVersionInsideAWriteSet(t *testing.T) {
	d := newTestDB(t)
	d.do("SET", "k", "v")
	d.do("SET", "other", "v")
	for name, c := range map[string]struct {
		write   func(*Txn)
		settled bool
	}{
		"nothing":     {func(*Txn) {}, true},
		"another key": {func(t *Txn) { t.SetString(0, []byte("other"), "w", 0) }, true},
		"set":         {func(t *Txn) { t.SetString(0, []byte("k"), "w", 0) }, false},
		"deleted":     {func(t *Txn) { t.Delete(0, []byte("k")) }, false},
		"swapped":     {func(t *Txn) { t.Swap(0, 1); t.Swap(0, 1) }, false},
		"rolled back": {func(t *Txn) {
			sp := t.Savepoint()
			t.SetString(0, []byte("k"), "w", 0)
			t.Swap(0, 1)
			t.Rollback(sp)
		}, true},
	} {
		before := d.version("k")
		txn := d.begin()
		c.write(txn)
		if _, settled := txn.Version(0, []byte("k")); settled != c.settled {
			t.Errorf("%s: settled %v", name, settled)
		}
		if got := txn.Unchanged(0, []byte("k"), before); got != c.settled {
			t.Errorf("%s: unchanged %v", name, got)
		}
	}
}

// A key is created, and SWAPDB moves it to another database. A client that has watched the key since before its creation notices that.
func TestVersionSwappedAway(t *testing.T) {
	for _, oneWriteSet := range []bool{false, true} {
		d := newTestDB(t)
		gone, never, later := d.version("k"), d.version("never"), uint64(0)
		if oneWriteSet {
			txn := d.begin()
			txn.SetString(0, []byte("k"), "v", 0)
			txn.Swap(0, 1)
			if _, settled := txn.Version(0, []byte("k")); settled {
				t.Error("it is settled that a key is absent that has just gone")
			}
			if txn.Unchanged(0, []byte("k"), gone) || !txn.Unchanged(0, []byte("never"), never) {
				t.Error("in one write set")
			}
			continue
		}
		d.do("SET", "k", "v")
		d.do("SWAPDB", "0", "1")
		if later = d.version("k"); d.unchanged("k", gone) || !d.unchanged("k", later) || !d.unchanged("never", never) {
			t.Error("in two write sets")
		}
	}
}

// TestVersionFlushed: WATCH notices that a missing key came and that FLUSHDB removed it, in one write set or in two.
func TestVersionFlushed(t *testing.T) {
	for name, c := range map[string]struct {
		before, within []string
		unchanged      bool
	}{
		"came and went":           {nil, []string{"SET k v", "FLUSHDB"}, false},
		"came before":             {[]string{"SET k v"}, []string{"FLUSHDB"}, false},
		"came, went, and others":  {nil, []string{"SET k v", "FLUSHDB", "SET other v", "FLUSHDB"}, false},
		"came before, two went":   {[]string{"SET k v"}, []string{"FLUSHDB", "SET other v", "FLUSHALL"}, false},
		"went, then another swap": {nil, []string{"SET k v", "FLUSHDB", "SWAPDB 0 1"}, false},
		"never was":               {[]string{"SET other v"}, []string{"SET third v", "FLUSHALL"}, true},
	} {
		d := newTestDB(t)
		v := d.version("k")
		for _, words := range c.before {
			d.do(strings.Fields(words)...)
		}
		txn := d.begin()
		sp := txn.Savepoint()
		for _, words := range c.within {
			d.run(txn, strings.Fields(words)...)
		}
		if got := txn.Unchanged(0, []byte("k"), v); got != c.unchanged {
			t.Errorf("%s: unchanged %v", name, got)
		}
		if _, settled := txn.Version(0, []byte("k")); settled != (c.unchanged || txn.peek(0, "k") != nil) {
			t.Errorf("%s: settled %v", name, settled)
		}
		txn.Rollback(sp)
		if got := txn.Unchanged(0, []byte("k"), v); got != (c.before == nil || c.unchanged) {
			t.Errorf("%s, rolled back: unchanged %v", name, got)
		}
		if _, settled := txn.Version(0, []byte("k")); !settled {
			t.Errorf("%s, rolled back: not settled", name)
		}
	}
}

// A key had already expired when WATCH began. If FLUSHDB then removes it, that is no change.
func TestVersionOfFlushedExpired(t *testing.T) {
	d := newTestDB(t)
	d.do("SET", "k", "v", "PX", "10")
	d.advance(11)
	v := d.version("k")
	txn := d.begin()
	txn.Flush(0)
	if !txn.Unchanged(0, []byte("k"), v) {
		t.Error("a key that had expired counts as changed")
	}
}

// When FLUSHALL removes a name from two databases, the store remembers both removals.
func TestRemovalsOfOneName(t *testing.T) {
	d := newTestDB(t)
	v := d.version("k")
	d.do("SET", "k", "v")
	d.do("COPY", "k", "k", "DB", "3")
	d.do("FLUSHALL")
	if d.unchanged("k", v) {
		t.Error("that the key has come and gone is forgotten at once")
	}
}

// The removal of keys with other names does not count as a change of this key,
// even if they share its place among the remembered removals.
func TestRemovalsOfOthers(t *testing.T) {
	d := newTestDB(t)
	v := d.version("k")
	for i, same := 0, 0; same <= 2*len(removals{}[0]); i++ {
		name := "key:" + string(rune('0'+i%10)) + string(rune('a'+i/10%26)) + string(rune('a'+i/260%26)) + string(rune('a'+i/6760%26))
		if place(0, hashOf(name)) != place(0, hashOf("k")) {
			continue
		}
		same++
		d.do("SET", name, "v")
		d.do("DEL", name)
	}
	if !d.unchanged("k", v) {
		t.Error("changed by keys of other names")
	}
	d.do("SET", "k", "v")
	d.do("DEL", "k")
	if d.unchanged("k", v) {
		t.Error("that the key has come and gone is forgotten at once")
	}
	if !d.unchanged("k", d.version("k")) {
		t.Error("changed before it was watched")
	}
}

// TestVersionsSurviveASnapshot: versions, also after SWAPDB, are the same on a node restored from a snapshot.
func TestVersionsSurviveASnapshot(t *testing.T) {
	d := newTestDB(t)
	d.do("SET", "k", "v")
	d.do("SWAPDB", "0", "1")
	d.do("SWAPDB", "0", "1")
	v, gone := d.version("k"), d.version("absent")
	s, err := Restore(bytes.NewReader(encode(t, d.s)))
	if err != nil {
		t.Fatal(err)
	}
	d.s = s
	if !d.unchanged("k", v) || !d.unchanged("absent", gone) || d.unchanged("k", v-1) || d.unchanged("k", gone) || d.unchanged("absent", v) {
		t.Error("versions differ after a snapshot")
	}
}

// If a key expires, and later in the same write set is created and removed again, that is a change.
func TestVersionOfAKeyThatComesBack(t *testing.T) {
	set := func(t *Txn) { t.SetString(0, []byte("k"), "w", 0) }
	remove := func(t *Txn) { t.Delete(0, []byte("k")) }
	for name, c := range map[string]struct {
		writes    []func(*Txn)
		unchanged bool
	}{
		"expired":                     {nil, true},
		"and set":                     {[]func(*Txn){set}, false},
		"and set and removed":         {[]func(*Txn){set, remove}, false},
		"and set and removed in vain": {[]func(*Txn){func(t *Txn) { sp := t.Savepoint(); set(t); remove(t); t.Rollback(sp) }}, true},
	} {
		d := newTestDB(t)
		d.do("SET", "k", "v", "PX", "10")
		d.advance(11)
		gone := d.version("k")
		txn := d.begin()
		txn.ExpireDue(10, math.MaxInt, math.MaxInt)
		for _, write := range c.writes {
			write(txn)
		}
		if got := txn.Unchanged(0, []byte("k"), gone); got != c.unchanged {
			t.Errorf("%s: unchanged %v", name, got)
		}
	}
}

// TestVersionOfAKeyWhoseExpiryWasRolledBack: after a rollback the expiry counts once, so WATCH notices a later SET and DEL.
func TestVersionOfAKeyWhoseExpiryWasRolledBack(t *testing.T) {
	d := newTestDB(t)
	d.do("SET", "k", "v", "PX", "10")
	d.advance(11)
	gone := d.version("k")
	txn := d.begin()
	sp := txn.Savepoint()
	txn.LookupWrite(0, []byte("k"))
	txn.Rollback(sp)
	txn.LookupWrite(0, []byte("k"))
	if !txn.Unchanged(0, []byte("k"), gone) {
		t.Error("expired: changed")
	}
	txn.SetString(0, []byte("k"), "w", 0)
	txn.Delete(0, []byte("k"))
	if txn.Unchanged(0, []byte("k"), gone) {
		t.Error("set and removed: unchanged")
	}
}

// TestOldExpiryReplacesNoRemoval: an expiry of a key changed long ago does not replace the record of a later removal.
func TestOldExpiryReplacesNoRemoval(t *testing.T) {
	var r removals
	for seq := range uint64(4) { // all four keys have the same place in removals
		r.note(0, seq*uint64(len(r)), 100+seq)
	}
	r.note(0, 4*uint64(len(r)), 50)
	if got := r.last(0, 0); got != 100 {
		t.Errorf("the first removal is now of write set %d", got)
	}
	r.note(0, 4*uint64(len(r)), 104)
	if got := r.last(0, 4*uint64(len(r))); got != 104 {
		t.Errorf("the last removal is of write set %d", got)
	}
}

// TestExpiredFlushedAndSetAgain: WATCH notices a SET and DEL after an expiry and FLUSHDB of the same write set.
func TestExpiredFlushedAndSetAgain(t *testing.T) {
	k := []byte("k")
	s := New()
	apply(t, s, 1, func(t *Txn) { t.SetString(0, k, "v", 2000) })
	gone, _ := s.Begin(Time{Lease: 2001}, 2, Env{}).Version(0, k)
	txn := s.Begin(Time{Lease: 2001}, 2, Env{})
	txn.LookupWrite(0, k)
	txn.Flush(0)
	txn.SetString(0, k, "another", 0)
	txn.Delete(0, k)
	if txn.Unchanged(0, k, gone) {
		t.Error("set and removed: unchanged")
	}
}

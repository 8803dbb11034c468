package store

import (
	"fmt"
	"math"
	"testing"
)

func TestDeadlines(t *testing.T) {
	d := newTestDB(t)
	d.script(`
		SET lock owner NX PX 30000 => +OK
		SET lock other NX PX 30000 => nil
		PTTL lock => :30000
		PEXPIRETIME lock => :1700000030000
		EXPIRETIME lock => :1700000030
		@advance 28500
		TTL lock => :2
		@advance 101
		TTL lock => :1
		@advance 1000
		TTL lock => :0
		PTTL lock => :399
		@advance 399
		GET lock => "owner"
		PTTL lock => :0
		@advance 1
		GET lock => nil
		PTTL lock => :-2
		EXISTS lock => :0
		DBSIZE => :0
		DEL lock => :0
		SET lock other NX PX 30000 => +OK
		PERSIST lock => :1
		PERSIST lock => :0
		TTL lock => :-1
	`)
	if d.s.Expired() != 1 {
		t.Errorf("expired %d keys, want 1", d.s.Expired())
	}
}

// TestPastTimes: an expiry time in the past deletes the key. It leaves no deadline, so a later change of the clock cannot bring the
// key back.
func TestPastTimes(t *testing.T) {
	for _, call := range []string{
		"SET k v PXAT 1700000000000", "SET k v EXAT 1", "GETEX k PXAT 1", "GETEX k EXAT 1699999999",
		"PEXPIREAT k 1700000000000", "EXPIREAT k -5", "EXPIRE k 0", "PEXPIRE k -9223372036854775808",
	} {
		d := newTestDB(t)
		d.do("SET", "k", "old", "PX", "5000")
		d.do(words(call)...)
		if total, due := d.s.Keys(0); total != 0 || due != 0 {
			t.Errorf("%s: %d keys and %d deadlines are left", call, total, due)
		}
		d.do(words(call)...)
		if d.wrote != 0 {
			t.Errorf("%s: wrote %d times without a key", call, d.wrote)
		}
	}
}

func TestHugeTimes(t *testing.T) {
	d := newTestDB(t)
	d.script(`
		SET k v PX 2700000000000000 => +OK
		PTTL k => :2700000000000000
		PEXPIREAT k 9223372036854775807 => :1
		PEXPIRETIME k => :9223372036854775807
		EXPIRETIME k => :9223372036854776
		EXPIRE k 9223372036854776 => -ERR invalid expire time in 'expire' command
		PEXPIRE k 9223372036854775807 => -ERR invalid expire time in 'pexpire' command
		SETEX k 9223372036854776 v => -ERR invalid expire time in 'setex' command
		PSETEX k 0 v => -ERR invalid expire time in 'psetex' command
		GETEX k PX 9223372036854775807 => -ERR invalid expire time in 'getex' command
		GETEX none PX 0 => nil
		PEXPIRE k -9223372036854775808 GT => :0
		PEXPIRE k -9223372036854775808 LT => :1
		EXISTS k => :0
	`)
}

func TestExpireConditions(t *testing.T) {
	d := newTestDB(t)
	d.script(`
		SET k v => +OK
		EXPIRE k 100 XX => :0
		EXPIRE k 100 GT => :0
		EXPIRE k 100 LT => :1
		EXPIRE k 100 NX => :0
		EXPIRE k 100 GT => :0
		EXPIRE k 100 LT => :0
		EXPIRE k 101 GT XX => :1
		EXPIRE k -1 GT => :0
		EXPIRE none 1 FOO => -ERR Unsupported option FOO
		EXPIRE none x NX XX => -ERR NX and XX, GT or LT options at the same time are not compatible
		EXPIRE none x GT LT => -ERR GT and LT options at the same time are not compatible
		EXPIRE none x => -ERR value is not an integer or out of range
		TTL k => :101
	`)
}

// TestGrace: after its deadline a key lives on for the grace that Env gives. In the grace it is a key like any other.
func TestGrace(t *testing.T) {
	d := newTestDB(t)
	asked := map[uint64]bool{}
	d.env.Grace = func(seq uint64) int64 {
		asked[seq] = true
		return 50
	}
	d.do("SET", "other", "x")
	d.do("SET", "lock", "owner", "PX", "100")
	d.do("HSET", "hash", "f", "1")
	d.do("PEXPIRE", "hash", "100")
	d.advance(120)
	d.script(`PTTL lock => :30`)
	d.advance(30)
	d.script(`
		GET lock => "owner"
		PTTL lock => :0
		SET lock thief NX => nil
		HINCRBY hash f 1 => :2
		DBSIZE => :3
	`)
	txn := d.begin()
	if n := txn.ExpireDue(10, math.MaxInt, math.MaxInt); n != 0 {
		t.Errorf("%d keys were deleted within their grace", n)
	}
	d.advance(1)
	txn = d.begin()
	if n := txn.ExpireDue(10, math.MaxInt, math.MaxInt); n != 2 {
		t.Errorf("%d keys were deleted after their grace, want 2", n)
	}
	if !asked[2] || !asked[4] || len(asked) != 2 {
		t.Errorf("asked for the grace of %v; the deadlines are of 2 and 4", asked)
	}
}

// EXPIRE … GT makes no lease shorter, not even a lease that ends later than the deadline of its key.
func TestExpireGTKeepsTheGrace(t *testing.T) {
	d := newTestDB(t)
	d.env.Grace = func(seq uint64) int64 {
		if seq == 1 {
			return 50
		}
		return 0
	}
	d.script(`
		SET lock owner PX 100 => +OK
		@advance 90
		PEXPIRE lock 20 GT => :1
		@advance 60
		EXISTS lock => :1
		@advance 1
		EXISTS lock => :0
		SET lock owner PX 100 => +OK
		PEXPIRE lock 120 GT => :1
		PTTL lock => :120
	`)
}

// TestExpireSeen: ExpireSeen deletes the expired keys that a reply has called missing, in every database in which they were looked
// for.
func TestExpireSeen(t *testing.T) {
	d := newTestDB(t)
	for _, db := range []string{"3", "0"} {
		d.do("SELECT", db)
		d.do("SET", "lock", "owner", "PX", "10")
	}
	d.advance(20)
	txn := d.begin()
	for _, db := range []int{0, 3, 3} {
		if txn.Lookup(db, []byte("lock")) != nil {
			t.Errorf("the key of database %d has not expired", db)
		}
	}
	txn.ExpireSeen(math.MaxInt)
	d.apply(txn)
	if d.s.Expired() != 2 {
		t.Errorf("%d keys were deleted, and two were looked for", d.s.Expired())
	}
}

// TestExpireDueLeavesLongNames: ExpireDue leaves the keys whose names are too long for an entry, and still deletes the others.
func TestExpireDueLeavesLongNames(t *testing.T) {
	d := newTestDB(t)
	for i := range 8 {
		d.do("SET", fmt.Sprint("longer", i), "v", "PX", "10")
	}
	d.do("SET", "short", "v", "PX", "20")
	d.advance(100)
	for _, tc := range []struct{ longest, want int }{{6, 1}, {6, 0}, {7, 4}, {7, 4}, {7, 0}} {
		txn := d.begin()
		if n := txn.ExpireDue(4, math.MaxInt, tc.longest); n != tc.want {
			t.Fatalf("deleted %d keys with names of at most %d bytes, want %d", n, tc.longest, tc.want)
		}
		d.apply(txn)
	}
}

func TestExpireDue(t *testing.T) {
	d := newTestDB(t)
	for i := range 20 {
		d.do("SET", fmt.Sprint("k", i), "v", "PX", fmt.Sprint(10*(i+1)))
	}
	d.do("SELECT", "3")
	d.do("SET", "elsewhere", "v", "PX", "15")
	if next := d.s.NextDeadline(); next != d.now.Lease+10 {
		t.Errorf("next deadline %d, want %d", next, d.now.Lease+10)
	}
	d.advance(101)
	for _, want := range []int{4, 4, 3, 0} {
		txn := d.begin()
		if n := txn.ExpireDue(4, math.MaxInt, math.MaxInt); n != want {
			t.Fatalf("deleted %d, want %d", n, want)
		}
		d.apply(txn)
	}
	if total, due := d.s.Keys(0); total != 10 || due != 10 {
		t.Errorf("%d keys, %d deadlines are left, want 10", total, due)
	}
	if d.s.Deadlines() != 10 || d.s.Expired() != 11 {
		t.Errorf("%d deadlines, %d expired", d.s.Deadlines(), d.s.Expired())
	}
}

// TestSeenExpiredBeforeASwap: an expired key that a reply called missing is deleted, even if the write set swaps its database.
func TestSeenExpiredBeforeASwap(t *testing.T) {
	for _, undone := range []bool{false, true} {
		s := New()
		apply(t, s, 1, func(t *Txn) { t.SetString(0, []byte("k"), "old owner", 2000) })
		txn := s.Begin(Time{Lease: 2001}, 2, Env{})
		if txn.Lookup(0, []byte("k")) != nil {
			t.Fatal("not expired")
		}
		sp := txn.Savepoint()
		txn.Swap(0, 1)
		if undone {
			txn.Rollback(sp)
		} else {
			txn.Release(sp)
		}
		txn.ExpireSeen(1 << 20)
		if err := s.Apply(txn.Writes().Bytes(), 2, nil); err != nil {
			t.Fatal(err)
		}
		next := s.Begin(Time{Lease: 1960}, 3, Env{})
		for db := range 2 {
			if e := next.Lookup(db, []byte("k")); e != nil {
				t.Errorf("undone %v: database %d has %q", undone, db, e.Str())
			}
		}
	}
}

func TestSaturation(t *testing.T) {
	for _, tc := range []struct{ a, b, want int64 }{
		{1, 2, 3},
		{math.MaxInt64, 1, math.MaxInt64},
		{math.MinInt64, -1, math.MinInt64},
		{math.MaxInt64, -1, math.MaxInt64 - 1},
	} {
		if got := addSaturating(tc.a, tc.b); got != tc.want {
			t.Errorf("%d + %d = %d", tc.a, tc.b, got)
		}
	}
}

package store

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"
)

// manyOwners is a command that makes a lock of Redisson with n owners.
func manyOwners(n int) string {
	var b strings.Builder
	b.WriteString("HSET k")
	for i := range n {
		fmt.Fprintf(&b, " %08x%s:1 1", i, redissonA[8:uuidLength])
	}
	return b.String()
}

// tellsAtOnce runs commands in one write set, and returns its events.
func (d *testDB) tellsAtOnce(commands ...string) []LockEvent {
	d.t.Helper()
	txn := d.begin()
	d.s.Witness(true)
	for _, line := range commands {
		d.run(txn, words(line)...)
	}
	return d.witnessed(txn)
}

// TestWitnessIsBounded: no write set costs much more work than it has bytes, nor much memory; and what it leaves out, it says.
func TestWitnessIsBounded(t *testing.T) {
	long := strings.Repeat("x", 4<<20)
	for name, c := range map[string]struct{ made, repeated string }{
		"renamed":            {manyOwners(mostWitnessed), "RENAME k l|RENAME l k"},
		"copied":             {manyOwners(mostWitnessed), "COPY k l REPLACE"},
		"renewed":            {manyOwners(mostWitnessed), "PEXPIRE k 100000|PERSIST k"},
		"of a long name":     {"SET k " + long + " NX", "PEXPIRE k 100000|PERSIST k"},
		"deleted":            {manyOwners(mostWitnessed + 1), "DEL k"},
		"overwritten":        {manyOwners(mostWitnessed + 1), "SET k v"},
		"no lock, then one":  {manyOwners(mostWitnessed + 1), "HSET k " + redissonB + " x|HDEL k " + redissonB},
		"flushed":            {"SET k v", "FLUSHDB|SWAPDB 0 1|SWAPDB 0 1|FLUSHDB"},
		"written in one":     {"DEL k", manyOwners(2 * mostWitnessed)},
		"of many, in turn":   {manyOwners(100), "HINCRBY k " + redissonA + " 1|PEXPIRE k 100000|PERSIST k"},
		"of the type lock":   {"LOCK.ACQUIRE k a PX 100000 SHARED", "LOCK.ACQUIRE k b PX 9 SHARED|LOCK.RELEASE k b|LOCK.ACQUIRE k b PX 9 SHARED|LOCK.RELEASE k b"},
		"revoked and forced": {"DEL k", "SET k v NX|DEL k|SET k v NX|LOCK.REVOKE k REASON why|LOCK.FORCE k REASON why"},
	} {
		d := newTokenDB(t)
		d.tellsAtOnce(c.made)
		var list []string
		for range 20_000 {
			list = append(list, strings.Split(c.repeated, "|")...)
			if len(c.repeated) > 1000 {
				break
			}
		}
		got := d.tellsAtOnce(list...)
		if len(got) > mostLockEvents+1 || d.s.witness.left < -2*lookAtFields-len(long)/hashedAtOnce {
			t.Errorf("%s: %d events, %d steps left", name, len(got), d.s.witness.left)
		}
		gap := func(e LockEvent) bool { return e.How == LockGap }
		if at := slices.IndexFunc(got, gap); at < 0 || at != len(got)-1 || got[at].Reason != tooManyLockEvents {
			t.Errorf("%s: the events end at %d of %d", name, at, len(got))
		}
		if got := plain(d.told("SET n a NX")); got != "granted n plain a 1" {
			t.Errorf("%s: the next write set has the events %s", name, got)
		}
	}
}

// TestOwnersAmongMany: each owner of a lock with many of them has its own events, also if one command makes them all.
func TestOwnersAmongMany(t *testing.T) {
	d := newTokenDB(t)
	const n = mostWitnessed / 2
	if got := d.told(manyOwners(n)); len(got) != n || slices.ContainsFunc(got, func(e LockEvent) bool { return e.How != LockGranted }) {
		t.Errorf("%d events", len(got))
	}
	for range 3 {
		d.told(manyOwners(2 * mostWitnessed))
	}
	if got := plain(d.told("HINCRBY k "+redissonA+" 1", "HINCRBY k "+redissonA+" 1", "HDEL k "+redissonA)); got != fmt.Sprintf("granted k redisson %[1]s 1; granted k redisson %[1]s 2; released k redisson %[1]s 0", redissonA) {
		t.Error(got)
	}
}

// TestForcedHolds: LOCK.FORCE has ended what it ends, all of that, and nothing that comes after it.
func TestForcedHolds(t *testing.T) {
	d := newTokenDB(t)
	d.told("ZADD k 1 "+symfonyA, "ZADD k 99999999999999 "+symfonyB) // the lease of the first one is over
	got := plain(d.tellsAtOnce("LOCK.FORCE k REASON why", "SET k b NX", "DEL k"))
	want := fmt.Sprintf("forced k symfony %s 0 (: why); forced k symfony %s 0 (: why); granted k plain b 1; released k plain b 0", symfonyA, symfonyB)
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestNumberAsOwner: a key beside a lock whose owner is a number does not hide what happens to the lock.
func TestNumberAsOwner(t *testing.T) {
	d := newTokenDB(t)
	if got := plain(d.told("SET k 7 NX", "ZADD {k}:timeout 1 0123456789abcdef", "DEL k", "SET k 8 NX")); got != "granted k plain 7 1; released k plain 7 0; granted k plain 8 1" {
		t.Error(got)
	}
}

// TestWitnessKeepsNoKeys: the memory of flushed keys is free.
func TestWitnessKeepsNoKeys(t *testing.T) {
	d := newTokenDB(t)
	d.told("SET k a NX", "HSET h "+redissonA+" 1")
	keys := weak.Make(d.s.dbs[0])
	d.told("FLUSHALL")
	runtime.GC()
	if keys.Value() != nil {
		t.Error("the flushed keys are still in memory")
	}
	runtime.KeepAlive(d)
}

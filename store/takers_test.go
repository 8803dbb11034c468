package store

import (
	"fmt"
	"slices"
	"testing"
)

// taken is a command of a client.
type taken struct {
	client uint64
	line   string
}

// TestTakers: each event of a grant names the client that has taken the lock, in whatever way, and other events name nobody. A write that makes
// no lock costs nothing in the log.
func TestTakers(t *testing.T) {
	const owner = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0:1"
	d := newTokenDB(t)
	d.s.Witness(true)
	var got []string
	run := func(calls ...taken) {
		txn := d.begin()
		for _, c := range calls {
			txn.SetClient(c.client)
			d.run(txn, words(c.line)...)
		}
		for _, e := range d.witnessed(txn) {
			got = append(got, fmt.Sprintf("%s %s %s by %d", e.How, e.Key, e.Owner, e.Client))
		}
	}
	run(taken{7, "SET a x NX PX 1000"}, taken{8, "SET b y NX PX 1000"}, taken{9, "SET data z PX 1000"})
	run(taken{8, "DEL a"})
	run(taken{7, "SETNX c v"}, taken{0, "SET a w NX PX 1000"})
	run(taken{1 << 40, "HSET h " + owner + " 1"})
	run(taken{5, "HSET rw mode read " + owner + ":write 1"})
	run(taken{6, "LOCK.ACQUIRE s o PX 1000 SHARED"})
	run(taken{6, "LOCK.ACQUIRE r o PX 1000 REENTRANT"})
	want := []string{"granted a x by 7", "granted b y by 8", "released a x by 0", "granted c v by 7", "granted a w by 0",
		"granted h " + owner + " by 1099511627776", "granted rw " + owner + ":write by 5", "granted s o by 6", "granted r o by 6"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	txn := d.begin()
	txn.SetClient(3)
	d.run(txn, words("SET data z PX 1000")...)
	d.run(txn, words("HSET map f v")...)
	d.run(txn, words("ZADD z 1 m")...)
	other := d.begin()
	for _, call := range []string{"SET data z PX 1000", "HSET map f v", "ZADD z 1 m"} {
		d.run(other, words(call)...)
	}
	if n, m := txn.Writes().Size(), other.Writes().Size(); n != m {
		t.Errorf("writes that make no lock take %d bytes, not %d", n, m)
	}
}

// TestTakersBesideAnOlderNode: version 0.1.0 would stop at the name of a client.
func TestTakersBesideAnOlderNode(t *testing.T) {
	d := newTestDB(t)
	txn := d.s.Begin(Time{}, 1, Env{Older: func() bool { return true }})
	txn.tokens = tokens{}
	txn.SetClient(7)
	txn.HashSet(0, []byte("h"), "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0:1", "1")
	if txn.Writes().Version() != 1 {
		t.Error("the write set is for a later version")
	}
}

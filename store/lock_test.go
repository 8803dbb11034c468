package store

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestSharedLock: any number of owners share a lock, and none holds it beside an owner that does not share it.
func TestSharedLock(t *testing.T) {
	d := newTokenDB(t)
	d.script(`
		LOCK.ACQUIRE k a PX 100 SHARED => [:1700000000000001 :100 :1]
		LOCK.ACQUIRE k b PX 500 SHARED => [:1700000000000002 :500 :1]
		TYPE k => +lock
		PTTL k => :500
		LOCK.ACQUIRE k c PX 100 => nil-array
		LOCK.ACQUIRE k c PX 100 REENTRANT => nil-array
		LOCK.ACQUIRE k c PX 100 LIMIT 2 => -LOCKMODE this lock has been taken with SHARED
		SET k c NX => nil
		LOCK.ACQUIRE k a PX 100 => -LOCKMODE the owner shares this lock: release it, then take it exclusively
		LOCK.ACQUIRE k a PX 100 SHARED => nil-array
		LOCK.ACQUIRE k a PX 50 SHARED REENTRANT => [:1700000000000001 :100 :2]
		LOCK.RENEW k a PX 200 => :1
		LOCK.RENEW k c PX 200 => :0
		LOCK.RELEASE k a => :1
		LOCK.RELEASE k a => :0
		LOCK.RELEASE k a => nil
		LOCK.TOKEN k => -LOCKMODE each holder of this lock has a token of its own: name one with OWNER
		LOCK.TOKEN k OWNER b => :1700000000000002
		LOCK.TOKEN k OWNER a => nil
		LOCK.CHECK k 1700000000000002 OWNER b => :1
		LOCK.ACQUIRE k a PX 100 SHARED => [:1700000000000003 :100 :1]
		LOCK.RELEASE k a TOKEN 1700000000000001 => nil
		LOCK.RENEW k a PX 100 TOKEN 1700000000000003 => :1
		@advance 501
		EXISTS k => :0
		LOCK.RENEW k b PX 200 => :0
		LOCK.ACQUIRE k c PX 100 => [:1700000000000004 :100 :1]
		GET k => "c"`)
}

// TestDowngradedLock: the owner of an exclusive lock shares it without a gap, and keeps its token; nobody makes a shared lock exclusive.
func TestDowngradedLock(t *testing.T) {
	for _, first := range []string{"", " REENTRANT", " MAXHOLD 5000"} {
		d := newTokenDB(t)
		d.script(`
			LOCK.ACQUIRE k a PX 100` + first + ` => [:1700000000000001 :100 :1]
			LOCK.ACQUIRE k b PX 100 SHARED => nil-array
			LOCK.ACQUIRE k a PX 50 SHARED => [:1700000000000001 :100 :1]
			LOCK.ACQUIRE k b PX 300 SHARED => [:1700000000000002 :300 :1]
			LOCK.ACQUIRE k c PX 100 => nil-array
			LOCK.RELEASE k a => :0
			PTTL k => :300
			LOCK.RELEASE k b => :0
			EXISTS k => :0`)
	}
	d := newTokenDB(t)
	d.script(`
		LOCK.ACQUIRE k a PX 100 REENTRANT => [:1700000000000001 :100 :1]
		LOCK.ACQUIRE k a PX 100 REENTRANT => [:1700000000000001 :100 :2]
		LOCK.ACQUIRE k a PX 100 SHARED => -LOCKMODE the owner holds this lock more than once, or not alone: it can share it only while it holds it once
		LOCK.ACQUIRE k a PX 100 MAXHOLD 100 => nil-array
		LOCK.ACQUIRE k a PX 100 MAXHOLD 100 REENTRANT => -LOCKMODE the owner holds this lock in another form: release it first
		SET e a => +OK
		LOCK.ACQUIRE e a PX 100 SHARED => -LOCKMODE the owner holds this lock without a time to live: release it first, or give it one (PEXPIRE)
		SET f a PX 60000 => +OK
		LOCK.ACQUIRE f a PX 100 SHARED MAXHOLD 200 => [:1700000000000003 :60000 :1]
		LOCK.RENEW f a PX 100 ATLEAST => :1
		PTTL f => :60000
		LOCK.ACQUIRE g a PX 100 MAXHOLD 500 => [:1700000000000004 :100 :1]
		LOCK.ACQUIRE g a PX 100 LIMIT 2 => -LOCKMODE the owner holds this lock in another form: release it first`)
}

// TestLimitedLock: the holders of a lock with a limit have no more permits together, and tokens of their own.
func TestLimitedLock(t *testing.T) {
	d := newTokenDB(t)
	d.script(`
		LOCK.ACQUIRE k a PX 100 LIMIT 3 PERMITS 2 => [:1700000000000001 :100 :1]
		LOCK.ACQUIRE k b PX 100 LIMIT 3 PERMITS 2 => nil-array
		LOCK.ACQUIRE k b PX 100 LIMIT 4 => -LOCKMODE this lock has been taken with LIMIT 3: all must name the same limit
		LOCK.ACQUIRE k b PX 100 SHARED => -LOCKMODE this lock has been taken with LIMIT 3: all must name the same limit
		LOCK.ACQUIRE k b PX 100 => nil-array
		LOCK.ACQUIRE k b PX 200 LIMIT 3 => [:1700000000000002 :200 :1]
		LOCK.ACQUIRE k b PX 200 LIMIT 3 => nil-array
		LOCK.ACQUIRE k b PX 200 LIMIT 3 PERMITS 2 REENTRANT => -LOCKMODE the owner holds another number of PERMITS of this lock
		LOCK.ACQUIRE k b PX 200 LIMIT 3 REENTRANT => [:1700000000000002 :200 :2]
		LOCK.TOKEN k => -LOCKMODE each holder of this lock has a token of its own: name one with OWNER
		LOCK.TOKEN k OWNER a => :1700000000000001
		LOCK.CHECK k 1700000000000002 OWNER b => :1
		LOCK.CHECK k 1700000000000001 OWNER b => :0
		@advance 101
		LOCK.CHECK k 1700000000000001 OWNER a => :0
		LOCK.RELEASE k a => nil
		LOCK.ACQUIRE k a PX 100 LIMIT 3 PERMITS 2 => [:1700000000000003 :100 :1]
		LOCK.RENEW k a PX 300 TOKEN 1700000000000001 => :0
		LOCK.RENEW k a PX 300 TOKEN 1700000000000003 => :1
		DEL k => :1
		LOCK.RELEASE k a => nil`)
}

// TestMaxHold: renewals do not go beyond MAXHOLD, and say so.
func TestMaxHold(t *testing.T) {
	d := newTokenDB(t)
	d.script(`
		LOCK.ACQUIRE k a PX 100 MAXHOLD 250 => [:1700000000000001 :100 :1]
		@advance 90
		LOCK.RENEW k a PX 100 => :1
		@advance 90
		LOCK.RENEW k a PX 100 => :2
		PTTL k => :70
		LOCK.ACQUIRE k a PX 900 REENTRANT => [:1700000000000001 :70 :2]
		@advance 71
		LOCK.RENEW k a PX 100 => :0
		EXISTS k => :0
		LOCK.ACQUIRE k a PX 1000 MAXHOLD 250 => [:1700000000000002 :250 :1]`)
}

// TestLockDelay: after a lease that its owner let end, only that owner gets the lock before the delay is over; after a release all do.
func TestLockDelay(t *testing.T) {
	d := newTokenDB(t)
	d.script(`
		LOCK.ACQUIRE k a PX 100 DELAY 500 => [:1700000000000001 :100 :1]
		LOCK.RELEASE k a => :0
		LOCK.ACQUIRE k b PX 100 DELAY 500 => [:1700000000000002 :100 :1]
		@advance 101
		LOCK.TOKEN k => nil
		LOCK.CHECK k 1700000000000002 => :0
		LOCK.RENEW k b PX 100 => :0
		LOCK.RELEASE k b => nil
		LOCK.TOKEN k OWNER b => nil
		LOCK.ACQUIRE k a PX 100 => nil-array
		SET k a NX => nil
		PTTL k => :499
		LOCK.ACQUIRE k b PX 100 DELAY 500 => [:1700000000000003 :100 :1]
		LOCK.RELEASE k b LAPSE => :0
		LOCK.RENEW k b PX 100 => :0
		PTTL k => :500
		LOCK.ACQUIRE k a PX 100 => nil-array
		@advance 501
		LOCK.ACQUIRE k a PX 100 => [:1700000000000004 :100 :1]
		DEL k => :1
		LOCK.ACQUIRE k a PX 100 LIMIT 2 DELAY 500 => [:1700000000000005 :100 :1]
		LOCK.ACQUIRE k b PX 900 LIMIT 2 => [:1700000000000006 :900 :1]
		@advance 101
		LOCK.ACQUIRE k c PX 100 LIMIT 2 => nil-array
		LOCK.ACQUIRE k a PX 100 LIMIT 2 => [:1700000000000007 :100 :1]
		@advance 101
		LOCK.ACQUIRE k c PX 100 LIMIT 2 => [:1700000000000008 :100 :1]`)
}

// TestRevokedLock: a holder whose lock was asked for learns it when it renews, and the next owner does not.
func TestRevokedLock(t *testing.T) {
	d := newTokenDB(t)
	var said []string
	d.sink = sinkFunc(func(_ PublishKind, channel, message string) { said = append(said, channel+" "+message) })
	d.script(`
		LOCK.REVOKE k REASON x => :0
		LOCK.ACQUIRE k a PX 100 => [:1700000000000001 :100 :1]
		LOCK.REVOKE k REASON "a deploy" => :1
		LOCK.RENEW k a PX 100 => :2
		SET k a XX PX 100 => +OK
		LOCK.RENEW k a PX 100 => :2
		LOCK.RELEASE k a => :0
		LOCK.ACQUIRE k b PX 100 => [:1700000000000002 :100 :1]
		LOCK.RENEW k b PX 100 => :1
		LOCK.REVOKE k REASON x => :1
		SET k c PX 100 => +OK
		LOCK.RENEW k c PX 100 => :1
		DEL k => :1
		LOCK.ACQUIRE k a PX 100 REENTRANT => [:1700000000000004 :100 :1]
		LOCK.REVOKE k REASON x => :1
		LOCK.RENEW k a PX 100 => :2
		DEL k => :1
		LOCK.ACQUIRE k a PX 100 SHARED => [:1700000000000005 :100 :1]
		LOCK.ACQUIRE k b PX 100 SHARED => [:1700000000000006 :100 :1]
		LOCK.REVOKE k REASON x => :2
		LOCK.ACQUIRE k c PX 100 SHARED => [:1700000000000007 :100 :1]
		LOCK.RENEW k a PX 100 => :2
		LOCK.RENEW k c PX 100 => :1
		DEL k => :1
		LOCK.ACQUIRE k a PX 100 => [:1700000000000008 :100 :1]
		LOCK.REVOKE k REASON x => :1
		LOCK.ACQUIRE k a PX 100 SHARED => [:1700000000000008 :100 :1]
		LOCK.RENEW k a PX 100 => :2
		LOCK.RELEASE k a => :0
		LOCK.ACQUIRE k a PX 100 DELAY 500 => [:1700000000000009 :100 :1]
		@advance 101
		LOCK.REVOKE k REASON x => :0
		SADD s a => :1
		LOCK.REVOKE s REASON x => -WRONGTYPE Operation against a key holding the wrong kind of value
		LOCK.REVOKE k BECAUSE x => -ERR syntax error`)
	if want := `__lock@0__:revoked {"key":"k","reason":"a deploy","token":1700000000000001}`; len(said) != 5 || said[0] != want {
		t.Errorf("%q", said)
	}
}

type sinkFunc func(kind PublishKind, channel, message string)

func (f sinkFunc) Publish(kind PublishKind, channel, message string) { f(kind, channel, message) }

// TestLockWithHoldersIsNoOtherKey: commands that would give such a lock's holders another lease, or the lock another name, are refused, and
// change nothing.
func TestLockWithHoldersIsNoOtherKey(t *testing.T) {
	for _, call := range []string{
		"EXPIRE k 1", "PEXPIRE k 1", "PEXPIREAT k 1", "EXPIRE k -1", "EXPIRE k 99 NX", "PERSIST k", "RENAME k k2", "RENAMENX k k2", "COPY k k2", "MOVE k 1", "DUMP k",
		"GET k", "HSET k f v", "SADD k m", "LPUSH k v", "ZADD k 1 m", "APPEND k v", "GETEX k PX 5", "HINCRBY k a 1", "DELIFEQ k a", "SET k v IFEQ a", "SORT k",
		"LOCK.FENCE k 1",
	} {
		d := newTokenDB(t)
		d.do("LOCK.ACQUIRE", "k", "a", "PX", "100", "SHARED")
		before := d.encode()
		if got := d.do(words(call)...); !strings.HasPrefix(got, "-LOCKMODE") && !strings.HasPrefix(got, "-WRONGTYPE") {
			t.Errorf("%s: %s", call, got)
		}
		if !bytes.Equal(before, d.encode()) {
			t.Errorf("%s: the state has changed", call)
		}
	}
}

// TestBadLockOptions: LOCK.ACQUIRE refuses what it does not understand, and changes nothing.
func TestBadLockOptions(t *testing.T) {
	long := strings.Repeat("x", MaxLockName+1)
	for call, want := range map[string]string{
		"k a PX 100 SHARED LIMIT 2":                      string(ErrSharedAndLimit),
		"k a PX 100 PERMITS 2":                           string(ErrPermitsWithoutLimit),
		"k a PX 100 LIMIT 0":                             string(ErrLockLimit),
		"k a PX 100 LIMIT x":                             string(ErrLockLimit),
		"k a PX 100 LIMIT 9007199254740993":              string(ErrLockLimit),
		"k a PX 100 LIMIT 2 PERMITS 3":                   string(ErrLockPermits),
		"k a PX 100 LIMIT 2 PERMITS 0":                   string(ErrLockPermits),
		"k a PX 100 DELAY -1":                            string(ErrLockDelay),
		"k a PX 100 DELAY 3600001":                       string(ErrLockDelay),
		"k a PX 100 MAXHOLD 0":                           "ERR invalid expire time in 'lock.acquire' command",
		"k a PX 100 MAXHOLD 9223372036854775807":         "ERR invalid expire time in 'lock.acquire' command",
		"k a PX 100 MAXHOLD x":                           string(ErrNotInteger),
		"k a PX 100 SHARED SHARED":                       string(ErrSyntax),
		"k a PX 100 LIMIT":                               string(ErrSyntax),
		"k a PX 100 LAPSE":                               string(ErrSyntax),
		"k " + long + " PX 100 SHARED":                   string(ErrLockName),
		long + " a PX 100 SHARED":                        string(ErrLockName),
		"k a PX 9000 MAXHOLD 1000 SESSION":               string(ErrShortSession),
		"k a PX 100 LIMIT 2 PERMITS 1 DELAY 9 SHARED":    string(ErrSharedAndLimit),
		"k a PX 100 LIMIT 2 PERMITS 9223372036854775807": string(ErrLockPermits),
	} {
		d := newTokenDB(t)
		if got := d.do(append([]string{"LOCK.ACQUIRE"}, words(call)...)...); got != "-"+want || d.wrote > 0 {
			t.Errorf("%s: %s, %d writes", call, got, d.wrote)
		}
	}
}

// encode returns the state as a snapshot.
func (d *testDB) encode() []byte {
	d.t.Helper()
	var buf bytes.Buffer
	if err := d.s.Snapshot().Encode(&buf); err != nil {
		d.t.Fatal(err)
	}
	keys := 0
	for db := range Databases {
		n, _ := d.s.Keys(db)
		keys += n
	}
	if n, err := Skim(bytes.NewReader(buf.Bytes())); err != nil || n != keys {
		d.t.Fatalf("Skim finds %d keys of %d: %v", n, keys, err)
	}
	return buf.Bytes()
}

// TestManyHolders: the work of one command does not grow with the number of holders, and those whose time is over go in parts.
func TestManyHolders(t *testing.T) {
	const many = deadHolders + 5000
	d := newTokenDB(t)
	for i := range many {
		d.do("LOCK.ACQUIRE", "k", fmt.Sprint("owner", i), "PX", "1000", "SHARED")
	}
	if n := d.s.dbs[0].get("k").Lock().Len(); n != many {
		t.Fatalf("%d holders", n)
	}
	d.advance(1500)
	d.do("LOCK.ACQUIRE", "k", "last", "PX", "2000", "SHARED")
	if d.wrote > lookAtHolders+1 {
		t.Errorf("one command makes %d writes", d.wrote)
	}
	rounds := 0
	for ; d.s.dbs[0].get("k").Lock().Len() > 1; rounds++ {
		txn := d.begin()
		txn.ExpireDue(100, 4096, 1<<20)
		if txn.Writes().Size() > 4096 {
			t.Fatalf("one round makes %d bytes", txn.Writes().Size())
		}
		d.apply(txn)
		if rounds > many {
			t.Fatal("the holders do not go")
		}
	}
	if got := d.do("PTTL", "k"); got != ":2000" {
		t.Error(got)
	}
	for i := range 9000 {
		d.do("LOCK.ACQUIRE", "k", fmt.Sprint("owner", i), "PX", "1000", "SHARED")
	}
	d.advance(2001)
	if got := d.do("SET", "k", "v", "NX"); got != "+OK" {
		t.Errorf("the lock of 9000 holders that are gone is not free: %s", got)
	}
}

// TestHolderStaysGone: a holder whose lease was said to be over is over for a next leader, too, whose clock is behind.
func TestHolderStaysGone(t *testing.T) {
	for _, form := range []string{"SHARED", "SHARED DELAY 5000", "LIMIT 2 DELAY 5000", "DELAY 5000"} {
		for _, call := range []string{"LOCK.CHECK k 1700000000000001 OWNER a", "LOCK.RENEW k a PX 100", "LOCK.TOKEN k OWNER a", "LOCK.RELEASE k a"} {
			d := newTokenDB(t)
			d.do(words("LOCK.ACQUIRE k a PX 100 " + form)...)
			d.do(words("LOCK.ACQUIRE k b PX 60000 " + form)...)
			at := d.now
			d.advance(101)
			txn := d.begin()
			d.run(txn, words(call)...)
			txn.ExpireSeen(1 << 20)
			d.apply(txn)
			d.now = at
			if got := d.do("LOCK.RENEW", "k", "a", "PX", "100"); got != ":0" {
				t.Errorf("%s: after %s the lock has its former holder again", form, call)
			}
		}
	}
}

// TestMaxHoldIsNotLengthened: renewals do not lengthen a lease beyond MAXHOLD, however late their replies are.
func TestMaxHoldIsNotLengthened(t *testing.T) {
	d := newTokenDB(t)
	d.env.Grace = func(uint64) int64 { return 40 }
	d.do("LOCK.ACQUIRE", "k", "a", "PX", "1000", "MAXHOLD", "1000")
	for range 50 {
		d.advance(20)
		if got := d.do("LOCK.RENEW", "k", "a", "PX", "1000"); got != ":2" {
			t.Fatal(got)
		}
	}
	d.advance(81) // the lateness of one reply, which has moved the deadline, and that of the last
	if got := d.do("EXISTS", "k"); got != ":0" {
		t.Errorf("the lock lives on: PTTL %s", d.do("PTTL", "k"))
	}
	// Renewed within its grace, it keeps the rest of it.
	d.do("LOCK.ACQUIRE", "k", "a", "PX", "1000", "MAXHOLD", "1000")
	d.advance(1020)
	d.script(`
		LOCK.RENEW k a PX 1000 => :2
		LOCK.ACQUIRE k a PX 1000 REENTRANT => [:1700000000000002 :0 :2]
		LOCK.ACQUIRE k b PX 1000 => nil-array`)
}

package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// told runs commands, and returns the events that they have caused.
func (d *testDB) told(commands ...string) (list []LockEvent) {
	d.t.Helper()
	for _, line := range commands {
		txn := d.begin()
		d.s.Witness(true)
		txn.ExpireDue(100, 1<<20, 1<<20)
		d.run(txn, words(line)...)
		list = append(list, d.witnessed(txn)...)
	}
	return list
}

// witnessed applies a transaction, and returns its events.
func (d *testDB) witnessed(txn *Txn) (list []LockEvent) {
	d.t.Helper()
	writes := slices.Clone(txn.Writes().Bytes())
	if len(writes) == 0 {
		return nil
	}
	d.seq++
	if err := d.s.Apply(writes, d.seq, d.sink); err != nil {
		d.t.Fatal(err)
	}
	for _, e := range d.s.LockEvents() {
		e.Key, e.Owner = strings.Clone(e.Key), strings.Clone(e.Owner)
		list = append(list, e)
	}
	for i := range writes {
		writes[i] = '!'
	}
	return list
}

// plain returns events as text, without tokens and deadlines.
func plain(list []LockEvent) string {
	var b strings.Builder
	for _, e := range list {
		fmt.Fprintf(&b, "%v %s %s %s %d", e.How, e.Key, e.Kind, e.Owner, e.Holds)
		if e.Reason != "" {
			fmt.Fprintf(&b, " (%s: %s)", e.User, e.Reason)
		}
		b.WriteString("; ")
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func TestLockEvents(t *testing.T) {
	for commands, want := range map[string]string{
		"SET k a NX PX 100":                                     "granted k plain a 1",
		"SETNX k a":                                             "granted k plain a 1",
		"SET k a NX PX 100|SET k b NX PX 100":                   "granted k plain a 1",
		"SET k a NX PX 100|DEL k":                               "granted k plain a 1; released k plain a 0",
		"SET k a NX PX 100|PEXPIRE k 500":                       "granted k plain a 1; renewed k plain a 1",
		"SET k a NX PX 100|SET k a PX 500":                      "granted k plain a 1; renewed k plain a 1",
		"SET k a NX PX 100|GETSET k b":                          "granted k plain a 1; replaced k plain a 0; granted k plain b 1",
		"SET k a NX PX 100|PERSIST k":                           "granted k plain a 1; renewed k plain a 1",
		"SET k a PX 100|SET k b|HSET h f 1|RPUSH l x|DEL h l k": "",
		"SET k a NX PX 100|RENAME k l":                          "granted k plain a 1; moved k plain a 0; granted l plain a 1",
		"SET k a NX PX 100|MOVE k 3":                            "granted k plain a 1; moved k plain a 0; granted k plain a 1",
		"SET k a NX PX 100|COPY k l":                            "granted k plain a 1; granted l plain a 1",
		"SET k a NX PX 100|FLUSHDB":                             "granted k plain a 1; flushed    0",
		"SET k a NX PX 100|SWAPDB 0 3":                          "granted k plain a 1; swapped    3",
		"SET k a NX PX 100|SADD s m|SUNIONSTORE k s":            "granted k plain a 1; released k plain a 0",
		"SET k a NX PX 100|LOCK.FORCE k REASON stuck":           "granted k plain a 1; forced k plain a 0 (: stuck)",
		"SET k a NX PX 100|LOCK.REVOKE k REASON move":           "granted k plain a 1; revoked k plain  1 (: move)",
		"LOCK.ACQUIRE k a PX 100|LOCK.RELEASE k a":              "granted k plain a 1; released k plain a 0",
		"LOCK.ACQUIRE k a PX 100|LOCK.RENEW k a PX 900":         "granted k plain a 1; renewed k plain a 1",
		"LOCK.ACQUIRE k a PX 9 REENTRANT|LOCK.ACQUIRE k a PX 9 REENTRANT|LOCK.RELEASE k a|LOCK.RELEASE k a": "granted k reentrant a 1; granted k reentrant a 2; released k reentrant a 1; released k reentrant a 0",
		"LOCK.ACQUIRE k a PX 9 SHARED|LOCK.ACQUIRE k b PX 9 SHARED|LOCK.RELEASE k a|LOCK.RELEASE k b":       "granted k shared a 1; granted k shared b 1; released k shared a 0; released k shared b 0",
		"LOCK.ACQUIRE k a PX 9 LIMIT 3 PERMITS 2|LOCK.FORCE k REASON x OWNER a":                             "granted k limit a 1; forced k limit a 0 (: x)",
		"HSET k " + redissonA + " 1|HINCRBY k " + redissonA + " 1|HINCRBY k " + redissonA + " -1|DEL k":     "granted k redisson " + redissonA + " 1; granted k redisson " + redissonA + " 2; released k redisson " + redissonA + " 1; released k redisson " + redissonA + " 0",
		"HSET k mode read " + redissonA + " 1|HSET k " + redissonB + " 1|HDEL k " + redissonA:               "granted k redisson-readwrite " + redissonA + " 1; granted k redisson-readwrite " + redissonB + " 1; released k redisson-readwrite " + redissonA + " 0",
	} {
		d := newTokenDB(t)
		if got := plain(d.told(strings.Split(commands, "|")...)); got != want {
			t.Errorf("%s\n got  %s\n want %s", commands, got, want)
		}
	}
}

// A lease that ends by itself is told apart from a release, for every form of a lock.
func TestLockEventsOfLeasesThatEnd(t *testing.T) {
	for _, made := range []string{"SET k a NX PX 100", "LOCK.ACQUIRE k a PX 100 REENTRANT", "LOCK.ACQUIRE k a PX 100 SHARED", "LOCK.ACQUIRE k a PX 100 DELAY 1000", "LOCK.ACQUIRE k a PX 100 LIMIT 2",
		"LOCK.ACQUIRE k a PX 100 MAXHOLD 1000"} {
		for _, next := range []string{"PING", "LOCK.ACQUIRE k b PX 100", "LOCK.ACQUIRE k a PX 100 SHARED", "SET k c"} {
			d := newTokenDB(t)
			d.told(made)
			d.advance(5000)
			got := d.told(strings.Replace(next, "PING", "EXISTS k", 1))
			if len(got) == 0 || got[0].How != LockExpired || got[0].Owner != "a" {
				t.Errorf("%s, then %s: %s", made, next, plain(got))
			}
		}
	}
	d := newTokenDB(t)
	d.told("LOCK.ACQUIRE k a PX 100 SHARED DELAY 1000")
	if got := plain(d.told("LOCK.RELEASE k a")); got != "released k shared a 0" {
		t.Error(got)
	}
}

// The deadline that a client sets in the same script as the lock belongs to the grant.
func TestGrantHasItsDeadline(t *testing.T) {
	d := newTokenDB(t)
	txn := d.begin()
	d.s.Witness(true)
	for _, line := range []string{"HSET k " + redissonA + " 1", "PEXPIRE k 500"} {
		d.run(txn, words(line)...)
	}
	d.apply(txn)
	if got := d.s.LockEvents(); len(got) != 1 || got[0].How != LockGranted || got[0].Deadline != d.now.Lease+500 {
		t.Errorf("%+v", got)
	}
}

// A client cannot forge the word of LOCK.FORCE, because no command of clients writes a message of that kind.
func TestForcedIsNotForged(t *testing.T) {
	d := newTokenDB(t)
	if got := plain(d.told("SET k a NX", `PUBLISH __lock@0__:forced "{}"`, "DEL k")); got != "granted k plain a 1; released k plain a 0" {
		t.Error(got)
	}
}

func TestLongNamesAreShortened(t *testing.T) {
	d := newTokenDB(t)
	long := strings.Repeat("é", 1<<20)
	for _, e := range d.told("SET "+long+"1 "+long+" NX", "DEL "+long+"1", "SET "+long+"2 x NX", "LOCK.FORCE "+long+"2 REASON "+long) {
		if len(e.Key) > MaxLockName || len(e.Owner) > MaxLockName || len(e.Reason) > MaxLockName {
			t.Errorf("%d %d %d", len(e.Key), len(e.Owner), len(e.Reason))
		}
	}
	if ShortName(long+"1") == ShortName(long+"2") {
		t.Error("two names became one")
	}
}

// holdersByEvents follows events, and says who holds which lock by them.
type holdersByEvents map[string]int64

func (h holdersByEvents) follow(e LockEvent) error {
	id := fmt.Sprintf("%d/%s/%s/%d", e.DB, e.Key, e.Owner, e.Token)
	switch {
	case e.How == LockFlushed:
		for k := range h {
			if strings.HasPrefix(k, fmt.Sprintf("%d/", e.DB)) {
				delete(h, k)
			}
		}
	case e.How == LockGranted:
		h[id] = e.Holds
	case e.How.Ends():
		if h[id] == 0 {
			return fmt.Errorf("%v without a grant: %s", e.How, id)
		}
		if h[id] = e.Holds; e.Holds == 0 {
			delete(h, id)
		}
	}
	return nil
}

// Whatever commands run: who follows the events knows the owners of every lock at every time.
func TestLockEventsTellTheHolders(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := newTokenDB(t)
		known, log := holdersByEvents{}, []string{}
		pick := func(of ...string) string { return of[r.IntN(len(of))] }
		for range 200 {
			key, owner := pick("k", "l", "m"), pick("a", "b", symfonyA, symfonyB, redissonA, redissonB, redissonA+"1", redissonA+"2", redissonA+"3", redissonA+"4")
			line := strings.NewReplacer("<K>", key, "<O>", owner, "<L>", pick("k", "l", "m")).Replace(pick(
				"SET <K> <O> NX PX 100", "SET <K> <O> NX", "SET <K> <O> PX 200", "SET <K> <O> XX KEEPTTL", "GETSET <K> <O>", "APPEND <K> x", "SETNX <K> <O>", "DEL <K>", "PEXPIRE <K> 50", "PERSIST <K>",
				"LOCK.ACQUIRE <K> <O> PX 100", "LOCK.ACQUIRE <K> <O> PX 100 REENTRANT", "LOCK.ACQUIRE <K> <O> PX 100 SHARED", "LOCK.ACQUIRE <K> <O> PX 100 LIMIT 3 PERMITS 2", "LOCK.ACQUIRE <K> <O> PX 100 SHARED DELAY 100",
				"LOCK.ACQUIRE <K> <O> PX 100 MAXHOLD 150", "LOCK.RENEW <K> <O> PX 300", "LOCK.RELEASE <K> <O>", "LOCK.RELEASE <K> <O>", "LOCK.FORCE <K> REASON why", "LOCK.FORCE <K> REASON why OWNER <O>", "LOCK.REVOKE <K> REASON r",
				"HINCRBY <K> <O> 1", "HINCRBY <K> <O> -1", "HSET <K> mode read", "HSET <K> mode write", "HSET <K> "+redissonA+":write 1", "HDEL <K> <O>", "HDEL <K> mode", "RPUSH redisson_lock_queue:{<K>} <O>", "ZADD <K> 1 <O>", "ZREM <K> <O>", "ZADD <K> 2 "+symfonyWrite, "HSET <K> <O> "+redissonA, "SET <K> 7", "DEL redisson_lock_queue:{<K>}",
				"RENAME <K> <L>", "COPY <K> <L> REPLACE", "COPY <K> <L>", "MOVE <K> 1", "SUNIONSTORE <K> none", "RPUSH <K> x", "FLUSHDB", "DELIFEQ <K> <O>", "GETDEL <K>", "SET <K> 1 NX", "INCR <K>", "SETRANGE <K> 0 z", "ADVANCE"))
			if line == "ADVANCE" {
				d.advance(int64(r.IntN(150)))
				continue
			}
			log = append(log, line)
			for _, e := range d.told(line) {
				if err := known.follow(e); err != nil && e.Owner != "" {
					t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(log, "\n"))
				}
			}
			want := holdersByEvents{}
			w := newWitness(d.s)
			w.left = witnessSteps
			for db := range 2 {
				d.s.dbs[db].keys.ascend(0, func(e slot) bool {
					p := lockPlace{db: db, key: e.key, all: true}
					for _, h := range w.holders(&p, nil) {
						want[fmt.Sprintf("%d/%s/%s/%d", db, e.key, h.owner, h.token)] = h.holds
					}
					return true
				})
			}
			if fmt.Sprint(known) != fmt.Sprint(want) {
				t.Fatalf("seed %d:\nby events %v\nthere are %v\n%s", seed, known, want, strings.Join(log, "\n"))
			}
		}
	}
}

package store

import (
	"strings"
	"testing"
)

// lease is what a reply has promised to a key's owner: a deadline, and the write set whose lateness is added to the deadline.
type lease struct{ deadline, leased int64 }

// leasesOf lists the lease of every key that has one.
func leasesOf(txn *Txn) map[lapsedKey]lease {
	all := map[lapsedKey]lease{}
	for db := range Databases {
		txn.Ascend(db, 0, func(e *Entry) bool {
			if e.deadline != 0 {
				all[lapsedKey{db, e.key}] = lease{e.deadline, int64(e.leased)}
			}
			return true
		})
	}
	return all
}

// keeping has examples for each command that writes; their keys have a deadline. "sets" marks a command that sets a deadline.
var keeping = map[string]struct {
	sets bool
	runs []string
}{
	"set":   {runs: []string{"set n 1 keepttl", "set h 1 xx keepttl", "set n 1", "set n 1 nx keepttl", "set n 1 keepttl ifeq 5", "set n 1 keepttl ifne 1", "set n 1 ifeq 1"}},
	"setnx": {runs: []string{"setnx n 1"}}, "getset": {runs: []string{"getset n 1"}},
	"setex": {true, []string{"setex n 9 1"}}, "psetex": {true, []string{"psetex n 900 1"}},
	"getdel": {runs: []string{"getdel n"}}, "delex": {runs: []string{"delex n", "delex n ifeq 5", "delex n ifne 5"}}, "delifeq": {runs: []string{"delifeq n 5", "delifeq n 6"}},
	"getex": {runs: []string{"getex n", "getex n persist"}},
	"mset":  {runs: []string{"mset n 1"}}, "msetnx": {runs: []string{"msetnx n 1", "msetnx n 1 new 1"}},
	"append": {runs: []string{"append n 5", "append n ''"}}, "setrange": {runs: []string{"setrange n 0 7", "setrange n 9 7", "setrange n 0 ''"}},
	"incr": {runs: []string{"incr n"}}, "decr": {runs: []string{"decr n"}}, "incrby": {runs: []string{"incrby n 95"}}, "decrby": {runs: []string{"decrby n 95"}},
	"incrbyfloat": {runs: []string{"incrbyfloat n 0.5", "incrbyfloat n 0"}},
	"setbit":      {runs: []string{"setbit n 3 1", "setbit n 99 1"}}, "bitfield": {runs: []string{"bitfield n set u8 0 9 incrby u4 70 1", "bitfield n get u8 0"}},
	"bitop": {runs: []string{"bitop not n n", "bitop and n n n"}},
	"del":   {runs: []string{"del n"}}, "unlink": {runs: []string{"unlink n"}},
	"expire": {true, []string{"expire n 5"}}, "pexpire": {true, []string{"pexpire n 5000"}}, "expireat": {true, []string{"expireat n 1800000000"}},
	"pexpireat": {true, []string{"pexpireat n 1800000000000"}}, "persist": {runs: []string{"persist n"}},
	"rename": {runs: []string{"rename n new", "rename n l"}}, "renamenx": {runs: []string{"renamenx n new", "renamenx n l"}},
	"copy": {runs: []string{"copy n new", "copy n l replace", "copy n n db 3"}}, "move": {runs: []string{"move n 3"}},
	"swapdb": {runs: []string{"swapdb 0 3"}}, "flushdb": {runs: []string{"flushdb"}}, "flushall": {runs: []string{"flushall"}},
	"restore": {runs: []string{"restore n 0 DUMPED replace", "restore new 0 DUMPED"}},
	"sort":    {runs: []string{"sort l store l", "sort l store n"}},
	"hset":    {runs: []string{"hset h f 2 g 3"}}, "hmset": {runs: []string{"hmset h f 2"}}, "hsetnx": {runs: []string{"hsetnx h f 1", "hsetnx h g 1"}},
	"hdel": {runs: []string{"hdel h g", "hdel h f"}}, "hincrby": {runs: []string{"hincrby h f 1", "hincrby h g 1"}}, "hincrbyfloat": {runs: []string{"hincrbyfloat h f 1.5"}},
	"lpush": {runs: []string{"lpush l x"}}, "rpush": {runs: []string{"rpush l x"}}, "lpushx": {runs: []string{"lpushx l x"}}, "rpushx": {runs: []string{"rpushx l x"}},
	"lset": {runs: []string{"lset l 0 7"}}, "linsert": {runs: []string{"linsert l before 1 0", "linsert l after 1 0"}}, "lrem": {runs: []string{"lrem l 0 1", "lrem l 0 none"}},
	"ltrim": {runs: []string{"ltrim l 0 0", "ltrim l 1 0"}}, "lpop": {runs: []string{"lpop l", "lpop l 9"}}, "rpop": {runs: []string{"rpop l", "rpop l 9"}},
	"lmove":     {runs: []string{"lmove l l left right", "lmove one one left right", "lmove one l left right", "lmove l one right left", "lmove l new left left"}},
	"rpoplpush": {runs: []string{"rpoplpush l l", "rpoplpush one one", "rpoplpush l one"}}, "lmpop": {runs: []string{"lmpop 2 new l left", "lmpop 1 l right count 9"}},
	"blpop": {runs: []string{"blpop l 0"}}, "brpop": {runs: []string{"brpop l 0"}}, "blmove": {runs: []string{"blmove l l left right 0", "blmove one one left right 0"}},
	"brpoplpush": {runs: []string{"brpoplpush l l 0", "brpoplpush one one 0"}}, "blmpop": {runs: []string{"blmpop 0 1 l left"}},
	"sadd": {runs: []string{"sadd s c", "sadd s a"}}, "srem": {runs: []string{"srem s a", "srem s a b"}}, "spop": {runs: []string{"spop s", "spop s 9"}},
	"smove":       {runs: []string{"smove s s a", "smove s t a", "smove t s z", "smove s new a"}},
	"sinterstore": {runs: []string{"sinterstore s s s", "sinterstore s s t"}}, "sunionstore": {runs: []string{"sunionstore s s t"}}, "sdiffstore": {runs: []string{"sdiffstore s s t"}},
	"zadd": {runs: []string{"zadd z 9 a", "zadd z xx 9 c", "zadd z gt incr 9 a"}}, "zincrby": {runs: []string{"zincrby z 1 a", "zincrby z 0 a"}},
	"zrem": {runs: []string{"zrem z a", "zrem z a b"}}, "zpopmin": {runs: []string{"zpopmin z", "zpopmin z 9"}}, "zpopmax": {runs: []string{"zpopmax z"}},
	"bzpopmin": {runs: []string{"bzpopmin z 0"}}, "bzpopmax": {runs: []string{"bzpopmax z 0"}}, "zmpop": {runs: []string{"zmpop 1 z min"}}, "bzmpop": {runs: []string{"bzmpop 0 1 z max count 9"}},
	"zremrangebyrank": {runs: []string{"zremrangebyrank z 0 0"}}, "zremrangebyscore": {runs: []string{"zremrangebyscore z 1 1"}}, "zremrangebylex": {runs: []string{"zremrangebylex z [a [a"}},
	"lock.fence":   {runs: []string{"lock.fence n 99", "lock.fence n 1"}},
	"lock.acquire": {true, []string{"lock.acquire new o px 900", "lock.acquire h f px 900 reentrant"}}, "lock.renew": {true, []string{"lock.renew n 5 px 900"}},
	"lock.release": {runs: []string{"lock.release n 5", "lock.release n o", "lock.release h f"}}, "lock.force": {runs: []string{"lock.force new reason x"}}, "lock.revoke": {runs: []string{"lock.revoke n reason x", "lock.revoke h reason x"}},
	"zrangestore": {runs: []string{"zrangestore z z 0 -1"}}, "zunionstore": {runs: []string{"zunionstore z 1 z"}}, "zinterstore": {runs: []string{"zinterstore z 2 z z"}}, "zdiffstore": {runs: []string{"zdiffstore z 2 z y"}},
}

// TestOnlyADeadlineMovesADeadline: a command that sets no deadline deletes existing ones, or keeps them with the numbers of their write
// sets.
func TestOnlyADeadlineMovesADeadline(t *testing.T) {
	for _, cmd := range Commands() {
		if cmd.Flags&Write == 0 {
			continue
		}
		c, ok := keeping[cmd.Name]
		if !ok {
			t.Errorf("%s writes, and has no example here", cmd.Name)
		}
		for _, run := range c.runs {
			d := leasedDB(t)
			before := leasesOf(d.begin())
			txn := d.begin()
			args := words(run)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "DUMPED", d.run(txn, "dump", "l").Str)
			}
			if r := d.run(txn, args...); r.IsError() {
				t.Errorf("%s: %s", run, render(r))
			}
			checkLeases(t, run, before, txn, c.sets)
			d.apply(txn)
			checkLeases(t, run+", applied", before, d.begin(), c.sets)
		}
	}
}

// leasedDB returns a database with a key of each type. The deadlines have passed, but the keys live on because the reply was late.
func leasedDB(t *testing.T) *testDB {
	d := newTokenDB(t)
	d.env.Grace = func(uint64) int64 { return 50 }
	for _, line := range []string{"set n 5", "hset h f 1", "rpush l 1 2 3", "rpush one 1", "sadd s a b", "sadd t z", "zadd z 1 a 2 b"} {
		d.do(words(line)...)
		d.do("pexpire", words(line)[1], "100")
	}
	d.advance(120)
	return d
}

func checkLeases(t *testing.T, what string, before map[lapsedKey]lease, txn *Txn, sets bool) {
	t.Helper()
	known := map[lease]bool{}
	for _, l := range before {
		known[l] = true
	}
	set := false
	for k, l := range leasesOf(txn) {
		if !known[l] {
			set = true
			if !sets {
				t.Errorf("%s: %s ends at %d, counted from write set %d; before it was %v", what, k.key, l.deadline, l.leased, before[k])
			}
		}
	}
	if sets && !set {
		t.Errorf("%s: no deadline was set", what)
	}
}

// TestKeptForOlderNodes: while a node may run version 0.1.0, commands that keep a deadline write only what that version knows, and end no
// lease earlier.
func TestKeptForOlderNodes(t *testing.T) {
	for _, run := range []string{"set n 1 keepttl", "incr n", "decr n", "incrby n 95", "decrby n 95", "incrbyfloat n 0.5"} {
		for _, older := range []bool{true, false} {
			d := leasedDB(t)
			d.env.Older = func() bool { return older }
			if older {
				d.s.tokens = tokens{} // such a node and tokens are never there together
			}
			before := d.begin().Lookup(0, []byte("n")).deadline
			txn := d.begin()
			if r := d.run(txn, words(run)...); r.IsError() {
				t.Fatalf("%s: %s", run, render(r))
			}
			version, deadline := byte(2), before
			if older {
				version, deadline = 1, before+50
			}
			if got := txn.Writes().Version(); got != version {
				t.Errorf("%s, older %t: an entry of version %d, want %d", run, older, got, version)
			}
			d.apply(txn)
			if e := d.begin().Lookup(0, []byte("n")); e == nil || e.deadline != deadline {
				t.Errorf("%s, older %t: afterwards %+v, want the deadline %d", run, older, e, deadline)
			}
		}
	}
}

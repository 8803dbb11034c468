package store

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
)

// birth is the number above which the tokens of a test begin.
const birth = 1_700_000_000_000_000

// newTokenDB returns a database that counts tokens.
func newTokenDB(t testing.TB) *testDB {
	d := newTestDB(t)
	txn := d.begin()
	txn.TokensAbove(birth)
	d.apply(txn)
	return d
}

// token returns the token of a key, less birth.
func (d *testDB) token(key string, more ...string) int {
	d.t.Helper()
	reply := d.do(append([]string{"LOCK.TOKEN", key}, more...)...)
	n, err := strconv.Atoi(strings.TrimPrefix(reply, ":"))
	if err != nil {
		d.t.Fatalf("the token of %s: %s", key, reply)
	}
	return n - birth
}

// TestTokensGrowWithTheOwner: each of these commands gives the lock a new owner, and so a larger token.
func TestTokensGrowWithTheOwner(t *testing.T) {
	for _, takes := range []string{
		"DEL lock; SET lock b NX PX 100",
		"@200; SET lock b NX PX 100",
		"@200; SET lock b",
		"@200; MSET lock b",
		"@200; APPEND lock b",
		"@200; SETRANGE lock 0 b",
		"@200; HSET lock b 1",
		"@200; SADD lock b",
		"@200; ZADD lock 1 b",
		"@200; LPUSH lock b",
		"@200; RENAME other lock",
		"@200; COPY other lock",
		"GETSET lock b",
		"SET lock b XX PX 100",
		"SET lock b XX KEEPTTL",
		"SET lock b IFEQ a",
		"SET lock b IFNE b KEEPTTL",
		"DELIFEQ lock a; SET lock a NX",
		"DELEX lock IFEQ a; SET lock a NX",
		"SETRANGE lock 0 b",
		"RENAME other lock",
		"COPY other lock REPLACE",
		"MSET lock b",
		"FLUSHALL; SET lock a NX",
		"FLUSHDB; SET lock a NX",
		"SUNIONSTORE lock members",
		"RESTORE lock 0 " + "\x00\x01b\x0b\x00\x73\x06\xd1\xf0\xba\xd9\x49\x4f" + " REPLACE",
		"SWAPDB 0 1; SWAPDB 0 1",
		"SWAPDB 0 1; SET lock b NX",
		"DEL lock; SWAPDB 0 1; SWAPDB 1 0; SET lock a NX",
		"MOVE lock 1; SET lock b NX",
	} {
		t.Run(takes, func(t *testing.T) {
			d := newTokenDB(t)
			d.do("SET", "other", "o")
			d.do("SADD", "members", "m")
			d.do("SET", "lock", "a", "NX", "PX", "100")
			first := d.token("lock")
			for _, line := range strings.Split(takes, "; ") {
				if ms, wait := strings.CutPrefix(line, "@"); wait {
					n, _ := strconv.Atoi(ms)
					d.advance(int64(n))
					continue
				}
				if got := d.do(strings.Split(line, " ")...); strings.HasPrefix(got, "-") && !strings.Contains(line, "RESTORE") {
					t.Fatal(line, got)
				}
			}
			if strings.Contains(takes, "RESTORE") {
				return // see TestTokenOfARestoredKey
			}
			if got := d.token("lock"); got <= first {
				t.Errorf("token %d after %d", got, first)
			}
		})
	}
}

// TestTokensStayWithTheOwner: none of these commands gives the lock a new owner.
func TestTokensStayWithTheOwner(t *testing.T) {
	for _, keeps := range []string{
		"PEXPIRE lock 200", "PERSIST lock", "SET lock a XX PX 100", "SET lock a KEEPTTL", "SET lock a NX PX 100", "GETSET lock a",
		"SET lock a IFEQ a PX 100", "SET lock b IFEQ b", "SET lock b IFNE a", "DELIFEQ lock b", "DELEX lock IFNE a",
		"SETRANGE lock 0 a", "GETEX lock PX 500", "SET lock b NX", "DEL other", "SET other b", "MSET lock a other z", "COPY lock copy",
		"SWAPDB 1 2",
	} {
		t.Run(keeps, func(t *testing.T) {
			d := newTokenDB(t)
			d.do("SET", "lock", "a", "NX", "PX", "100")
			first := d.token("lock")
			d.do(strings.Split(keeps, " ")...)
			if got := d.token("lock"); got != first {
				t.Errorf("token %d after %d", got, first)
			}
		})
	}
	d := newTokenDB(t)
	d.do("HSET", "lock", "a:1", "1")
	first := d.token("lock")
	d.do("HINCRBY", "lock", "a:1", "1")
	d.do("HSET", "lock", "mode", "read", "b:1", "1")
	d.do("HDEL", "lock", "a:1")
	if got := d.token("lock"); got != first {
		t.Errorf("a hash: token %d after %d", got, first)
	}
}

// TestTokenOfARestoredKey: RESTORE makes a new key.
func TestTokenOfARestoredKey(t *testing.T) {
	d := newTokenDB(t)
	d.do("SET", "lock", "a")
	first := d.token("lock")
	txn := d.begin()
	dumped := d.run(txn, "DUMP", "lock").Str
	d.do("RESTORE", "lock", "0", dumped, "REPLACE")
	if got := d.token("lock"); got <= first {
		t.Errorf("token %d after %d", got, first)
	}
}

// TestTwoOwnersInOneWriteSet: both get tokens of their own, as a batch of requests is one write set.
func TestTwoOwnersInOneWriteSet(t *testing.T) {
	d := newTokenDB(t)
	txn := d.begin()
	d.run(txn, "SET", "lock", "a", "NX")
	first := d.run(txn, "LOCK.TOKEN", "lock").Int
	d.run(txn, "DEL", "lock")
	d.run(txn, "SET", "lock", "b", "NX")
	second := d.run(txn, "LOCK.TOKEN", "lock").Int
	d.apply(txn)
	if first == second || second != int64(d.token("lock"))+birth {
		t.Errorf("tokens %d and %d, and then %d", first, second, d.token("lock")+birth)
	}
}

// TestRollbackTakesTokensBack: a write set has no writes that were rolled back, so a node that applies the write set does not count them.
func TestRollbackTakesTokensBack(t *testing.T) {
	d := newTokenDB(t)
	txn := d.begin()
	d.run(txn, "SET", "lock", "a", "NX")
	sp := txn.Savepoint()
	d.run(txn, "SET", "lock", "b")
	d.run(txn, "SET", "other", "b")
	d.run(txn, "SWAPDB", "0", "1")
	txn.Rollback(sp)
	d.run(txn, "SET", "third", "c")
	want := d.run(txn, "LOCK.TOKEN", "third").Int
	d.apply(txn)
	if got := int64(d.token("third")) + birth; got != want {
		t.Errorf("the token %d became %d", want, got)
	}
	if d.token("lock") != 1 || d.token("third") != 2 {
		t.Errorf("tokens %d and %d", d.token("lock"), d.token("third"))
	}
}

// TestTokensInASnapshot: a snapshot has the last token and those of SWAPDB. One without tokens stays readable for version 0.1.0.
func TestTokensInASnapshot(t *testing.T) {
	d := newTestDB(t)
	d.do("SET", "lock", "a")
	if d.s.Snapshot().Newer() {
		t.Error("a snapshot without tokens is newer")
	}
	if got := d.do("LOCK.TOKEN", "lock"); got != "-"+string(ErrNoTokens) {
		t.Error("a cluster that counts no tokens:", got)
	}
	d = newTestDB(t)
	txn := d.begin()
	txn.TokensAbove(birth)
	golden(t, "writeset-tokens.golden", txn.Writes().Bytes())
	if got := txn.Writes().Version(); got != 2 {
		t.Errorf("an entry of version %d, which 0.1.0 takes for its own", got)
	}
	d.apply(txn)
	d.do("SET", "lock", "a")
	d.do("SWAPDB", "0", "3")
	if !d.s.Snapshot().Newer() {
		t.Error("a snapshot with tokens is not newer")
	}
	d.do("SET", "lock", "b")
	before := d.token("lock")
	state := encode(t, d.s)
	golden(t, "snapshot-tokens.golden", state)
	restored, err := Restore(bytes.NewReader(state))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(encode(t, restored), state) {
		t.Error("another snapshot after Restore")
	}
	d.s = restored
	if d.token("lock") != before {
		t.Errorf("token %d after %d", d.token("lock"), before)
	}
	d.db = 3
	if got := d.token("lock"); got != 3 {
		t.Errorf("token %d of a swapped key, want that of the SWAPDB", got)
	}
	d.do("SET", "lock", "z")
	if got := d.token("lock"); got != before+1 {
		t.Errorf("token %d after %d", got, before)
	}
}

// TestImpossibleTokens: Restore refuses a snapshot whose next token has been given already, and Apply a first token that no leader logs.
func TestImpossibleTokens(t *testing.T) {
	key := func(w *snapWriter, token uint64) {
		w.WriteByte(recString)
		w.str("k")
		for _, n := range []uint64{0, token, 1, 1} {
			w.int(n)
		}
		w.str("v")
	}
	last := func(w *snapWriter, n uint64) { w.WriteByte(recTokens); w.int(n) }
	swap := func(w *snapWriter, db, n uint64) { w.WriteByte(recSwapToken); w.int(db); w.int(n) }
	for what, parts := range map[string]func(w *snapWriter){
		"a key with a later token":   func(w *snapWriter) { key(w, 9); last(w, 8) },
		"a swap with a later token":  func(w *snapWriter) { last(w, 8); swap(w, 1, 9) },
		"a swap of a database":       func(w *snapWriter) { last(w, 8); swap(w, 16, 8) },
		"no tokens, but a record":    func(w *snapWriter) { last(w, 0) },
		"more tokens than there are": func(w *snapWriter) { last(w, maxToken+1) },
	} {
		if _, err := handmade(0, parts); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	if _, err := handmade(0, func(w *snapWriter) { key(w, 8); last(w, 8); swap(w, 1, 8) }); err != nil {
		t.Error(err)
	}
	for _, n := range []int64{0, -1, MaxFirstToken + 1} {
		var w WriteSet
		w.begin(opTokens, 0)
		w.int(n)
		if err := New().Apply(w.Bytes(), 1, nil); err == nil {
			t.Errorf("tokens above %d: accepted", n)
		}
	}
}

// TestRaisedTokens: tokens and the counters of Redisson's fenced locks begin above the given number, and never become smaller.
func TestRaisedTokens(t *testing.T) {
	for _, d := range []*testDB{newTestDB(t), newTokenDB(t)} {
		d.do("SET", "redisson_lock_token:{l}", "41")
		d.do("SET", "redisson_lock_token:{big}", "4000000000000000")
		d.do("SET", "redisson_lock_token:{text}", "text")
		d.do("SET", "redisson_lock_token:{leased}", "5", "PX", "1000")
		d.do("HSET", "redisson_lock_token:{hash}", "f", "1")
		d.do("SET", "lock", "a")
		if err := d.s.RaiseTokens(2_000_000_000_000_000, d.seq); err != nil {
			t.Fatal(err)
		}
		d.script(`
			GET redisson_lock_token:{l} => "2000000000000000"
			GET redisson_lock_token:{big} => "4000000000000000"
			GET redisson_lock_token:{text} => "text"
			GET redisson_lock_token:{leased} => "2000000000000000"
			PTTL redisson_lock_token:{leased} => :1000
		`)
		d.do("SET", "new", "a")
		if got := d.token("new") + birth; got <= 2_000_000_000_000_000 {
			t.Errorf("token %d", got)
		}
		if err := d.s.RaiseTokens(1, d.seq); err != nil {
			t.Fatal(err)
		}
		before := d.token("new")
		d.do("SET", "newer", "a")
		if d.token("newer") <= before {
			t.Errorf("token %d after %d", d.token("newer"), before)
		}
	}
}

// TestLockCommands: the replies of the commands about tokens, and that bad input changes nothing.
func TestLockCommands(t *testing.T) {
	d := newTokenDB(t)
	d.script(`
		LOCK.TOKEN lock => nil
		LOCK.CHECK lock 1700000000000001 => :0
		SET lock a PX 1000 => +OK
		LOCK.TOKEN lock => :1700000000000001
		LOCK.TOKEN lock OWNER a => :1700000000000001
		LOCK.TOKEN lock owner b => nil
		LOCK.CHECK lock 1700000000000001 => :1
		LOCK.CHECK lock 1700000000000001 OWNER a => :1
		LOCK.CHECK lock 1700000000000001 OWNER b => :0
		LOCK.CHECK lock 1700000000000002 => :0
		LOCK.CHECK lock x => -ERR a token is an integer from 0 to 9223372036854775807
		LOCK.CHECK lock -1 => -ERR a token is an integer from 0 to 9223372036854775807
		LOCK.TOKEN lock OWNER => -ERR syntax error
		LOCK.TOKEN lock HOLDER a => -ERR syntax error
		LOCK.CHECK lock 1 OWNER a b => -ERR syntax error
		@advance 1001
		LOCK.TOKEN lock => nil
		LOCK.CHECK lock 1700000000000001 => :0
		HSET hash u:1 1 => :1
		LOCK.TOKEN hash OWNER u:1 => :1700000000000002
		LOCK.TOKEN hash OWNER u:2 => nil
		ZADD permits 5 p1 => :1
		LOCK.CHECK permits 1700000000000003 OWNER p1 => :1
		LOCK.CHECK permits 1700000000000003 OWNER p2 => :0
		SADD set m => :1
		LOCK.TOKEN set OWNER m => :1700000000000004
		RPUSH list e => :1
		LOCK.TOKEN list => :1700000000000005
		LOCK.TOKEN list OWNER e => -WRONGTYPE Operation against a key holding the wrong kind of value
		LOCK.FENCE res 10 => [:1 :10]
		LOCK.FENCE res 9 => [:0 :10]
		LOCK.FENCE res 10 => [:1 :10]
		LOCK.FENCE res 11 PX 500 => [:1 :11]
		PTTL res => :500
		LOCK.FENCE res 12 => [:1 :12]
		PTTL res => :500
		LOCK.FENCE res 12 PX 800 => [:1 :12]
		PTTL res => :800
		LOCK.FENCE res 3 PX 900 => [:0 :12]
		PTTL res => :800
		LOCK.FENCE res x => -ERR a token is an integer from 0 to 9223372036854775807
		LOCK.FENCE res 13 PX 0 => -ERR invalid expire time in 'lock.fence' command
		LOCK.FENCE res 13 PX x => -ERR value is not an integer or out of range
		LOCK.FENCE res 13 EX 1 => -ERR syntax error
		LOCK.FENCE hash 1 => -WRONGTYPE Operation against a key holding the wrong kind of value
		SET text word => +OK
		LOCK.FENCE text 1 => -ERR value is not an integer or out of range
		GET res => "12"
	`)
	d.do("LOCK.FENCE", "res", "12")
	if d.wrote != 0 {
		t.Error("the same token again is a write")
	}
}

// TestTokensWithAWrongClock: tokens begin above the numbers of the keys that version 0.1.0 has created, even if the time of day is wrong.
func TestTokensWithAWrongClock(t *testing.T) {
	d := newTestDB(t)
	d.seq = 499
	d.do("SET", "k", "v")
	txn := d.begin()
	txn.TokensAbove(-5)
	d.apply(txn)
	restored, err := Restore(bytes.NewReader(encode(t, d.s)))
	if err != nil {
		t.Fatal(err)
	}
	d.s = restored
	first := d.token("k")
	d.do("SET", "k", "w")
	if got := d.token("k"); got <= first {
		t.Errorf("token %d after %d", got, first)
	}
}

// A leader that has not heard of all nodes yet marks locks, if tokens are counted: then none of the nodes can be of version 0.1.0.
func TestLocksAreMarkedWhereTokensAreCounted(t *testing.T) {
	d := newTokenDB(t)
	d.env.Older = func() bool { return true }
	d.do("SET", "k", "a", "NX", "PX", "100")
	if got := d.do("LOCK.INFO", "k"); !strings.Contains(got, `"kind" "plain"`) {
		t.Error(got)
	}
}

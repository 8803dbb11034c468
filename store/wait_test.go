package store

import (
	"fmt"
	"testing"
)

// call runs a command as the sequencer does and returns what it waits for.
func (d *testDB) call(ready string, args ...string) (string, *Wait) {
	d.t.Helper()
	txn := d.begin()
	raw := make([][]byte, len(args))
	for i, a := range args {
		raw[i] = []byte(a)
	}
	cmd, ok := d.table.Resolve(raw)
	if !ok || !cmd.ArityOK(len(raw)) {
		d.t.Fatalf("%q is not a command", args)
	}
	c := &Ctx{Txn: txn, Cmd: cmd, Args: raw, RESP: d.resp}
	if ready != "" {
		c.Ready = []byte(ready)
	}
	r := cmd.Run(c)
	d.apply(txn)
	return render(r), c.Wait
}

func TestWait(t *testing.T) {
	for _, tc := range []struct {
		call, reply string
		keys        string
		typ         Type
		timeout     int64
	}{
		{"BLPOP a b 0", "nil-array", "[a b]", TypeList, 0},
		{"BRPOP a 1.5", "nil-array", "[a]", TypeList, 1500},
		{"BRPOP a 0.0001", "nil-array", "[a]", TypeList, 1},
		{"BRPOP a 0.0011", "nil-array", "[a]", TypeList, 2},
		{"BLMOVE a b left right 10", "nil", "[a]", TypeList, 10000},
		{"BRPOPLPUSH a b 9223372036854775", "nil", "[a]", TypeList, 9223372036854775000},
		{"BLMPOP 3 2 a b left", "nil-array", "[a b]", TypeList, 3000},
		{"BZPOPMIN a b 0", "nil-array", "[a b]", TypeSortedSet, 0},
		{"BZPOPMAX a 1", "nil-array", "[a]", TypeSortedSet, 1000},
		{"BZMPOP 1 1 a min count 3", "nil-array", "[a]", TypeSortedSet, 1000},
	} {
		d := newTestDB(t)
		reply, w := d.call("", words(tc.call)...)
		if reply != tc.reply || w == nil {
			t.Errorf("%s: reply %s, waits for %v", tc.call, reply, w)
			continue
		}
		if fmt.Sprintf("%s", w.Keys) != tc.keys || w.Type != tc.typ || w.Timeout != tc.timeout {
			t.Errorf("%s waits for %+v", tc.call, *w)
		}
	}
}

func TestNoWait(t *testing.T) {
	for _, tc := range []struct{ call, reply string }{
		{"BLPOP none l 0", `["l" "a"]`},
		{"BLPOP s l 0", "-WRONGTYPE Operation against a key holding the wrong kind of value"},
		{"BLPOP l -1", "-ERR timeout is negative"},
		{"BLPOP l x", "-ERR timeout is not a float or out of range"},
		{"BLPOP none 1.18e4932", "-ERR timeout is negative"},
		{"BLPOP none 1.19e4932", "-ERR timeout is not a float or out of range"}, // too large even for a long double
		{"BLPOP none nan", "-ERR timeout is not a float or out of range"},
		{"BLMPOP x 0 l left", "-ERR numkeys should be greater than 0"},
		{"BLMOVE l s left left 0", "-WRONGTYPE Operation against a key holding the wrong kind of value"},
		{"BZPOPMIN z 0", `["z" "m" ,1]`},
	} {
		d := newTestDB(t)
		d.do("RPUSH", "l", "a", "b")
		d.do("SET", "s", "v")
		d.do("ZADD", "z", "1", "m")
		if reply, w := d.call("", words(tc.call)...); reply != tc.reply || w != nil {
			t.Errorf("%s: reply %s, waits for %v", tc.call, reply, w)
		}
	}
}

// TestReadyKey: a command that runs again looks at no other key, and goes on waiting if the key has another type.
func TestReadyKey(t *testing.T) {
	d := newTestDB(t)
	d.do("RPUSH", "l1", "a")
	d.do("RPUSH", "l2", "b")
	d.do("SET", "s", "v")
	if reply, w := d.call("l2", "BLPOP", "s", "l1", "l2", "0"); reply != `["l2" "b"]` || w != nil {
		t.Errorf("reply %s, waits for %v", reply, w)
	}
	for _, ready := range []string{"l2", "s"} {
		if reply, w := d.call(ready, "BLPOP", "s", "l1", "l2", "0"); reply != "nil-array" || w == nil {
			t.Errorf("%s: reply %s, waits for %v", ready, reply, w)
		}
	}
	if reply, w := d.call("l1", "BLMOVE", "l1", "s", "left", "left", "0"); w != nil || reply != render(wrongType) {
		t.Errorf("reply %s, waits for %v", reply, w)
	}
	if got := d.do("LRANGE", "l1", "0", "-1"); got != `["a"]` {
		t.Errorf("the element went: %s", got)
	}
}

func TestTakeReady(t *testing.T) {
	d := newTestDB(t)
	d.do("RPUSH", "old", "x")
	d.do("SADD", "set", "1", "2")
	txn := d.begin()
	run := func(call string) { d.run(txn, words(call)...) }
	run("RPUSH old y")
	run("LPUSH l a b")
	run("ZADD z 1 m")
	run("SET s v")
	run("SADD set 3")
	sp := txn.Savepoint()
	run("RPUSH undone x")
	txn.Rollback(sp)
	sp = txn.Savepoint()
	run("RPUSH kept x")
	txn.Release(sp)
	run("RENAME old new")
	run("COPY z z2")
	run("SORT set STORE sorted")
	run("DEL l")
	keys, all := txn.TakeReady()
	if got, want := fmt.Sprint(keys), "[{0 l list} {0 z zset} {0 kept list} {0 new list} {0 z2 zset} {0 sorted list}]"; got != want || all {
		t.Errorf("got %s %v, want %s", got, all, want)
	}
	if keys, _ := txn.TakeReady(); len(keys) != 0 {
		t.Errorf("taken twice: %v", keys)
	}
	run("SWAPDB 0 1")
	if _, all := txn.TakeReady(); !all {
		t.Error("SWAPDB makes no key ready")
	}
}

package store

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
)

// TestExpiryIsBoundedInBytes: an entry deletes only as many expired keys as it has room for.
func TestExpiryIsBoundedInBytes(t *testing.T) {
	const keys, name, most = 40, 10_000, 35_000
	d := newTestDB(t)
	d.setEvents("KEx") // each name is written three times
	for i := range keys {
		d.do("SET", fmt.Sprint(i, strings.Repeat("x", name)), "v", "PX", "100")
	}
	d.advance(200)
	rounds := 0
	for n := 1; n > 0; rounds++ {
		txn := d.begin()
		n = txn.ExpireDue(500, most, math.MaxInt)
		if size := txn.Writes().Size(); size > most+4*name {
			t.Fatalf("an entry has %d bytes", size)
		}
		d.apply(txn)
	}
	if all, _ := d.s.Keys(0); all != 0 || rounds > keys {
		t.Errorf("%d keys are left after %d rounds", all, rounds)
	}
	d.do("SET", strings.Repeat("x", maxEventKey+1), "v", "PX", "100")
	d.advance(200)
	txn := d.begin()
	if txn.ExpireDue(500, most, math.MaxInt); txn.Writes().Len() != 1 {
		t.Errorf("the expiry of a key with a very long name is %d writes", txn.Writes().Len())
	}
}

// TestEventsAfterACommandThatWritesTooMuch: if a command writes too much and is ended, the later commands still publish all their
// events.
func TestEventsAfterACommandThatWritesTooMuch(t *testing.T) {
	d := newTestDB(t)
	d.env.Limits = Limits{Entry: MinEntry}
	d.setEvents("KEn")
	long := strings.Repeat("k", 30_000)
	d.do("SET", long, "v")
	d.do("ZADD", "z", "1", "a", "2", "b", "3", "c", "4", "d", "5", "e", "6", "f", "7", "g", "8", "h")
	txn := d.begin()
	txn.BeginCall()
	ctx := d.ctx(txn, "SORT", "z", "ALPHA", "STORE", long)
	if ctx.Call(ctx.Cmd.Run); ctx.Overrun() == "" {
		t.Fatal("it did not write too much")
	}
	if txn.events&eventNew == 0 {
		t.Error("the events of new keys are lost for those behind it")
	}
}

// TestManyKeysExpireInOneWriteSet: a rollback, WATCH and SET do not search through all expired keys for each key.
func TestManyKeysExpireInOneWriteSet(t *testing.T) {
	const keys = 100_000
	d := newTestDB(t)
	key := func(i int) []byte { return strconv.AppendInt(nil, int64(i), 10) }
	txn := d.begin()
	for i := range keys {
		txn.SetString(0, key(i), "v", d.now.Lease+100)
	}
	d.apply(txn)
	d.advance(200)
	txn = d.begin()
	sp := txn.Savepoint()
	for i := range keys {
		if txn.LookupWrite(0, key(i)) != nil {
			t.Fatalf("key %d has not expired", i)
		}
	}
	for i := range keys {
		if _, settled := txn.Version(0, key(i)); !settled {
			t.Fatalf("the expiry of key %d counts as a change", i)
		}
	}
	for i := range keys {
		txn.SetString(0, key(keys-1-i), "v", 0)
	}
	txn.Rollback(sp)
	if txn.Writes().Len() != 0 {
		t.Errorf("%d writes are left", txn.Writes().Len())
	}
}

// TestLongKeyWithManyElements: the log repeats the key for each element, so a command that would write too much ends early.
func TestLongKeyWithManyElements(t *testing.T) {
	const elements = 3000
	long := strings.Repeat("k", 20_000)
	list := func(each func(i int) []string) (args []string) {
		for i := range elements {
			args = append(args, each(i)...)
		}
		return args
	}
	one := list(func(i int) []string { return []string{fmt.Sprint("m", i)} })
	pairs := list(func(i int) []string { return []string{fmt.Sprint(i), fmt.Sprint("m", i)} })
	for name, c := range map[string]struct{ before, call []string }{
		"RPUSH":       {nil, append([]string{"RPUSH", long}, one...)},
		"SADD":        {nil, append([]string{"SADD", long}, one...)},
		"ZADD":        {nil, append([]string{"ZADD", long}, pairs...)},
		"HSET":        {nil, append([]string{"HSET", long}, pairs...)},
		"SUNIONSTORE": {append([]string{"SADD", "s"}, one...), []string{"SUNIONSTORE", long, "s"}},
		"SORT":        {append([]string{"SADD", "s"}, one...), []string{"SORT", "s", "ALPHA", "STORE", long}},
		"ZRANGESTORE": {append([]string{"ZADD", "z"}, pairs...), []string{"ZRANGESTORE", long, "z", "0", "-1"}},
	} {
		d := newTestDB(t)
		d.env.Limits = Limits{Entry: 1 << 20}
		if c.before != nil {
			d.do(c.before...)
		}
		txn := d.begin()
		ctx := d.ctx(txn, c.call...)
		r := ctx.Call(ctx.Cmd.Run)
		if want := ErrEntryTooBig(1 << 20); Error(r.Str) != want || ctx.Overrun() != want && txn.Wrote() {
			t.Errorf("%s: %.40s, %.40q", name, render(r), ctx.Overrun())
		}
		if size := txn.Writes().Size(); size > 1<<20+entryRoom+2*len(long) {
			t.Errorf("%s: it wrote %d bytes", name, size)
		}
	}
}

// TestCommandsWithinTheirRoom: each command has a limit of its own for what it writes. Writes that belong to no command, such as
// expiries, have no limit.
func TestCommandsWithinTheirRoom(t *testing.T) {
	d := newTestDB(t)
	d.env.Limits = Limits{Entry: MinEntry}
	value := strings.Repeat("v", 60_000)
	txn := d.begin()
	for i := range 20 {
		txn.BeginCall()
		ctx := d.ctx(txn, "SET", fmt.Sprint("k", i), value)
		if r := ctx.Call(ctx.Cmd.Run); r.IsError() || ctx.Overrun() != "" {
			t.Fatalf("command %d: %s, %q", i, render(r), ctx.Overrun())
		}
		txn.SetString(1, []byte(fmt.Sprint("k", i)), value, 0)
	}
	if !txn.HasRoom(1) || txn.HasRoom(MinEntry+entryRoom) {
		t.Error("the room of the last command is measured wrongly")
	}
}

// TestCopiesOfALargeValue: a transaction may not make many small changes to a large value, because every node copies the value for
// each of them.
func TestCopiesOfALargeValue(t *testing.T) {
	d := newTestDB(t)
	d.env.Limits = Limits{Entry: MinEntry}
	d.do("SETRANGE", "s", "59999", "x")
	txn := d.begin()
	txn.BeginCall()
	ctx := d.ctx(txn, "SETRANGE", "s", "0", "y")
	changes := 0
	for ; ctx.Overrun() == "" && changes < 1000; changes++ {
		ctx.Call(ctx.Cmd.Run)
	}
	if changes < copiesPerEntry || changes > 4*copiesPerEntry {
		t.Errorf("refused after %d changes", changes)
	}
	if txn.BeginCall(); ctx.Overrun() != "" {
		t.Errorf("the next command is refused: %s", ctx.Overrun())
	}
}

// TestLongRepliesAreNotBuilt: if the reply would have too many elements, the command returns an error before it builds the reply, and
// removes nothing.
func TestLongRepliesAreNotBuilt(t *testing.T) {
	const n = 2000
	d := newTestDB(t)
	d.env.Limits = Limits{Reply: n / 2 * int64(ReplySize)}
	for i := range n {
		d.do("RPUSH", "l", "x")
		d.do("SADD", "s", fmt.Sprint("m", i))
		d.do("ZADD", "z", "1", fmt.Sprint("m", i))
		d.do("HSET", "h", fmt.Sprint("m", i), "v")
	}
	for _, call := range []string{
		"LRANGE l 0 -1", "LPOS l x COUNT 0", "LPOP l 2000", "LMPOP 1 l LEFT COUNT 2000", "SMEMBERS s", "SUNION s nothing", "SPOP s 2000",
		"ZRANGE z 0 -1", "ZRANGE z 0 600 WITHSCORES", "ZPOPMIN z 2000", "ZMPOP 1 z MIN COUNT 2000", "HGETALL h", "HKEYS h", "HVALS h",
	} {
		txn := d.begin()
		ctx := d.ctx(txn, strings.Fields(call)...)
		if r := ctx.Call(ctx.Cmd.Run); Error(r.Str) != txn.ErrReply() {
			t.Errorf("%s: %.60s", call, render(r))
		}
		if txn.Writes().Len() != 0 {
			t.Errorf("%s: wrote, and was refused", call)
		}
	}
	for _, call := range []string{"LRANGE l 0 900", "LPOS l x COUNT 900", "LPOP l 900", "ZRANGE z 0 900", "ZPOPMIN z 400", "SPOP s 900"} {
		if got := d.do(strings.Fields(call)...); strings.HasPrefix(got, "-") {
			t.Errorf("%s: %.60s", call, got)
		}
	}
}

// TestDenialsOfOneScript: the ACL log gets only as many refusals of a script, and bytes of a key, as it can show.
func TestDenialsOfOneScript(t *testing.T) {
	d := newTestDB(t)
	txn := d.begin()
	ctx := d.ctx(txn, "GET", strings.Repeat("k", 10*maxObject))
	u := NewUser(d.table, "u", true)
	for range 100 * maxDenied {
		ctx.Deny(u, ctx.Cmd, ctx.Args, DeniedKey, 1)
	}
	r := txn.AttachDenials(OK)
	if len(r.Elems) != 1+maxDenied {
		t.Errorf("%d refusals", len(r.Elems)-1)
	}
	if n := Extent(r.Elems, 1<<30); n > 2*maxDenied*maxObject {
		t.Errorf("they take %d bytes", n)
	}
}

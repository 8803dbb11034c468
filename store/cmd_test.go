package store

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestNothingWritten: a command that changes nothing costs no disk write.
func TestNothingWritten(t *testing.T) {
	for _, call := range []string{
		"SET s x NX", "SET none x XX", "SET s x NX GET", "SET s x EX 0", "SET h x GET", "SETNX s x", "MSETNX new 1 s 2",
		"GET s", "GETEX s", "GETEX s PERSIST", "GETDEL none", "GETDEL h", "GETSET h x", "MGET s h", "STRLEN s",
		"INCR s", "INCRBY h 1", "INCRBYFLOAT s 1", "INCRBYFLOAT n inf", "DECRBY n -9223372036854775808",
		"SETRANGE s 9 \"\"", "SETRANGE none 9 \"\"", "SETRANGE s 536870912 x", "SETRANGE s 530000000 x", "GETRANGE s 0 -1", "APPEND h x",
		"DEL none", "UNLINK none", "EXISTS s", "TOUCH s", "TYPE s", "EXPIRE none 1", "EXPIRE s 1 XX", "PERSIST s", "TTL s",
		"RENAME none x", "RENAME s s", "RENAMENX s h", "COPY s h", "COPY none x", "COPY s s",
		"MOVE none 1", "MOVE s 0", "MOVE s 77", "SWAPDB 2 2", "SWAPDB 2 77", "SELECT 2", "SELECT 99",
		"HSET s f v", "HSET h f v f", "HMSET h f v f", "HSETNX h f v", "HINCRBY h f 1", "HINCRBYFLOAT h f 1", "HDEL h none", "HDEL none f",
		"HGET h f", "HGETALL h", "HRANDFIELD h", "HSCAN h 0", "SCAN 0", "KEYS *", "RANDOMKEY", "DBSIZE",
		"FLUSHDB later", "FLUSHALL later", "OBJECT ENCODING s", "OBJECT HELP",
	} {
		d := newTestDB(t)
		d.do("SET", "s", "text")
		d.do("SET", "n", "1")
		d.do("HSET", "h", "f", "text")
		reply := d.do(words(call)...)
		if d.wrote != 0 {
			t.Errorf("%s replied %s and wrote %d times", call, reply, d.wrote)
		}
	}
	d := newTestDB(t)
	if d.do("FLUSHALL"); d.wrote != 0 {
		t.Errorf("FLUSHALL of nothing wrote %d times", d.wrote)
	}
}

func TestHugeOffsetTakesNoMemory(t *testing.T) {
	d := newTestDB(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if got, want := d.do("SETRANGE", "k", "500000000", "x"), "-"+string(ErrWriteSetTooBig); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("took %d bytes", n)
	}
}

func TestHashForms(t *testing.T) {
	d := newTestDB(t)
	encoding := func(key, want string) {
		t.Helper()
		if got := d.do("OBJECT", "ENCODING", key); got != `"`+want+`"` {
			t.Errorf("%s is a %s, want %s", key, got, want)
		}
	}
	for i := range compactFields {
		d.do("HSET", "h", fmt.Sprint("f", i), "v")
	}
	encoding("h", "listpack")
	d.do("HSET", "h", "one more", "v")
	encoding("h", "hashtable")
	d.do("HDEL", "h", "one more", "f1")
	encoding("h", "hashtable")
	for _, field := range []string{"f0", "f511"} {
		if got := d.do("HGET", "h", field); got != `"v"` {
			t.Errorf("HGET h %s: %s", field, got)
		}
	}
	d.do("HSET", "value", "f", strings.Repeat("v", compactValue))
	encoding("value", "listpack")
	d.do("HSET", "value", "f", strings.Repeat("v", compactValue+1))
	encoding("value", "hashtable")
	d.do("HSET", "name", strings.Repeat("f", compactValue+1), "v")
	encoding("name", "hashtable")
}

func TestRandomField(t *testing.T) {
	for _, n := range []int{5, 500} {
		d := newTestDB(t)
		for i := range n {
			d.do("HSET", "h", fmt.Sprint("f", i), fmt.Sprint(i))
		}
		seen := map[string]bool{}
		for range 40 * n {
			seen[d.do("HRANDFIELD", "h")] = true
		}
		if len(seen) != n {
			t.Errorf("%d fields of %d were picked", len(seen), n)
		}
		run := func(args ...string) []Reply {
			return d.run(d.begin(), append([]string{"HRANDFIELD", "h"}, args...)...).Elems
		}
		for _, count := range []int{0, 1, n - 1, n, n + 1} {
			different := map[string]bool{}
			for _, f := range run(fmt.Sprint(count)) {
				different[f.Str] = true
			}
			if len(different) != min(count, n) {
				t.Errorf("HRANDFIELD h %d: %d different fields", count, len(different))
			}
		}
		if got := len(run(fmt.Sprint(-3 * n))); got != 3*n {
			t.Errorf("HRANDFIELD h %d: %d fields", -3*n, got)
		}
		flat := run("2", "WITHVALUES")
		if len(flat) != 4 || "f"+flat[1].Str != flat[0].Str {
			t.Errorf("HRANDFIELD h 2 WITHVALUES: %v", flat)
		}
		d.resp = 3
		pairs := run("-2", "WITHVALUES")
		if len(pairs) != 2 || len(pairs[0].Elems) != 2 {
			t.Errorf("HRANDFIELD h -2 WITHVALUES: %v", pairs)
		}
	}
}

// TestRandomKey also checks that a dead key is never named.
func TestRandomKey(t *testing.T) {
	d := newTestDB(t)
	if got := d.do("RANDOMKEY"); got != "nil" {
		t.Errorf("of no keys: %s", got)
	}
	for i := range 40 {
		d.do("SET", fmt.Sprint("live", i), "v")
		d.do("SET", fmt.Sprint("dead", i), "v", "PX", "1")
	}
	d.advance(2)
	seen := map[string]bool{}
	for range 4000 {
		seen[d.do("RANDOMKEY")] = true
	}
	for key := range seen {
		if !strings.HasPrefix(key, `"live`) {
			t.Errorf("picked %s", key)
		}
	}
	if len(seen) != 40 {
		t.Errorf("%d keys of 40 were picked", len(seen))
	}
}

func TestPublish(t *testing.T) {
	d := newTestDB(t)
	d.env.Receivers = func(kind PublishKind, channel string) int {
		if channel != "news" {
			t.Errorf("asked for %q", channel)
		}
		return 2 + int(kind)
	}
	sink := &recorder{}
	d.sink = sink
	d.script(`
		PUBLISH news hello => :2
		SPUBLISH news hello => :3
	`)
	if got, want := fmt.Sprint(sink.messages), "[0 news hello 1 news hello]"; got != want {
		t.Errorf("published %s, want %s", got, want)
	}
}

func TestObject(t *testing.T) {
	d := newTestDB(t)
	d.do("SET", "long", strings.Repeat("x", maxEmbedded+1))
	d.script(`
		SET int 12345 => +OK
		OBJECT ENCODING int => "int"
		OBJECT REFCOUNT int => :1
		SET int 9999 => +OK
		OBJECT REFCOUNT int => :2147483647
		SET text 012 => +OK
		OBJECT ENCODING text => "embstr"
		OBJECT ENCODING long => "raw"
		OBJECT IDLETIME text => :0
		OBJECT FREQ none => nil
	`)
}

package store

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestCommandsDoNotPeek: commands use Lookup, which records expired keys for ExpireSeen, because a reply may call them missing.
func TestCommandsDoNotPeek(t *testing.T) {
	files, err := filepath.Glob("cmd_*.go")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") && strings.Contains(string(text), ".peek(") {
			t.Errorf("%s: peek", file)
		}
	}
}

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
		"LPUSH s x", "LPUSHX none x", "LPOP none", "LPOP l 0", "LPOP l -1", "LPOP l 1 2", "LSET l 9 x", "LSET none 0 x", "LINSERT l before none x",
		"LTRIM none 0 1", "LREM l 0 none", "LMOVE none l left left", "LMOVE l s left left", "LMOVE l l up down", "LMPOP 1 none left",
		"LMPOP 1 l up", "LRANGE l 0 -1", "LINDEX l 0", "LPOS l a", "LLEN l",
		"BLPOP none 0", "BLPOP s 0", "BLPOP l x", "BRPOP l -1", "BLMOVE none l left left 0", "BLMOVE l s left left 0", "BRPOPLPUSH none l 0",
		"BLMPOP x 1 l left", "BLMPOP 0 1 none left", "BZPOPMIN none 0", "BZPOPMAX l 0", "BZMPOP 0 1 none min",
		"SADD m a", "SADD s a", "SREM m none", "SREM none a", "SPOP none", "SPOP m 0", "SPOP m -1", "SMOVE m none none", "SMOVE m m a", "SMOVE none m a",
		"SMOVE m s a", "SINTERSTORE none none m", "SUNIONSTORE none s", "SDIFFSTORE none m m", "SMEMBERS m", "SRANDMEMBER m", "SSCAN m 0", "SINTERCARD 1 m",
		"ZADD z 1 a", "ZADD z NX 2 a", "ZADD z XX 1 none", "ZADD z GT 0 a", "ZADD z x a", "ZADD z NX XX 1 a", "ZADD z INCR 0 a", "ZADD none XX 1 a", "ZADD s 1 a",
		"ZINCRBY z x a", "ZREM z none", "ZREM none a", "ZPOPMIN none", "ZPOPMAX z 0", "ZMPOP 1 none min", "ZREMRANGEBYRANK z 5 6", "ZREMRANGEBYSCORE z 5 6",
		"ZREMRANGEBYLEX z [x [y", "ZRANGESTORE none z 5 6", "ZUNIONSTORE none 1 none", "ZINTERSTORE none 2 z none", "ZDIFFSTORE none 2 z z", "ZUNIONSTORE none 0 z",
		"ZRANGE z 0 -1", "ZSCORE z a", "ZRANDMEMBER z", "ZSCAN z 0", "ZUNION 1 z",
		"SORT l ALPHA", "SORT l", "SORT none STORE other", "SORT s", "SORT_RO l ALPHA", "DUMP l", "RESTORE s 0 x", "RESTORE none 0 x", "RESTORE none -1 x",
		"SETBIT s 1 1", "SETBIT s x 1", "SETBIT s 1 2", "SETBIT l 1 1", "SETBIT s 600000000 1", "GETBIT s 1", "BITCOUNT s", "BITPOS s 1",
		"BITOP AND none none", "BITOP NOT x s s", "BITOP AND x l", "BITFIELD s GET u8 0", "BITFIELD s INCRBY u8 0 0", "BITFIELD s SET u64 0 1",
	} {
		d := newTestDB(t)
		d.do("SETRANGE", "s", "0", "text") // gives s the form raw already, so that the SETBIT above has nothing to write
		d.do("SET", "n", "1")
		d.do("HSET", "h", "f", "text")
		d.do("RPUSH", "l", "a", "b")
		d.do("SADD", "m", "a", "b")
		d.do("ZADD", "z", "1", "a", "2", "b")
		reply := d.do(words(call)...)
		if d.wrote != 0 {
			t.Errorf("%s replied %s and wrote %d times", call, reply, d.wrote)
		}
	}
	// A flush of an empty database is written, too, because every node tells its tracking clients of the flush.
	for _, call := range []string{"FLUSHALL", "FLUSHDB"} {
		d := newTestDB(t)
		if d.do(call); d.wrote != 1 {
			t.Errorf("%s of nothing wrote %d times", call, d.wrote)
		}
	}
}

func TestHugeOffsetTakesNoMemory(t *testing.T) {
	d := newTestDB(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if got, want := d.do("SETRANGE", "k", "500000000", "x"), "-"+string(ErrEntryTooBig(DefaultMaxEntry)); got != want {
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
	for i := range defaultForms.hashEntries {
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
	d.do("HSET", "value", "f", strings.Repeat("v", defaultForms.hashValue))
	encoding("value", "listpack")
	d.do("HSET", "value", "f", strings.Repeat("v", defaultForms.hashValue+1))
	encoding("value", "hashtable")
	d.do("HSET", "name", strings.Repeat("f", defaultForms.hashValue+1), "v")
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

// TestRandomKey also checks that RANDOMKEY never names an expired key.
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

// Redis has ZRANK … WITHSCORE since version 7.2. This test expects what the documentation of Redis says.
func TestRankWithScore(t *testing.T) {
	d := newTestDB(t)
	d.script(`
		ZADD z 1 a 2.5 b => :2
		SET s v => +OK
		ZRANK z a WITHSCORE => [:0 ,1]
		ZREVRANK z a withscore => [:1 ,1]
		ZREVRANK z b WITHSCORE => [:0 ,2.5]
		ZRANK z b => :1
		ZRANK z none WITHSCORE => nil-array
		ZRANK none a WITHSCORE => nil-array
		ZRANK z none => nil
		ZRANK s a WITHSCORE => -WRONGTYPE Operation against a key holding the wrong kind of value
		ZRANK z a WITHSCORES => -ERR syntax error
		ZRANK z a WITHSCORE x => -ERR wrong number of arguments for 'zrank' command
	`)
}

// TestSortStoreNamedLikeAnOption: the key specs of SORT find keys after STORE that are named like an option. Redis 7.0 overlooks them.
func TestSortStoreNamedLikeAnOption(t *testing.T) {
	for line, want := range map[string]string{
		"sort b store by store secret":              "[5]",
		"sort b store limit store secret":           "[5]",
		"sort b store store get store secret":       "[3]",
		"sort b by x store get":                     "[5]",
		"sort b get store by store limit 0 1 store": "[]",
	} {
		var args [][]byte
		for _, word := range strings.Fields(line) {
			args = append(args, []byte(word))
		}
		if got := fmt.Sprint(sortStore(args)); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

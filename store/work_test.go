package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// If the arguments of a command can make it arbitrarily long, the command can be stopped. It then has no effect.
func TestLongCommandsAreWatched(t *testing.T) {
	d := newTestDB(t)
	for i := range 100 {
		m := fmt.Sprint("member", i)
		d.do("SADD", "s", m)
		d.do("ZADD", "z", fmt.Sprint(i), m)
		d.do("RPUSH", "l", m)
	}
	d.do("SADD", "other", "x")
	d.do("SET", "b", strings.Repeat("b", 64<<10))
	d.do("SET", strings.Repeat("a", 64<<10), "1")
	d.do("SADD", "long", strings.Repeat("a", 64<<10))
	many := func(words ...string) []string { return slices.Repeat(words, 1000) }
	evil := "*" + strings.Repeat("?a", 1000) + "b"
	for _, args := range [][]string{
		append([]string{"SUNION"}, many("s")...), append([]string{"SUNIONSTORE", "d"}, many("s")...),
		append([]string{"SINTER"}, many("s")...), append([]string{"SINTERSTORE", "d"}, many("s")...), append([]string{"SINTERCARD", "1000"}, many("s")...),
		append([]string{"SDIFF", "s"}, many("other")...), append([]string{"SDIFFSTORE", "d", "s"}, many("other")...), append([]string{"SDIFF", "s"}, many("none")...),
		append([]string{"ZUNION", "1000"}, many("z")...), append([]string{"ZUNIONSTORE", "d", "1000"}, many("z")...),
		append([]string{"ZINTER", "1000"}, many("z")...), append([]string{"ZINTERSTORE", "d", "1000"}, many("z")...), append([]string{"ZINTERCARD", "1000"}, many("z")...),
		append([]string{"ZDIFF", "1001", "z"}, many("other")...), append([]string{"ZDIFFSTORE", "d", "1001", "z"}, many("other")...),
		append([]string{"BITOP", "AND", "d"}, many("b")...), append([]string{"BITOP", "XOR", "d"}, many("b")...),
		append([]string{"SORT", "l", "BY", "nosort"}, many("GET", "w_*")...), append([]string{"SORT", "l", "ALPHA", "STORE", "d"}, many("GET", "w_*->f")...),
		{"KEYS", evil}, {"SCAN", "0", "COUNT", "1000000", "MATCH", evil}, {"SSCAN", "long", "0", "MATCH", evil},
	} {
		raw := make([][]byte, len(args))
		for i := range args {
			raw[i] = []byte(args[i])
		}
		cmd, _ := d.table.Resolve(raw)
		watched := 0
		c := &Ctx{Txn: d.begin(), Cmd: cmd, Args: raw, RESP: 2, Watch: func() { watched++ }}
		if r := cmd.Run(c); r.IsError() {
			t.Errorf("%.40q: %s", args, r.Str)
		}
		if watched == 0 || watched < 10 && len(args) > 1000 {
			t.Errorf("%.40q was watched %d times", args, watched)
		}
		c = &Ctx{Txn: d.begin(), Cmd: cmd, Args: raw, RESP: 2, Watch: func() { panic("stopped") }}
		func() {
			defer func() {
				if p := recover(); p != "stopped" {
					t.Errorf("%.40q: %v", args, p)
				}
			}()
			cmd.Run(c)
		}()
		if n := c.Writes().Len(); n > 0 {
			t.Errorf("%.40q was stopped, and has written %d times", args, n)
		}
	}
}

// When a match reads a pattern, it counts the bytes that it reads as work, because a pattern may be far longer than the names.
func TestLongPatternsAreWatched(t *testing.T) {
	d := newTestDB(t)
	for i := range 100 {
		d.do("SET", fmt.Sprint("n", i), "1")
		d.do("HSET", "h", fmt.Sprint("n", i), strings.Repeat("v", 100))
	}
	long := "[" + strings.Repeat("x", 1<<20)
	for _, args := range [][]string{
		{"KEYS", long}, {"SCAN", "0", "COUNT", "1000", "MATCH", long}, {"HSCAN", "h", "0", "COUNT", "1000", "MATCH", "*" + long},
	} {
		if n := d.watched(args...); n < 100 {
			t.Errorf("%.20q was watched %d times", args, n)
		}
	}
}

// A scan counts work for each key that it passes, even if it replies with none of these keys.
func TestPassedKeysAreWatched(t *testing.T) {
	d := newTestDB(t)
	for i := range 2 * workLook {
		d.do("SET", fmt.Sprint(i), "1", "PX", "1000")
	}
	scan := []string{"SCAN", "0", "COUNT", "9223372036854775807", "TYPE", "nosuch"}
	if n := d.watched(scan...); n != 2 {
		t.Errorf("SCAN for a type was watched %d times", n)
	}
	d.now.Lease += 10000
	for _, args := range [][]string{scan, {"SCAN", "0"}, {"KEYS", "*"}, {"RANDOMKEY"}} {
		if n := d.watched(args...); n < 2 {
			t.Errorf("%q was watched %d times among expired keys", args, n)
		}
	}
}

// TestSortReadsWeightsAsWork: all elements may have the same long weight. SORT reads the weight for each element and at each
// comparison, and must count that as work.
func TestSortReadsWeightsAsWork(t *testing.T) {
	d := newTestDB(t)
	for range 100 {
		d.do("RPUSH", "l", "x", "y")
	}
	for _, m := range []string{"x", "y"} {
		d.do("SET", "number"+m, "0."+strings.Repeat("1", 64<<10))
		d.do("SET", "text"+m, strings.Repeat("1", 64<<10)+m)
		d.do("HSET", "hash"+m, "f", "0."+strings.Repeat("1", 64<<10))
		d.do("RPUSH", "long", strings.Repeat("0", 64<<10)+"1", strings.Repeat("0", 64<<10)+"1")
	}
	for _, args := range [][]string{
		{"SORT", "l", "BY", "number*"}, {"SORT", "l", "BY", "hash*->f"}, {"SORT", "l", "BY", "text*", "ALPHA"},
		{"SORT", "l", "BY", "text*", "ALPHA", "STORE", "d"}, {"SORT_RO", "l", "BY", "number*", "DESC"},
	} {
		if n := d.watched(args...); n < 40 {
			t.Errorf("%q was watched %d times", args, n)
		}
	}
	if n := d.watched("SORT", "long"); n < 3 {
		t.Errorf("SORT of long numbers was watched %d times", n)
	}
}

// watched runs a command and returns how often the command called Watch.
func (d *testDB) watched(args ...string) (n int) {
	raw := make([][]byte, len(args))
	for i := range args {
		raw[i] = []byte(args[i])
	}
	cmd, _ := d.table.Resolve(raw)
	if r := cmd.Run(&Ctx{Txn: d.begin(), Cmd: cmd, Args: raw, RESP: 2, Watch: func() { n++ }}); r.IsError() {
		d.t.Errorf("%.40q: %s", args[0], r.Str)
	}
	return n
}

package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// isShort lists the commands that no argument can make long, under the reason for it.
var isShort = map[string]string{
	"one key or element": `append|decr|decrby|getbit|getdel|delex|delifeq|getrange|getset|hexists|hget|hincrby|hincrbyfloat|hlen|hsetnx|hstrlen|incr|incrby|
		incrbyfloat|lindex|llen|lmove|lset|persist|psetex|publish|rpoplpush|scard|setbit|setex|setnx|setrange|sismember|smove|spublish|
		strlen|substr|swapdb|type|zcard|zincrby|zrank|zrevrank|zscore|get|rename|renamenx|blmove|brpoplpush|
		ttl|pttl|expiretime|pexpiretime|move|zcount|zlexcount|lock.token|lock.check|lock.fence|lock.acquire|lock.renew|lock.release|lock.revoke|lock.info|lock.waiters|lock.list|lock.force`,
	"options of some nanoseconds each": `copy|expire|expireat|pexpire|pexpireat|getex|set`,
	"no arguments that matter":         `object|select|encoding|freq|help|idletime|refcount`,
}

// TestEveryCommandIsWatched runs each command with arguments that make it long. A new command must get such arguments here, or a
// reason why it needs none.
func TestEveryCommandIsWatched(t *testing.T) {
	const n = workLook + 100
	d := newTestDB(t)
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("n%05d", i)
	}
	mix := func(first bool, other string) (all []string) {
		for _, name := range names {
			if first {
				all = append(all, other, name)
			} else {
				all = append(all, name, other)
			}
		}
		return all
	}
	call := func(words ...string) []string { return words }
	with := func(list []string, words ...string) []string { return append(words, list...) }
	d.do(with(names, "RPUSH", "l")...)
	d.do(with(names, "SADD", "s")...)
	d.do(with(mix(true, "1"), "ZADD", "z")...)
	d.do(with(mix(false, "v"), "HSET", "h")...)
	d.do(with(mix(false, "v"), "MSET")...)
	d.do("SET", "str", strings.Repeat("x", 1<<20))
	d.do("SET", "short", strings.Repeat("x", 300))
	d.do("SET", "a", "")
	count := fmt.Sprint(n)
	last := names[n-1]
	none := slices.Repeat([]string{"none"}, n)
	dump := d.ctx(d.begin(), "DUMP", "l")
	dumped := dump.Cmd.Run(dump).Str
	long := map[string][]string{
		"bitcount": call("str"), "bitpos": call("str", "1", "1"), "bitop": with(none, "AND", "d"),
		"bitfield": slices.Concat([]string{"str"}, slices.Repeat([]string{"GET", "u8", "0"}, n)), "bitfield_ro": slices.Concat([]string{"str"}, slices.Repeat([]string{"GET", "u8", "0"}, n)),
		"blpop": append(slices.Clone(none), "0"), "brpop": append(slices.Clone(none), "0"), "bzpopmin": append(slices.Clone(none), "0"), "bzpopmax": append(slices.Clone(none), "0"),
		"blmpop": slices.Concat([]string{"0", count}, none, []string{"LEFT"}), "bzmpop": slices.Concat([]string{"0", count}, none, []string{"MIN"}),
		"lmpop": call("1", "l", "LEFT", "COUNT", count), "zmpop": call("1", "z", "MIN", "COUNT", count),
		"dbsize": nil, "flushdb": nil, "flushall": nil, "scan": call("0", "COUNT", count), "keys": call("*"), "randomkey": nil,
		"del": none, "unlink": none, "exists": none, "touch": none, "mget": none, "mset": mix(false, "v"), "msetnx": slices.Repeat([]string{"new", "v"}, n),
		"dump": call("l"), "restore": call("d", "0", dumped),
		"hset": with(mix(false, "v"), "h"), "hmset": with(mix(false, "v"), "h"), "hdel": with(none, "h"), "hmget": with(none, "h"),
		"hgetall": call("h"), "hkeys": call("h"), "hvals": call("h"), "hscan": call("h", "0", "COUNT", count), "hrandfield": call("h", "-"+count),
		"lcs": call("short", "short"), "linsert": call("l", "AFTER", last, "x"), "lpos": call("l", last), "lrem": call("l", "1", last), "lrange": call("l", "0", "-1"), "ltrim": call("l", "0", "0"),
		"lpop": call("l", count), "rpop": call("l", count), "lpush": with(names, "l"), "rpush": with(names, "l"), "lpushx": with(names, "l"), "rpushx": with(names, "l"),
		"sadd": with(none, "s"), "srem": with(none, "s"), "smismember": with(none, "s"), "smembers": call("s"), "spop": call("s", count), "srandmember": call("s", "-"+count), "sscan": call("s", "0", "COUNT", count),
		"sdiff": call("s"), "sdiffstore": call("d", "s"), "sinter": with(none, "s"), "sintercard": with(none, count), "sinterstore": with(none, "d"), "sunion": call("s"), "sunionstore": call("d", "s"),
		"sort": call("l", "ALPHA"), "sort_ro": call("l", "BY", "nosort"),
		"zadd": with(mix(true, "1"), "z"), "zrem": with(none, "z"), "zmscore": with(none, "z"), "zscan": call("z", "0", "COUNT", count), "zrandmember": call("z", "-"+count),
		"zpopmin": call("z", count), "zpopmax": call("z", count), "zdiff": with(none, count), "zdiffstore": slices.Concat([]string{"d", count}, none), "zinter": with(none, count),
		"zintercard": with(none, count), "zinterstore": slices.Concat([]string{"d", count}, none), "zunion": call("1", "z"), "zunionstore": call("d", "1", "z"),
		"zrange": call("z", "0", "-1"), "zrevrange": call("z", "0", "-1"), "zrangestore": call("d", "z", "0", "-1"), "zrangebyscore": call("z", "-inf", "inf"), "zrevrangebyscore": call("z", "inf", "-inf"),
		"zrangebylex": call("z", "-", "+"), "zrevrangebylex": call("z", "+", "-"), "zremrangebyrank": call("z", "0", "-1"), "zremrangebyscore": call("z", "-inf", "inf"), "zremrangebylex": call("z", "-", "+"),
	}
	pending := map[string]bool{"dbsize": true, "flushdb": true, "flushall": true, "scan": true, "randomkey": true, "keys": true}
	for _, cmd := range d.table.All() {
		for _, name := range append([]string{cmd.Name}, subNames(cmd)...) {
			args, isLong := long[name]
			if !isLong {
				if !exempt(name) {
					t.Errorf("%s is not in this test", name)
				}
				continue
			}
			txn := d.begin()
			if pending[name] {
				d.run(txn, with(mix(false, "w"), "MSET")...)
				for i := range txn.views {
					txn.views[i].base = newKeyspace(&txn.s.hashes) // leave only the pending keys
				}
			}
			c := d.ctx(txn, append([]string{name}, args...)...)
			watched := 0
			c.Watch = func() { watched++ }
			if r := cmd.Run(c); r.IsError() || watched == 0 {
				t.Errorf("%s was watched %d times, and replied %.60s", name, watched, render(r))
			}
		}
	}
}

func subNames(cmd *Command) (names []string) {
	for i := range cmd.Sub {
		names = append(names, cmd.Sub[i].FullName())
	}
	return names
}

func exempt(name string) bool {
	for _, list := range isShort {
		if slices.Contains(strings.FieldsFunc(list, func(r rune) bool { return r == '|' || r == '\n' || r == '\t' }), strings.TrimPrefix(name, "object|")) {
			return true
		}
	}
	return false
}

// TestRepliesAreRefusedBeforeTheyAreBuilt runs commands whose reply has an element for each argument.
func TestRepliesAreRefusedBeforeTheyAreBuilt(t *testing.T) {
	d := newTestDB(t)
	d.env.Limits = Limits{Reply: 1000}
	const n = 50_000
	fields := slices.Repeat([]string{"x"}, n)
	for _, args := range [][]string{
		append([]string{"HMGET", "k"}, fields...), append([]string{"MGET"}, fields...), append([]string{"ZMSCORE", "k"}, fields...), append([]string{"SMISMEMBER", "k"}, fields...),
		append([]string{"BITFIELD", "k"}, slices.Repeat([]string{"GET", "u8", "0"}, 100)...),
	} {
		c := d.ctx(d.begin(), args...)
		allocs := testing.AllocsPerRun(1, func() {
			if r := c.Cmd.Run(c); r.Str != string(c.ErrReply()) {
				t.Errorf("%s replies %.60s", args[0], render(r))
			}
		})
		if allocs > 20 {
			t.Errorf("%s allocates %.0f times", args[0], allocs)
		}
	}
}

package main

// how says in what respect two replies must be equal.
type how int

const (
	exact    how = iota
	sorted       // the order of elements is not defined
	pairs        // the order of pairs of elements is not defined
	scan         // a cursor and sorted elements
	scan2        // a cursor and sorted pairs
	near         // a time to live; the two may be at most 3 s apart
	shape        // the reply is random: only its kind is compared
	encoding     // the encoding of a key; those of sorted sets count as equal in an episode with SORT
	leaves       // the innermost values may come in any order, as for scripts
)

type command struct {
	syntax string
	how    how
}

// commands are the commands that are drawn most of the time. They must not write anything random.
var commands = []command{
	// Strings.
	{"SET {str} {value} [NX|XX] [GET] [EX {ttl}|PX {ttlms}|EXAT {at}|PXAT {atms}|KEEPTTL]", exact},
	{"SET {str} {value}", exact},
	{"GET {str}", exact},
	{"GETSET {str} {value}", exact},
	{"GETDEL {str}", exact},
	{"GETEX {str} [EX {ttl}|PX {ttlms}|EXAT {at}|PXAT {atms}|PERSIST]", exact},
	{"SETNX {str} {value}", exact},
	{"SETEX {str} {ttl} {value}", exact},
	{"PSETEX {str} {ttlms} {value}", exact},
	{"MSET ({str} {value})...", exact},
	{"MSETNX ({str} {value})...", exact},
	{"MGET {key}...", exact},
	{"APPEND {str} {value}", exact},
	{"STRLEN {str}", exact},
	{"INCR {str}", exact}, {"DECR {str}", exact},
	{"INCRBY {str} {int}", exact}, {"DECRBY {str} {int}", exact},
	{"INCRBYFLOAT {str} {float}", exact},
	{"SETRANGE {str} {offset} {value}", exact},
	{"(GETRANGE|SUBSTR) {str} {index} {index}", exact},
	{"LCS {str} {str} [LEN|IDX [MINMATCHLEN {count}] [WITHMATCHLEN]]", exact},
	// Bits.
	{"SETBIT {bits} {offset} {bit}", exact},
	{"GETBIT {bits} {offset}", exact},
	{"BITCOUNT {bits} [{index} {index} [BYTE|BIT]]", exact},
	{"BITPOS {bits} {bit} [{index} [{index} [BYTE|BIT]]]", exact},
	{"BITOP (AND|OR|XOR|NOT) {bits} {bits}...", exact},
	{"BITFIELD {bits} ([OVERFLOW (WRAP|SAT|FAIL)] (GET {type} {offset}|SET {type} {offset} {int}|INCRBY {type} {offset} {int}))...", exact},
	{"BITFIELD_RO {bits} (GET {type} {offset})...", exact},
	// Keys.
	{"(DEL|UNLINK|EXISTS|TOUCH) {key}...", exact},
	{"TYPE {key}", exact},
	{"OBJECT ENCODING ({hash}|{zset}|{set}|{list}|{str})", encoding},
	{"(EXPIRE {key} {ttl}|PEXPIRE {key} {ttlms}) [NX|XX|GT|LT] [XX|GT]", exact},
	{"EXPIREAT {key} {at} [NX|XX|GT|LT]", exact},
	{"PEXPIREAT {key} {atms} [NX|XX|GT|LT]", exact},
	{"(TTL|PTTL|EXPIRETIME|PEXPIRETIME) {key}", near},
	{"PERSIST {key}", exact},
	{"(RENAME|RENAMENX) {key} {key}", exact},
	{"COPY {key} {key} [DB {db}] [REPLACE]", exact},
	{"MOVE {key} {db}", exact},
	{"KEYS {pattern}", sorted},
	{"SCAN 0 COUNT {all} [MATCH {pattern}] [TYPE (string|hash|list|set|zset|x)]", scan},
	{"DBSIZE", shape}, // Redis still counts keys that have expired but are not deleted yet
	{"RANDOMKEY", shape},
	{"DUMP {key}", shape}, // the order in sets is not defined
	{"RESTORE {key} (0|{ttlms}) {dump} [REPLACE] [ABSTTL] [IDLETIME {small}]", exact},
	{"OBJECT (FREQ|REFCOUNTS) {key}", exact}, {"OBJECT IDLETIME {key}", shape},
	// With BY and ALPHA the order of equal elements is not defined, so no command here has both.
	{"SORT {list} [BY (s*|h*->f)] [LIMIT {small} {small}] [GET (#|s*|h*->f)]... [ASC|DESC] [STORE {list}]", exact},
	{"SORT {list} [LIMIT {small} {small}] [GET (#|s*|h*->f)]... [ASC|DESC] ALPHA [STORE {list}]", exact},
	{"SORT_RO {zset} [ALPHA] [DESC] [LIMIT {small} {small}]", exact},
	// Hashes.
	{"(HSET|HMSET) {hash} ({field} {value})...", exact},
	{"HSETNX {hash} {field} {value}", exact},
	{"(HGET|HEXISTS|HSTRLEN) {hash} {field}", exact},
	{"(HMGET|HDEL) {hash} {field}...", exact},
	{"HLEN {hash}", exact},
	{"HGETALL {hash}", pairs}, {"(HKEYS|HVALS) {hash}", sorted},
	{"HINCRBY {hash} {field} {int}", exact}, {"HINCRBYFLOAT {hash} {field} {float}", exact},
	{"HSCAN {hash} 0 COUNT {all} [MATCH {pattern}]", scan2},
	{"HRANDFIELD {hash} [{small} [WITHVALUES]]", shape},
	// Lists.
	{"(LPUSH|RPUSH|LPUSHX|RPUSHX) {list} {value}...", exact},
	{"(LPOP|RPOP) {list} [{small}]", exact},
	{"LRANGE {list} {index} {index}", exact}, {"LLEN {list}", exact}, {"LINDEX {list} {index}", exact},
	{"LSET {list} {index} {value}", exact},
	{"LINSERT {list} (BEFORE|AFTER) {value} {value}", exact},
	{"LREM {list} {small} {value}", exact},
	{"LTRIM {list} {index} {index}", exact},
	{"LPOS {list} {value} [RANK {small}] [COUNT {small}] [MAXLEN {small}]", exact},
	{"RPOPLPUSH {list} {list}", exact},
	{"LMOVE {list} {list} (LEFT|RIGHT) (LEFT|RIGHT)", exact},
	{"LMPOP {numkeys} {list} {list} (LEFT|RIGHT) [COUNT {count}]", exact},
	// Sets.
	{"(SADD|SREM|SMISMEMBER) {set} {member}...", exact},
	{"SISMEMBER {set} {member}", exact}, {"SCARD {set}", exact},
	{"SMEMBERS {set}", sorted},
	{"SMOVE {set} {set} {member}", exact},
	{"SPOP {set} {all}", sorted}, {"SRANDMEMBER {set} [{small}]", shape},
	{"(SINTER|SUNION|SDIFF) {set}...", sorted},
	{"(SINTERSTORE|SUNIONSTORE|SDIFFSTORE) {set} {set}...", exact},
	{"SINTERCARD {numkeys} {set} {set} [LIMIT {small}]", exact},
	{"SSCAN {set} 0 COUNT {all} [MATCH {pattern}]", scan},
	// Sorted sets.
	{"ZADD {zset} [NX|XX] [GT|LT] [CH] ({score} {member})...", exact},
	{"ZADD {zset} ({score} {member})...", exact},
	{"ZADD {zset} [NX|XX] [GT|LT] INCR {score} {member}", exact},
	{"ZINCRBY {zset} {score} {member}", exact},
	{"(ZREM|ZMSCORE) {zset} {member}...", exact},
	{"(ZSCORE|ZRANK|ZREVRANK) {zset} {member}", exact},
	{"ZCARD {zset}", exact},
	{"ZCOUNT {zset} {edge} {edge}", exact}, {"ZLEXCOUNT {lexset} {lex} {lex}", exact},
	{"ZRANGE {zset} {index} {index} [REV] [WITHSCORES]", exact},
	{"ZRANGE {zset} {edge} {edge} BYSCORE [REV] [LIMIT {small} {small}] [WITHSCORES]", exact},
	{"(ZADD|ZREM) {lexset} (0 {member})...", exact},
	{"ZRANGE {lexset} {lex} {lex} BYLEX [REV] [LIMIT {small} {small}]", exact},
	{"(ZRANGEBYSCORE|ZREVRANGEBYSCORE) {zset} {edge} {edge} [WITHSCORES] [LIMIT {small} {small}]", exact},
	{"(ZRANGEBYLEX|ZREVRANGEBYLEX) {lexset} {lex} {lex} [LIMIT {small} {small}]", exact},
	{"ZREVRANGE {zset} {index} {index} [WITHSCORES]", exact},
	{"ZRANGESTORE {zset} {zset} ({index} {index}|{edge} {edge} BYSCORE) [REV] [LIMIT {small} {small}]", exact},
	{"ZRANGESTORE {lexset} {lexset} {lex} {lex} BYLEX [REV] [LIMIT {small} {small}]", exact},
	{"ZREMRANGEBYRANK {zset} {index} {index}", exact}, {"ZREMRANGEBYSCORE {zset} {edge} {edge}", exact}, {"ZREMRANGEBYLEX {lexset} {lex} {lex}", exact},
	{"(ZPOPMIN|ZPOPMAX) {zset} [{small}]", exact},
	{"ZMPOP {numkeys} {zset} {zset} (MIN|MAX) [COUNT {count}]", exact},
	{"(ZINTER|ZUNION) {numkeys} {zset} ({zset}|{set}) [WEIGHTS {weight} {weight}] [AGGREGATE (SUM|MIN|MAX)] [WITHSCORES]", exact},
	{"(ZINTERSTORE|ZUNIONSTORE) {zset} {numkeys} {zset} ({zset}|{set}) [WEIGHTS {weight} {weight}] [AGGREGATE (SUM|MIN|MAX)]", exact},
	{"ZDIFF {numkeys} {zset} ({zset}|{set}) [WITHSCORES]", exact}, {"ZDIFFSTORE {zset} {numkeys} {zset} {zset}", exact},
	{"ZINTERCARD {numkeys} {zset} {zset} [LIMIT {small}]", exact},
	{"ZSCAN {zset} 0 COUNT {all} [MATCH {pattern}]", scan2},
	{"ZRANDMEMBER {zset} [{small} [WITHSCORES]]", shape},
	// These blocking commands find something, get an error, or wait only for a moment.
	{"(BLPOP|BRPOP) {list}... {moment}", exact},
	{"BLMOVE {list} {list} (LEFT|RIGHT) (LEFT|RIGHT) {moment}", exact},
	{"BRPOPLPUSH {list} {list} {moment}", exact},
	{"BLMPOP {moment} {numkeys} {list} {list} (LEFT|RIGHT) [COUNT {count}]", exact},
	{"(BZPOPMIN|BZPOPMAX) {zset}... {moment}", exact},
	{"BZMPOP {moment} {numkeys} {zset} {zset} (MIN|MAX) [COUNT {count}]", exact},
	// lockstep has no geo commands. The transcripts play the remaining commands of the server.
	{"ECHO {value}", exact}, {"PING [{value}]", exact},
}

// waiting has the commands for connections that may stay blocked.
var waiting = []command{
	{"(BLPOP|BRPOP) ({list}|{key})... 0", exact},
	{"(BLPOP|BRPOP) {list} 0", exact},
	{"BLMOVE {list} {list} (LEFT|RIGHT) (LEFT|RIGHT) 0", exact},
	{"BRPOPLPUSH {list} {list} 0", exact},
	{"BLMPOP 0 {numkeys} {list} {list} (LEFT|RIGHT) [COUNT {count}]", exact},
	{"(BZPOPMIN|BZPOPMAX) ({zset}|{key})... 0", exact},
	{"BZMPOP 0 {numkeys} {zset} {zset} (MIN|MAX) [COUNT {count}]", exact},
}

// rare has the commands that are drawn seldom, because they leave few keys for the others to work on.
var rare = []command{
	{"FLUSHDB", exact}, {"FLUSHALL", exact}, {"SELECT {db}", exact}, {"SELECT 0", exact}, {"SWAPDB {db} {db}", exact},
	{"FUNCTION LOAD [REPLACE] {library}", exact},
	{"FUNCTION DELETE (lib|other|x)", exact},
	{"FUNCTION LIST [LIBRARYNAME (*|l*|x)] [WITHCODE]", leaves},
	{"FUNCTION STATS", leaves}, {"FUNCTION FLUSH", exact},
	{"MULTI", exact}, {"EXEC", exact}, {"DISCARD", exact}, {"UNWATCH", exact},
	{"WATCH {key}...", exact},
	{"(CLIENT GETNAME|CLIENT SETNAME (a|b|))", exact},
}

// wrapper is a script that calls the command in ARGV.
type wrapper struct {
	call []string
	maps bool // the script gets maps, whose order Lua does not define
}

func script(body string) wrapper { return wrapper{call: []string{"EVAL", body}} }

var wrappers = []wrapper{
	script("return redis.call(unpack(ARGV))"),
	script("return redis.pcall(unpack(ARGV))"),
	script("local r = redis.pcall(unpack(ARGV)) if type(r) == 'table' and r.err then return {'err', r.err} end return {type(r), r}"),
	script("redis.call('INCR', 's1') local r = redis.pcall(unpack(ARGV)) redis.call('RPUSH', 'l1', 'x') return r"),
	{[]string{"EVAL", "redis.setresp(3) return redis.call(unpack(ARGV))"}, true},
	script("return tostring(redis.pcall(unpack(ARGV)) == false)"),
	{call: []string{"EVAL_RO", "return redis.pcall(unpack(ARGV))"}},
	// RESTORE must accept what DUMP returns.
	script("local r = redis.pcall(unpack(ARGV)) local d = redis.call('DUMP', ARGV[2] or 's1') if d then redis.call('RESTORE', 'l2', 0, d, 'REPLACE') end return r"),
	{call: []string{"FCALL", "call"}}, {call: []string{"FCALL", "twice"}},
	{call: []string{"FCALL_RO", "ro"}}, {call: []string{"FCALL_RO", "call"}},
}

// library has the functions that wrappers call.
const library = `#!lua name=lib
redis.register_function('call', function(keys, args) return redis.call(unpack(args)) end)
redis.register_function('twice', function(keys, args) redis.pcall(unpack(args)) return redis.pcall(unpack(args)) end)
redis.register_function{function_name='ro', callback=function(keys, args) return redis.pcall(unpack(args)) end, flags={'no-writes'}}`

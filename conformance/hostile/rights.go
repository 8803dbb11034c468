package hostile

import (
	"fmt"
	"slices"
)

// reaches has commands for keys and powers that the user does not have.
var reaches = [][]string{
	{"GET", "secret:string"}, {"SET", "secret:string", "spoiled"}, {"MGET", "app:1", "secret:string"}, {"GETRANGE", "secret:string", "0", "-1"}, {"DUMP", "secret:string"},
	{"HGETALL", "secret:hash"}, {"LRANGE", "secret:list", "0", "-1"}, {"SMEMBERS", "secret:set"}, {"ZRANGE", "secret:zset", "0", "-1"}, {"APPEND", "secret:string", "x"},
	{"COPY", "secret:string", "app:copy"}, {"COPY", "secret:string", "evil:copy"}, {"RENAME", "secret:string", "app:mine"}, {"RENAME", "secret:string", "evil:mine"}, {"COPY", "app:1", "secret:string", "REPLACE"},
	{"SORT", "app:list", "BY", "secret:*", "GET", "secret:*"}, {"SORT", "evil:list", "BY", "nosort", "GET", "secret:string"}, {"SORT", "evil:list", "GET", "secret:hash->field"}, {"SORT_RO", "evil:list", "GET", "secret:*"},
	{"SORT", "evil:list", "STORE", "secret:list"}, {"SINTERSTORE", "secret:set", "evil:set"}, {"SUNION", "evil:set", "secret:set"}, {"SUNIONSTORE", "evil:out", "secret:set"}, {"ZUNION", "1", "secret:zset"},
	{"LMOVE", "secret:list", "evil:list", "LEFT", "RIGHT"}, {"RPOPLPUSH", "secret:list", "evil:list"}, {"LMPOP", "2", "evil:none", "secret:list", "LEFT"}, {"BLMPOP", "0.01", "1", "secret:list", "LEFT"}, {"BLPOP", "secret:list", "0.01"},
	{"BITOP", "AND", "evil:bits", "secret:string"}, {"GETDEL", "secret:string"}, {"DELEX", "secret:string", "IFNE", "x"}, {"DELIFEQ", "held:i0", "i0"}, {"SET", "secret:string", "x", "IFNE", "x"}, {"GETEX", "secret:string", "PX", "1"}, {"GETSET", "secret:string", "x"}, {"SET", "secret:string", "x", "GET"}, {"LCS", "secret:string", "evil:1"},
	{"OBJECT", "ENCODING", "secret:string"}, {"OBJECT", "FREQ", "secret:string"}, {"MEMORY", "USAGE", "secret:string"}, {"TYPE", "secret:string"}, {"EXISTS", "secret:string"}, {"TOUCH", "secret:string"}, {"PTTL", "secret:string"},
	{"PEXPIRE", "secret:string", "1"}, {"PERSIST", "held:i0"}, {"PEXPIRE", "held:i0", "1"}, {"DEL", "held:i0"}, {"UNLINK", "held:i1"}, {"SET", "held:i2", "thief"}, {"SMOVE", "secret:set", "evil:set", "x"},
	{"WATCH", "secret:string"}, {"MIGRATE", "127.0.0.1", "1", "secret:string", "0", "10"}, {"RESTORE", "secret:string", "0", "x", "REPLACE"}, {"MOVE", "secret:string", "1"}, {"SWAPDB", "0", "1"}, {"RANDOMKEY"}, {"KEYS", "*"}, {"SCAN", "0", "MATCH", "secret:*"},
	{"FLUSHALL"}, {"FLUSHDB"}, {"SHUTDOWN", "NOSAVE"}, {"SHUTDOWN"}, {"CONFIG", "GET", "requirepass"}, {"CONFIG", "SET", "requirepass", ""}, {"ACL", "LIST"}, {"ACL", "SETUSER", "narrow", "allkeys", "allcommands"}, {"ACL", "GETUSER", "default"},
	{"ACL", "DELUSER", "wide"}, {"CLIENT", "LIST"}, {"CLIENT", "KILL", "TYPE", "normal"}, {"CLIENT", "PAUSE", "10000"}, {"DEBUG", "SLEEP", "5"}, {"DEBUG", "SEGFAULT"}, {"MONITOR"}, {"SYNC"}, {"PSYNC", "?", "-1"}, {"REPLICAOF", "127.0.0.1", "1"},
	{"FAILOVER"}, {"SAVE"}, {"BGREWRITEAOF"}, {"LOCKSTEP", "REMOVE", "n1"}, {"LOCKSTEP", "TRANSFER"}, {"LOCKSTEP", "SNAPSHOT"}, {"LOCKSTEP", "BACKUP"}, {"LOCKSTEP", "ADD", "n9", "127.0.0.1:1"}, {"SLOWLOG", "GET"}, {"LATENCY", "RESET"},
	{"PUBLISH", "secret", "x"}, {"SUBSCRIBE", "secret"}, {"PSUBSCRIBE", "*"}, {"SPUBLISH", "secret", "x"}, {"SENTINEL", "FAILOVER", "mymaster"}, {"CLUSTER", "RESET"}, {"FUNCTION", "DUMP"}, {"FUNCTION", "FLUSH"}, {"SCRIPT", "KILL"}, {"AUTH", "default", ""},
}

// ways returns pieces that make a node run a command: sent directly, or in one of several indirect ways.
func (g *generator) ways(args []string) [][]byte {
	quoted := ""
	for _, a := range args {
		quoted += fmt.Sprintf(",%q", a)
	}
	quoted = quoted[1:]
	call := pick(g, "redis.call", "redis.pcall")
	body := pick(g, "return %s(%s)", "local a={pcall(%s,%s)} return a", "local f=%s local t={f(%s)} return t[1]", "return coroutine.wrap(function() return %s(%s) end)()",
		"table.sort({3,1,2},function(a,b) %s(%s) return a<b end) return 1", "return string.gsub('a','a',function() return tostring(%s(%s)) end)", "return setmetatable({},{__index=function() return %s(%s) end}).x")
	text := fmt.Sprintf(body, call, quoted)
	switch g.IntN(7) {
	case 0:
		return [][]byte{command(args...)}
	case 1:
		return [][]byte{command("MULTI"), command(args...), command("EXEC")}
	case 2:
		return [][]byte{command("EVAL", text, "1", "app:1"), command("EVAL_RO", text, "0")}
	case 3: // the script declares the key, which the user may not use
		return [][]byte{command("EVAL", text, "1", "secret:string")}
	case 4:
		return [][]byte{command("FUNCTION", "LOAD", "REPLACE", "#!lua name=reach\nredis.register_function('reach', function() "+text+" end)"), command("FCALL", "reach", "0"), command("FCALL_RO", "reach", "0")}
	case 5:
		return [][]byte{command("MULTI"), command("EVAL", text, "0"), command("EXEC")}
	}
	return [][]byte{command("SCRIPT", "LOAD", text), command("EVAL", text, "0"), command("CLIENT", "REPLY", "ON"), command("RESET"), command(args...)}
}

// fewRights makes users that try what they may not do.
func fewRights(g *generator) (list []input) {
	prepare := commands("RPUSH evil:list string hash list", "SADD evil:set x", "SET evil:1 x")
	list = append(list, input{door: clientDoor, user: wide, pieces: prepare, read: readEach},
		input{door: clientDoor, user: narrow, pieces: commands("SET app:1 x", "EVAL return{redis.call('get','app:1')} 0"), read: readEach})
	order := g.Perm(len(reaches))
	for part := range slices.Chunk(order, 12) {
		var pieces [][]byte
		for _, i := range part {
			pieces = append(pieces, g.ways(reaches[i])...)
		}
		list = append(list, input{door: pick(g, clientDoor, clientDoor, clusterDoor, sentinelDoor), node: g.node(), user: pick(g, narrow, narrow, wide), pieces: pieces, read: pick(g, readAll, readEach)})
	}
	return list
}

// noRights makes clients without a password that try commands nevertheless.
func noRights(g *generator) (list []input) {
	for _, d := range []door{clientDoor, sentinelDoor, clusterDoor} {
		var pieces [][]byte
		for _, i := range g.Perm(len(reaches))[:40] {
			pieces = append(pieces, g.ways(reaches[i])...)
		}
		list = append(list, input{door: d, node: g.node(), pieces: pieces, read: readAll})
	}
	guess := [][]byte{}
	for range 300 {
		guess = append(guess, command("AUTH", pick(g, "default", wide, "nobody"), g.word2()))
	}
	return append(list, input{door: clientDoor, node: g.node(), pieces: guess, read: readAll, times: 3})
}

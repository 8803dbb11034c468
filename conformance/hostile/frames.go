package hostile

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// valid returns conversations that a node understands. The method mutate changes them.
func (g *generator) valid() []byte {
	return slices.Concat(pick(g,
		commands("SET evil:1 a NX PX 1000", "GET evil:1", "DEL evil:1"),
		commands("HELLO 3 AUTH wide wide-open", "CLIENT TRACKING ON", "MGET evil:1 evil:2"),
		commands("MULTI", "SET evil:1 2", "INCR evil:1", "EXEC"),
		commands("SUBSCRIBE evil:a evil:b", "PING", "UNSUBSCRIBE"),
		commands("EVAL return{KEYS[1],ARGV[1]} 1 evil:1 x", "SCRIPT LOAD return1", "EVALSHA abc 0"),
		commands("SENTINEL get-master-addr-by-name mymaster", "SENTINEL masters", "SENTINEL sentinels mymaster", "INFO"),
		commands("CLUSTER SLOTS", "CLUSTER NODES", "CLUSTER SHARDS", "READONLY", "ASKING"),
		commands("BLPOP evil:1 0.01", "SORT evil:1 BY nosort GET #", "SCAN 0 MATCH *[ COUNT 10"),
		[][]byte{[]byte("PING\r\nSET evil:1 \"a b\\x00\"\r\nGET evil:1\r\n")},
		[][]byte{[]byte("*1\r\n$4\r\nPING\r\nECHO x\r\n*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n")},
		[][]byte{[]byte("*3\r\n:1\r\n+OK\r\n$-1\r\n~2\r\n#t\r\n,1.5\r\n%1\r\n+a\r\n_\r\n")},
	)...)
}

// mutate changes a few bytes. It changes the beginnings of lines more often than chance would.
func (g *generator) mutate(p []byte) []byte {
	p = slices.Clone(p)
	for range 1 + g.IntN(4) {
		if len(p) == 0 {
			return p
		}
		i := g.IntN(len(p))
		if k := bytes.IndexByte(p[i:], '\n'); g.IntN(3) == 0 && k >= 0 && i+k+1 < len(p) {
			i += k + 1
		}
		switch g.IntN(9) {
		case 0:
			p[i] ^= 1 << g.IntN(8)
		case 1:
			p[i] = byte(g.IntN(256))
		case 2:
			p = slices.Delete(p, i, min(len(p), i+1+g.IntN(8)))
		case 3:
			p = slices.Insert(p, i, p[i:min(len(p), i+1+g.IntN(40))]...)
		case 4:
			p = slices.Insert(p, i, []byte(g.number())...)
		case 5:
			p = p[:i]
		case 6:
			for k := i; k < min(len(p), i+8); k++ {
				p[k] = 0xff
			}
		case 7:
			for k := i; k < min(len(p), i+8); k++ {
				p[k] = 0
			}
		case 8:
			p = slices.Insert(p, i, []byte(pick(g, "\r\n", "\n", "\x00", "*", "$", "*-1\r\n", "$-1\r\n", "\r", "\""))...)
		}
	}
	return p
}

// number returns the text of a number, often one at the edge of a range.
func (g *generator) number() string {
	return pick(g, "-1", "-2", "0", "00", "1024", "1048577", "2147483647", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808",
		"18446744073709551615", "18446744073709551616", "-9223372036854775808", "-9223372036854775809", "1e9", "0x10", "+1", " 1", "99999999999999999999999", "")
}

// frames makes changed conversations for every listener that speaks RESP.
func frames(g *generator) (list []input) {
	for range 150 {
		p := g.mutate(g.valid())
		pieces := [][]byte{p}
		if len(p) > 2 && g.IntN(4) == 0 { // in two packets
			i := 1 + g.IntN(len(p)-1)
			pieces = [][]byte{p[:i], p[i:]}
		}
		list = append(list, input{door: pick(g, clientDoor, clientDoor, sentinelDoor, clusterDoor), node: g.node(), user: pick(g, nobody, wide, wide), pieces: pieces, read: pick(g, readNone, readNone, readNone, readAll)})
	}
	return list
}

// sizes makes inputs that announce much and send little, or send as much as they can.
func sizes(g *generator) (list []input) {
	for range 40 {
		n := g.number()
		p := pick(g, "*"+n+"\r\n", "*2\r\n$"+n+"\r\n", "*1\r\n$4\r\nPING\r\n*"+n+"\r\n$3\r\nGET\r\n", strings.Repeat("*1\r\n", 1+g.IntN(5000)),
			"%"+n+"\r\n", "*2\r\n$4\r\nECHO\r\n$"+n+"\r\n"+strings.Repeat("x", 5000), strings.Repeat("a ", 40_000)+"\r\n", strings.Repeat("a", 70_000))
		list = append(list, input{door: pick(g, clientDoor, sentinelDoor, clusterDoor), node: g.node(), user: pick(g, nobody, wide), pieces: [][]byte{[]byte(p)}, read: pick(g, readNone, readNone, readAll)})
	}
	var many []string
	for i := range 100_000 {
		many = append(many, fmt.Sprintf("evil:%d", i))
	}
	list = append(list, input{door: clientDoor, node: g.node(), user: pick(g, nobody, wide), pieces: [][]byte{command(append([]string{"MGET"}, many...)...)}, read: readAll})
	// Both a client without a password and a client with the right to write send a large argument.
	for _, who := range []string{nobody, wide} {
		list = append(list, input{door: clientDoor, node: g.node(), user: who, pieces: [][]byte{command("SET", "evil:huge", strings.Repeat("h", 20<<20))}, read: readAll, times: 1 + g.IntN(3)})
	}
	for _, line := range g.huge() {
		list = append(list, input{door: clientDoor, node: g.node(), user: wide, pieces: commands(line...), read: readEach})
	}
	return list
}

// huge returns small commands that make large values or replies.
func (g *generator) huge() [][]string {
	return [][]string{
		{"SETRANGE evil:s " + g.number() + " x", "SETRANGE evil:s 536870911 x", "SETBIT evil:b 4294967295 1", "SETRANGE evil:s 100000000 x", "GETRANGE evil:s 0 -1"},
		{"BITFIELD evil:b SET u8 " + g.number() + " 1", "BITOP NOT evil:b2 evil:b", "APPEND evil:s " + strings.Repeat("x", 1000), "STRLEN evil:s"},
		{"SADD evil:set a b c", "SRANDMEMBER evil:set -1000000", "SRANDMEMBER evil:set " + g.number(), "HSET evil:h a b", "HRANDFIELD evil:h -1000000 WITHVALUES"},
		{"ZADD evil:z 1 a", "ZRANDMEMBER evil:z -1000000 WITHSCORES", "ZRANGE evil:z " + g.number() + " " + g.number(), "ZRANGEBYSCORE evil:z -inf +inf LIMIT " + g.number() + " " + g.number()},
		{"SET evil:n " + g.number() + " PX " + g.number(), "EXPIRE evil:n " + g.number(), "INCRBY evil:n " + g.number(), "PEXPIREAT evil:n " + g.number(), "INCRBYFLOAT evil:n 1e308"},
		{"LPUSH evil:l a", "LRANGE evil:l " + g.number() + " " + g.number(), "LPOP evil:l " + g.number(), "LPOS evil:l a RANK " + g.number() + " COUNT " + g.number(), "LINSERT evil:l BEFORE a b"},
		{"KEYS " + strings.Repeat("a*", 500) + "b", "SET evil:" + strings.Repeat("a", 2000) + " 1", "KEYS evil:" + strings.Repeat("a*", 200) + "b", "SCAN " + g.number() + " COUNT " + g.number()},
		{"RESTORE evil:r 0 " + g.word2(), "DUMP evil:n", "COPY evil:n evil:m DB " + g.number(), "SELECT " + g.number(), "SORT evil:l LIMIT " + g.number() + " " + g.number()},
	}
}

func (g *generator) word2() string { return strings.ReplaceAll(fmt.Sprintf("%x", g.Uint64()), " ", "") }

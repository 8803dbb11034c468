package hostile

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// generator makes the inputs of a round.
type generator struct {
	*rand.Rand
	nodes     int
	own       []*recording // from this fleet's links between nodes
	strangers []*recording // from the links of other fleets
}

// attack is one kind of attack.
type attack struct {
	name string
	make func(*generator) []input
	open string // what the attack can still break; if not empty, only `make hostile` plays the attack, not `make test`
}

// attacks has all kinds of attacks. The inputs of each take a few seconds to play.
var attacks = []attack{
	{"scripts like Redis's", likeRedis, "zero bytes in the name of an option, at which Redis ends the text of the error"},
	{"scripts", edgy, ""},
	{"endless scripts", endless, ""},
	{"frames", frames, ""},
	{"sizes", sizes, ""},
	{"requests over HTTP", web, ""},
	{"garbage at the peer port", peerGarbage, ""},
	{"another cluster's frames", peerStrangers, ""},
	{"a member's frames", peerReplays, ""},
	{"handshakes", handshakes, ""},
	{"strangers over TLS", tlsStrangers, ""},
	{"connections", connections, ""},
	{"pipelines", pipelines, ""},
	{"slow readers", slowReaders, ""},
	{"subscriptions", subscriptions, ""},
	{"transactions", transactions, ""},
	{"tracking", tracking, ""},
	{"blocked clients", blocked, ""},
	{"many scripts", manyScripts, ""},
	{"few rights", fewRights, ""},
	{"no rights", noRights, ""},
}

// round makes the inputs of one attack from a seed.
func (a attack) round(seed uint64, nodes int, own, strangers []*recording) []input {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), nodes: nodes, own: own, strangers: strangers}
	list := a.make(g)
	for i := range list {
		list[i].attack = a.name
	}
	return list
}

func (g *generator) node() int { return g.IntN(g.nodes) }

// pick returns one of the values in list, at random.
func pick[T any](g *generator, list ...T) T { return list[g.IntN(len(list))] }

// size returns a number, often one at the edge of a range.
func (g *generator) size() int {
	return pick(g, 0, 1, 2, 15, 16, 17, 255, 256, 4095, 65535, 65536, 100_000, 1<<20-1, 1<<20, 5_000_000) + g.IntN(2)
}

// connections makes many connections on which the client sends nothing, or only half of a command.
func connections(g *generator) (list []input) {
	for _, d := range []door{clientDoor, sentinelDoor, clusterDoor, webDoor, peerDoor} {
		half := pick(g, "", "*", "*3\r\n$3\r\nSET\r\n$", "GET / HTTP/1.1\r\nHost:", "\x16\x03\x01\x02\x00\x01", "*1\r\n$4\r\nPI", strings.Repeat("x", 3000))
		list = append(list, input{door: d, node: g.node(), pieces: [][]byte{[]byte(half)}, read: readNone, times: 50 + g.IntN(150), hold: time.Duration(g.IntN(400)) * time.Millisecond})
	}
	return append(list, input{door: clientDoor, node: g.node(), user: wide, pieces: commands("PING"), times: 200, hold: 100 * time.Millisecond})
}

// pipelines makes inputs that ask for much at once over one connection.
func pipelines(g *generator) (list []input) {
	big := strings.Repeat("v", 1<<20)
	list = append(list, input{door: clientDoor, node: g.node(), user: wide, pieces: [][]byte{command("SET", "evil:big", big)}, read: readEach})
	ask := pick(g, "GET evil:big", "MGET evil:big evil:big evil:big", "EVAL return{redis.call('get','evil:big'),redis.call('get','evil:big')} 1 evil:big", "GETRANGE evil:big 0 -1")
	many := []byte(strings.Repeat(string(command(strings.Fields(ask)...)), 20+g.IntN(60)))
	for range 3 {
		list = append(list, input{door: clientDoor, node: g.node(), user: wide, pieces: [][]byte{many}, read: pick(g, readAll, readSlow, readNone), hold: time.Duration(g.IntN(600)) * time.Millisecond})
	}
	small := []byte(strings.Repeat(string(command("INCR", "evil:counter")), 20_000))
	return append(list, input{door: clientDoor, node: g.node(), user: wide, pieces: [][]byte{small}, read: pick(g, readAll, readNone)})
}

// slowReaders makes clients that ask for large replies of each kind and hardly read them.
func slowReaders(g *generator) (list []input) {
	fill := [][]byte{command("SET", "evil:big", strings.Repeat("v", 200_000))}
	var fields []string
	for i := range 5000 {
		fields = append(fields, fmt.Sprintf("field-%d", i))
	}
	fill = append(fill, command(append([]string{"RPUSH", "evil:list"}, fields...)...), command(append([]string{"SADD", "evil:set"}, fields...)...))
	list = append(list, input{door: clientDoor, node: 0, user: wide, pieces: fill, read: readEach})
	for _, ask := range []string{"GET evil:big", "LRANGE evil:list 0 -1", "SMEMBERS evil:set", "COMMAND DOCS", "INFO everything", "SORT evil:list ALPHA", "SCAN 0 COUNT 100000", "EVAL return{redis.call('get','evil:big')} 1 evil:big", "HELLO 3"} {
		many := []byte(strings.Repeat(string(command(strings.Fields(ask)...)), 30))
		list = append(list, input{door: pick(g, clientDoor, clusterDoor), node: g.node(), user: wide, pieces: [][]byte{many}, read: pick(g, readSlow, readNone), times: 1 + g.IntN(4), hold: 300 * time.Millisecond})
	}
	return list
}

// subscriptions makes many subscribers that are slow to read what is published.
func subscriptions(g *generator) (list []input) {
	var names, patterns []string
	for i := range 2000 {
		names, patterns = append(names, fmt.Sprintf("evil:c%d", i)), append(patterns, fmt.Sprintf("evil:*%d*[a-z]?", i))
	}
	for range 3 {
		list = append(list, input{door: clientDoor, node: g.node(), user: wide, read: readNone, hold: time.Second, times: 2,
			pieces: [][]byte{command(append([]string{"SUBSCRIBE"}, names...)...), command(append([]string{"SSUBSCRIBE"}, names[:50]...)...), command(append([]string{"PSUBSCRIBE"}, patterns[:500]...)...)}})
	}
	message := strings.Repeat("m", 100_000)
	publish := []byte(strings.Repeat(string(command("PUBLISH", "evil:c1", message)), 40))
	for range 2 {
		list = append(list, input{door: clientDoor, node: g.node(), user: wide, pieces: [][]byte{publish}, read: readAll})
	}
	loop := "for i=1,200 do redis.call('publish','evil:c1',string.rep('m'," + fmt.Sprint(g.IntN(200_000)) + ")) end"
	return append(list, input{door: clientDoor, node: g.node(), user: wide, pieces: [][]byte{script(loop)}, read: readEach, script: true})
}

// transactions makes transactions that queue many commands, watch many keys, and stay open.
func transactions(g *generator) (list []input) {
	queue := append([]byte{}, command("MULTI")...)
	for range 2000 {
		queue = append(queue, command("SET", fmt.Sprintf("evil:%d", g.IntN(50)), strings.Repeat("v", g.IntN(200)))...)
	}
	var keys []string
	for i := range 20_000 {
		keys = append(keys, fmt.Sprintf("evil:w%d", i))
	}
	watch := command(append([]string{"WATCH"}, keys...)...)
	end := pick(g, "EXEC", "DISCARD", "PING", "RESET")
	list = append(list,
		input{door: clientDoor, node: g.node(), user: wide, pieces: [][]byte{watch, queue, command(end)}, read: pick(g, readAll, readNone), times: 3},
		input{door: clientDoor, node: g.node(), user: wide, pieces: [][]byte{watch}, read: readAll, times: 5, hold: 300 * time.Millisecond})
	big := append([]byte{}, command("MULTI")...)
	for range 60 {
		big = append(big, command("SET", "evil:big", strings.Repeat("q", 1<<20))...)
	}
	return append(list, input{door: clientDoor, node: g.node(), user: wide, pieces: [][]byte{big}, read: pick(g, readAll, readNone), hold: 300 * time.Millisecond})
}

// tracking makes nodes remember many keys for clients that do not read invalidations.
func tracking(g *generator) (list []input) {
	prefixes := []string{"CLIENT", "TRACKING", "ON", "BCAST"}
	for i := range 500 {
		prefixes = append(prefixes, "PREFIX", fmt.Sprintf("evil:%c%d:", 'a'+i%26, i))
	}
	reads := [][]byte{command("HELLO", "3"), command("CLIENT", "TRACKING", "ON")}
	for i := range 300 {
		args := []string{"MGET"}
		for k := range 50 {
			args = append(args, fmt.Sprintf("evil:t%d", i*50+k))
		}
		reads = append(reads, command(args...))
	}
	list = append(list,
		input{door: clientDoor, node: g.node(), user: wide, pieces: [][]byte{command("HELLO", "3"), command(prefixes...)}, read: readNone, times: 10, hold: 700 * time.Millisecond},
		input{door: clientDoor, node: g.node(), user: wide, pieces: reads, read: pick(g, readAll, readNone), times: 2, hold: 500 * time.Millisecond})
	loop := "for i=1,3000 do redis.call('set','evil:t'..i,i) end"
	return append(list, input{door: clientDoor, node: g.node(), user: wide, pieces: [][]byte{script(loop), script(loop)}, read: readEach, script: true})
}

// blocked makes clients that wait for an element that never comes, or for one that comes to all of them.
func blocked(g *generator) (list []input) {
	for _, line := range []string{"BLPOP evil:none evil:n2 0", "BZPOPMIN evil:none 0", "BLMOVE evil:none evil:dst LEFT RIGHT 0", "BRPOPLPUSH evil:dst evil:none 0", "WAIT 5 0", "BLMPOP 0 2 evil:none evil:n3 LEFT", "BLPOP evil:none 1e300", "BLPOP evil:none 0.0001"} {
		list = append(list, input{door: clientDoor, node: g.node(), user: wide, pieces: commands(line, "PING"), read: pick(g, readAll, readNone), times: 30, hold: 400 * time.Millisecond})
	}
	return append(list, input{door: clientDoor, node: g.node(), user: wide, pieces: commands("RPUSH evil:none a b c d e f g", "ZADD evil:z 1 a", "RENAME evil:z evil:none", "DEL evil:none", "LPUSH evil:dst a"), read: readEach})
}

// manyScripts fills the caches of scripts and libraries.
func manyScripts(g *generator) (list []input) {
	var load, libraries [][]byte
	for i := range 300 {
		load = append(load, command("SCRIPT", "LOAD", fmt.Sprintf("return %d --%s", g.Uint64(), strings.Repeat("x", g.IntN(3000)))))
		if i < 30 {
			libraries = append(libraries, command("FUNCTION", "LOAD", "REPLACE", fmt.Sprintf("#!lua name=evil%d\nredis.register_function('evil%d', function() return 1 end)", i, i)))
		}
	}
	return []input{
		{door: clientDoor, node: g.node(), user: wide, pieces: load, read: pick(g, readAll, readEach), script: true},
		{door: clientDoor, node: g.node(), user: wide, pieces: libraries, read: readEach, script: true},
	}
}

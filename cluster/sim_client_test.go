package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/store"
)

// The clients of the simulation. Each has one request in flight, and does what lock libraries do.

// simKind says what the clients use a key as.
type simKind byte

const (
	simCounter  simKind = 'c' // INCR, GET
	simList     simKind = 'l' // RPUSH of unique elements, LRANGE
	simRegister simKind = 'r' // SET, GET, WATCH and EXEC
	simLock     simKind = 'k' // SET NX PX, the scripts that renew and release, LOCK.ACQUIRE, LOCK.RELEASE, LOCK.TOKEN
	simHold     simKind = 'h' // Redisson's reentrant lock
	simQueue    simKind = 'q' // RPUSH, BLPOP
	simShare    simKind = 's' // LOCK.ACQUIRE with and without SHARED, LOCK.RENEW, LOCK.RELEASE
	simPermit   simKind = 'p' // the same with and without LIMIT
)

var simKinds = []simKind{simCounter, simList, simRegister, simLock, simHold, simQueue, simShare, simPermit}

// simVerb is what an operation does to its key.
type simVerb string

const (
	opIncr    simVerb = "INCR"
	opGet     simVerb = "GET"
	opPush    simVerb = "RPUSH"
	opRange   simVerb = "LRANGE"
	opSet     simVerb = "SET"
	opWatch   simVerb = "WATCH"
	opExec    simVerb = "EXEC"
	opAcquire simVerb = "SET NX PX"
	opRenew   simVerb = "renew"
	opRelease simVerb = "release"
	opToken   simVerb = "LOCK.TOKEN"
	opWait    simVerb = "LOCK.ACQUIRE WAIT"
	opLeave   simVerb = "LOCK.RELEASE"
	opHold    simVerb = "lock"
	opUnhold  simVerb = "unlock"
	opPop     simVerb = "BLPOP"
	opJoin    simVerb = "LOCK.ACQUIRE"
	opKeep    simVerb = "LOCK.RENEW"
)

// simOp is one operation of a history.
type simOp struct {
	client int
	key    string
	verb   simVerb
	arg    string
	form   string // further words of LOCK.ACQUIRE
	mark   string // a text that only its write has; "": it has none
	ttl    time.Duration
	call   time.Duration // when it was sent
	ret    time.Duration // when it was answered
	wait   time.Duration // how long it may wait
	lease  time.Duration // a lease that it sets runs from this time on, or from a later one
	unseen bool          // nobody knows whether it took effect
	reply  store.Reply
	placed time.Duration // when its node heard that it waits; 0: never
	place  uint64        // its place in the queue then

	watched *simOp // EXEC: the read whose version it compares
	version uint64
	slot    int // used only by the checker
}

// simKey is a key that the clients share, with its history.
type simKey struct {
	kind simKind
	name string
	ops  []*simOp
}

type simClient struct {
	s    *simulation
	i    int
	node *simNode
	boot int
	turn int      // counts requests: a reply to an earlier one is ignored
	ops  []*simOp // in flight; empty: idle

	token    map[string]string // tokens of the locks that the client believes to hold
	seen     map[string]*simOp // the last read of a register, since its WATCH
	watching map[string]*simOp
	serial   int
	final    []*simOp // what it still has to ask at the end
}

// What lock libraries send. If a script changes anything, it publishes the mark of its operation, so that the log shows it.
const (
	scriptRelease = `if redis.call("get",KEYS[1]) == ARGV[1] then redis.call("publish",KEYS[2],ARGV[2]) return redis.call("del",KEYS[1]) else return 0 end`
	scriptRenew   = `if redis.call("get",KEYS[1]) == ARGV[1] then redis.call("publish",KEYS[2],ARGV[2]) return redis.call("pexpire",KEYS[1],ARGV[3]) else return 0 end`
	scriptHold    = `if (redis.call('exists',KEYS[1]) == 0) or (redis.call('hexists',KEYS[1],ARGV[1]) == 1) then redis.call('publish',KEYS[2],ARGV[2]); redis.call('hincrby',KEYS[1],ARGV[1],1); redis.call('pexpire',KEYS[1],ARGV[3]); return nil; end; return redis.call('pttl',KEYS[1]);`
	scriptUnhold  = `if (redis.call('hexists',KEYS[1],ARGV[1]) == 0) then return nil; end; redis.call('publish',KEYS[2],ARGV[2]); local counter = redis.call('hincrby',KEYS[1],ARGV[1],-1); if (counter > 0) then redis.call('pexpire',KEYS[1],ARGV[3]); return 0; else redis.call('del',KEYS[1]); return 1; end;`
)

func (s *simulation) startClients() {
	for _, k := range s.plan.kinds {
		for i := range 1 + s.r.IntN(2) {
			name := fmt.Sprintf("%c%d", k, i)
			s.keys[name] = &simKey{kind: k, name: name}
		}
	}
	for i := range s.plan.clients {
		c := &simClient{s: s, i: i, node: s.nodes[s.r.IntN(len(s.nodes))],
			token: map[string]string{}, seen: map[string]*simOp{}, watching: map[string]*simOp{}}
		s.clients = append(s.clients, c)
		s.in(0, 200*ms, c.next)
	}
}

// pickKey draws one of the keys.
func (s *simulation) pickKey() *simKey {
	k := s.plan.kinds[s.r.IntN(len(s.plan.kinds))]
	if other := s.keys[fmt.Sprintf("%c1", k)]; other != nil && s.chance(2) {
		return other
	}
	return s.keys[fmt.Sprintf("%c0", k)]
}

// next sends a request, if the client's node has a process.
func (c *simClient) next() {
	s := c.s
	if len(c.ops) > 0 || s.ending {
		return
	}
	if c.node.n == nil || s.chance(40) {
		c.node = s.nodes[s.r.IntN(len(s.nodes))]
	}
	if c.node.n == nil || c.node.paused {
		c.rest()
		return
	}
	if s.calm && len(c.final) == 0 {
		return
	}
	if s.calm {
		c.ops = c.final[:1]
		c.final = c.final[1:]
	} else {
		c.ops = []*simOp{c.choose(s.pickKey())}
		for s.chance(5) && !c.ops[0].blocks() && len(c.ops) < 3 {
			op := c.choose(s.pickKey())
			if op.blocks() || op.verb == opWatch || op.verb == opExec || c.ops[0].verb == opWatch || c.ops[0].verb == opExec || c.uses(op.key) {
				break
			}
			c.ops = append(c.ops, op)
		}
	}
	c.send()
}

func (c *simClient) uses(key string) bool {
	for _, op := range c.ops {
		if op.key == key {
			return true
		}
	}
	return false
}

// rest lets some time pass before the next request.
func (c *simClient) rest() { c.s.in(ms/2, 2*c.s.plan.think, c.next) }

func (c *simClient) send() {
	s := c.s
	c.turn++
	c.boot = c.node.boots
	from := simSession{c.node, c.boot, c.turn}
	for _, op := range c.ops {
		op.client, op.call = c.i, s.now()
		switch op.verb {
		case opPush, opSet, opExec, opAcquire, opWait, opJoin:
			op.mark = op.arg
		case opRenew, opRelease, opHold, opUnhold:
			op.mark = c.name()
		}
		s.note("client %d on %s: %s %s %s %v", c.i, c.node.id, op.verb, op.key, op.arg, op.ttl)
	}
	calls := make([]Call, len(c.ops))
	for i, op := range c.ops {
		calls[i] = op.command()
	}
	if c.ops[0].blocks() {
		b := &Blocked{Call: calls[0], Done: func(r store.Reply) { c.done(from, []store.Reply{r}) }}
		b.Waits = s.placing(c.ops[0], c.node.n, b)
		c.node.n.Block(b)
		c.node.n.Flush()
		return
	}
	sub := &Submission{Calls: calls}
	sub.Done = func() { c.done(from, sub.Replies) }
	c.node.n.SubmitAsync(sub)
	c.node.n.Flush()
}

// simSession says where a request was sent: to which run of which node, and as which request of the client.
type simSession struct {
	node *simNode
	boot int
	turn int
}

// done notes the replies. A goroutine of the node calls it.
func (c *simClient) done(from simSession, replies []store.Reply) {
	at := c.s.now()
	c.s.arrive(from.node.i, arriveReply, c.i*1000+from.turn%1000, func() { c.answered(from, at, replies) })
}

// answered handles the replies at a time when the node can send them.
func (c *simClient) answered(from simSession, at time.Duration, replies []store.Reply) {
	s := c.s
	if from.turn != c.turn || len(c.ops) == 0 || from.node != c.node || from.boot != c.node.boots {
		return // the connection broke before
	}
	if c.node.paused {
		s.in(5*ms, 50*ms, func() { c.answered(from, at, replies) })
		return
	}
	if len(replies) != len(c.ops) {
		s.violate("client %d sent %d commands and got %d replies", c.i, len(c.ops), len(replies))
		return
	}
	m := c.node.m
	direct := m.acknowledged == at && s.leads(m) && at > 0
	for i, op := range c.ops {
		op.ret, op.reply, op.lease = s.now(), replies[i], op.call
		if direct {
			op.lease = at
		}
		s.note("client %d gets %s", c.i, text(replies[i:i+1]))
		if replies[i].IsError() {
			c.failed(op)
		} else {
			s.record(op)
			c.learned(op)
		}
	}
	c.ops = nil
	c.rest()
}

// failed handles an error. Only CLUSTERDOWN, INDETERMINATE and ErrRemoved, each under its own conditions, are no violation.
func (c *simClient) failed(op *simOp) {
	s := c.s
	code, _, _ := strings.Cut(op.reply.Str, " ")
	waited := op.ret-op.call >= Default().FailoverWait*100/103 // the node's clock may be too fast
	jumped := c.node.jumped >= op.call && c.node.jumped > 0
	switch {
	case op.reply.Str == string(ErrRemoved) && c.node.out(op.call):
		s.stats.refused++
	case s.calm && op.call >= s.calmAt:
		s.violate("client %d gets %q for %s %s although there are no faults", c.i, op.reply.Str, op.verb, op.key)
	case code == "CLUSTERDOWN" && waited:
		s.stats.refused++ // it had no effect, so it is not in the history
	case code == "INDETERMINATE" && (waited || jumped || c.node.out(op.call) || op.reply.Str == string(ErrReplyLost) && c.leases()):
		s.stats.unknown++
		op.unseen, op.ret = true, simNever
		s.record(op)
	default:
		s.violate("client %d gets %q for %s %s after %v", c.i, op.reply.Str, op.verb, op.key, op.ret-op.call)
	}
	delete(c.token, op.key)
	delete(c.seen, op.key)
}

// leases reports whether the request asks for a lease.
func (c *simClient) leases() bool {
	return slices.ContainsFunc(c.ops, func(op *simOp) bool { return op.ttl > 0 })
}

// lost tells the client that a node has died.
func (c *simClient) lost(n *simNode) {
	if c.node != n {
		return
	}
	for _, op := range c.ops {
		op.ret, op.unseen = simNever, true
		c.s.record(op)
		delete(c.token, op.key)
		delete(c.seen, op.key)
	}
	clear(c.watching)
	if len(c.ops) > 0 {
		c.ops = nil
		c.rest()
	}
}

func (s *simulation) record(op *simOp) {
	s.stats.ops++
	s.history = append(s.history, op)
	k := s.keys[op.key]
	k.ops = append(k.ops, op)
}

// name makes a value that no other call makes.
func (c *simClient) name() string {
	c.serial++
	return fmt.Sprintf("v%d.%d;", c.i, c.serial)
}

// choose draws an operation for a key.
func (c *simClient) choose(k *simKey) *simOp {
	s, op := c.s, &simOp{key: k.name}
	held := c.token[k.name]
	switch k.kind {
	case simCounter:
		op.verb = []simVerb{opIncr, opIncr, opGet}[s.r.IntN(3)]
	case simList:
		if op.verb = opRange; !s.chance(3) {
			op.verb, op.arg = opPush, c.name()
		}
	case simRegister:
		c.chooseRegister(op)
	case simLock:
		op.ttl = simTTLs[s.r.IntN(len(simTTLs))]
		switch n := s.r.IntN(7); {
		case n == 0:
			op.verb = opGet
		case n == 6 && held != "":
			op.verb, op.arg, op.ttl = opToken, held, 0
		case held == "" && n%2 == 0:
			op.verb, op.arg = opAcquire, c.name()
		case held == "":
			op.verb, op.arg, op.wait = opWait, c.name(), simWaits[s.r.IntN(len(simWaits))]
		case n == 3:
			op.verb, op.arg = opLeave, held
		case n < 3:
			op.verb, op.arg = opRenew, held
		case n < 5:
			op.verb, op.arg = opRelease, held
		default:
			delete(c.token, k.name) // the lock is left to end by itself
			op.verb, op.arg = opAcquire, c.name()
		}
	case simHold:
		op.ttl, op.arg = simTTLs[s.r.IntN(len(simTTLs))], fmt.Sprint("owner", c.i)
		if op.verb = opHold; held != "" && !s.chance(3) {
			op.verb = opUnhold
		}
	case simShare, simPermit:
		c.chooseHold(k.kind, op, held)
	case simQueue:
		op.verb, op.arg = opPop, []string{"0.05", "0.3", "1.5"}[s.r.IntN(3)]
		if s.chance(2) {
			op.verb, op.arg = opPush, c.name()
		}
	}
	return op
}

// simForms are the ways to hold a lock with several holders.
var simForms = map[simKind][]string{
	simShare:  {"", "DELAY 100", "SHARED", "SHARED DELAY 100"},
	simPermit: {"", "LIMIT 3", "LIMIT 3 PERMITS 2", "LIMIT 3 DELAY 100"},
}

// chooseHold draws an operation for a lock with several holders.
func (c *simClient) chooseHold(kind simKind, op *simOp, held string) {
	s := c.s
	op.ttl = simTTLs[s.r.IntN(len(simTTLs))]
	switch n := s.r.IntN(6); {
	case held == "" || n == 0: // the lock is left to end by itself
		delete(c.token, op.key)
		op.verb, op.arg, op.form = opJoin, c.name(), simForms[kind][s.r.IntN(4)]
		if s.r.IntN(3) > 0 {
			op.wait = simWaits[s.r.IntN(len(simWaits))]
		}
	case n < 4:
		op.verb, op.arg, op.ttl = opLeave, held, 0
	default:
		op.verb, op.arg = opKeep, held
	}
}

func (c *simClient) chooseRegister(op *simOp) {
	w := c.watching[op.key]
	switch n := c.s.r.IntN(6); {
	case w != nil && c.seen[op.key] != nil:
		op.verb, op.arg, op.watched, op.version = opExec, c.name(), c.seen[op.key], w.version
		delete(c.watching, op.key)
	case w != nil, n < 2:
		op.verb = opGet
	case n < 4:
		op.verb, op.arg = opSet, c.name()
	default:
		op.verb = opWatch
	}
}

var simWaits = []time.Duration{50 * ms, 300 * ms, 1500 * ms}

var simTTLs = []time.Duration{30 * ms, 100 * ms, 300 * ms, time.Second, 3 * time.Second}

// learned makes the client remember what it was told.
func (c *simClient) learned(op *simOp) {
	granted := op.verb == opAcquire && op.reply.Kind == store.Simple || (op.verb == opWait || op.verb == opJoin) && op.reply.Kind == store.Array || op.verb == opHold && op.reply.Kind == store.Null
	switch {
	case granted:
		c.token[op.key] = op.arg
	case op.verb == opRelease, op.verb == opLeave, (op.verb == opRenew || op.verb == opToken || op.verb == opKeep) && op.reply.Int == 0, op.verb == opUnhold && op.reply.Int == 0 && op.reply.Kind != store.Integer,
		op.verb == opUnhold && op.reply.Int == 1:
		delete(c.token, op.key)
	case op.verb == opWatch:
		op.version = uint64(op.reply.Elems[0].Int)
		c.watching[op.key] = op
		delete(c.seen, op.key)
	case op.verb == opGet && c.watching[op.key] != nil:
		c.seen[op.key] = op
	case op.verb == opExec:
		delete(c.seen, op.key)
	}
}

// blocks reports whether the operation is a blocking command.
func (op *simOp) blocks() bool {
	return op.verb == opPop || op.verb == opWait || op.verb == opJoin && op.wait > 0
}

// command returns the call by which a session submits the operation.
func (op *simOp) command() Call {
	px := strconv.FormatInt(op.ttl.Milliseconds(), 10)
	switch op.verb {
	case opIncr, opGet:
		return simCall(string(op.verb), op.key)
	case opPush, opSet:
		return simCall(string(op.verb), op.key, op.arg)
	case opRange:
		return simCall("LRANGE", op.key, "0", "-1")
	case opAcquire:
		return simCall("SET", op.key, op.arg, "NX", "PX", px)
	case opRenew:
		return simCall("EVAL", scriptRenew, "2", op.key, "channel", op.arg, op.mark, px)
	case opWait:
		return simCall("LOCK.ACQUIRE", op.key, op.arg, "PX", px, "WAIT", strconv.FormatInt(op.wait.Milliseconds(), 10))
	case opJoin:
		words := []string{"LOCK.ACQUIRE", op.key, op.arg, "PX", px, "WAIT", strconv.FormatInt(op.wait.Milliseconds(), 10)}
		return simCall(append(words, strings.Fields(op.form)...)...)
	case opKeep:
		return simCall("LOCK.RENEW", op.key, op.arg, "PX", px)
	case opLeave:
		return simCall("LOCK.RELEASE", op.key, op.arg)
	case opToken:
		return simCall("LOCK.TOKEN", op.key, "OWNER", op.arg)
	case opRelease:
		return simCall("EVAL", scriptRelease, "2", op.key, "channel", op.arg, op.mark)
	case opHold:
		return simCall("EVAL", scriptHold, "2", op.key, "channel", op.arg, op.mark, px)
	case opUnhold:
		return simCall("EVAL", scriptUnhold, "2", op.key, "channel", op.arg, op.mark, px)
	case opPop:
		return simCall("BLPOP", op.key, op.arg)
	case opWatch:
		return Call{Cmd: call.Exec, Txn: &Transaction{Observe: true, Watched: []Watched{{Key: []byte(op.key)}}}, RESP: 2}
	case opExec:
		return Call{Cmd: call.Exec, RESP: 2, Txn: &Transaction{Watched: []Watched{{Key: []byte(op.key), Version: op.version}},
			Calls: []Call{simCall("SET", op.key, op.arg)}}}
	}
	panic(op.verb)
}

func simCall(words ...string) Call {
	args := make([][]byte, len(words))
	for i, w := range words {
		args[i] = []byte(w)
	}
	cmd, ok := simTable().Resolve(args)
	if !ok {
		panic(words[0])
	}
	return Call{Cmd: cmd, Args: args, RESP: 2}
}

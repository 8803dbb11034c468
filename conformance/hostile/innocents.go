package hostile

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/conformance/judge"
	"github.com/lockstep-io/lockstep/server/respclient"
)

const (
	innocentClients = 6
	// patience is how long a client other than an attacker waits for a reply.
	patience = 15 * time.Second
	// think is the mean pause of an innocent between two actions.
	think = 15 * time.Millisecond
	// mutexes is how many locks the innocents contend for.
	mutexes = 4
	// leaseTime is the time to live of these locks, when they are taken and when they are renewed.
	leaseTime = 30 * time.Second
	forever   = 24 * time.Hour

	renew  = `if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end`
	unlock = `if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end`
)

// innocents are the clients that use locks while others attack.
type innocents struct {
	f       *fleet
	bound   time.Duration // how long a reply may take
	holders *judge.Holders
	gate    sync.RWMutex // locked for writing while the innocents do nothing
	stopped atomic.Bool
	work    sync.WaitGroup
	list    []*innocent

	mu    sync.Mutex
	worst time.Duration
	waits []time.Duration // the waits for all replies
}

type innocent struct {
	all  *innocents
	name string
	node int
	rng  *rand.Rand
	l    *line
	held *judge.Lease
	n    int
}

// innocents starts the innocent clients. When it returns, each of them holds a lock.
func (f *fleet) innocents(seed uint64, bound time.Duration) (*innocents, error) {
	all := &innocents{f: f, bound: bound, holders: judge.NewHolders(f.judge)}
	for i := range innocentClients {
		c := &innocent{all: all, name: fmt.Sprintf("i%d", i), node: i % len(f.nodes), rng: rand.New(rand.NewPCG(seed, uint64(i)))}
		c.held = &judge.Lease{Key: "held:" + c.name, Owner: c.name, TTL: forever, Sent: time.Now()}
		got, err := f.ask(c.node, "SET", c.held.Key, c.held.Owner, "NX", "PX", fmt.Sprint(forever.Milliseconds()))
		if got != "OK" {
			return nil, fmt.Errorf("%s: %v, %v", c.held.Key, got, err)
		}
		c.held.Granted = c.held.Sent
		all.list = append(all.list, c)
	}
	for _, c := range all.list {
		all.work.Go(c.live)
	}
	return all, nil
}

// stop ends the innocents.
func (all *innocents) stop() {
	all.stopped.Store(true)
	all.work.Wait()
}

// since returns the longest time that an innocent has waited for a reply since the last call of since.
func (all *innocents) since() time.Duration {
	all.mu.Lock()
	defer all.mu.Unlock()
	worst := all.worst
	all.worst = 0
	return worst
}

func (all *innocents) waited(d time.Duration) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.worst = max(all.worst, d)
	all.waits = append(all.waits, d)
}

// standStill calls the function do while no innocent waits for a reply.
func (all *innocents) standStill(do func()) {
	all.gate.Lock()
	defer all.gate.Unlock()
	do()
}

func (c *innocent) live() {
	defer func() {
		if c.l != nil {
			c.l.Close()
		}
	}()
	for !c.all.stopped.Load() && !c.all.f.nodes[c.node].Ended() {
		switch n := c.rng.IntN(10); {
		case n < 6:
			c.mutex()
		case n < 8:
			c.lease()
		default:
			c.look()
		}
		time.Sleep(time.Duration(c.rng.Int64N(int64(2 * think))))
	}
}

// refusals has the errors of commands that had no effect. An attack may cause them, but not for longer than the bound.
var refusals = []string{"BUSY ", "CLUSTERDOWN ", "TRYAGAIN ", "LOADING "}

// isUnknown reports whether an outcome is unknown because the leader was lost.
func isUnknown(text string) bool { return strings.HasPrefix(text, "INDETERMINATE ") }

// do sends a command until it is carried out or its outcome is unknown. Another error, or a time over the bound, is a fault.
func (c *innocent) do(args ...string) (reply any, ok bool) {
	began := time.Now()
	for {
		reply, err := c.once(args)
		took := time.Since(began)
		if err == nil {
			c.all.waited(took)
			c.all.f.judge.Count("commands of innocents", 1)
			if took > c.all.bound {
				c.all.f.told(answersLate, "%s waited %v for the answer to %s, the bound is %v", c.name, took, args[0], c.all.bound)
			}
			return reply, true
		}
		if c.all.stopped.Load() || c.all.f.endedSoonAt(c.node, err) {
			return nil, false
		}
		var refused respclient.ServerError
		again := errors.As(err, &refused) && isRefusal(string(refused))
		if isUnknown(string(refused)) && took <= c.all.bound {
			c.all.waited(took)
			c.all.f.judge.Count("unknown outcomes for innocents", 1)
			return nil, false
		}
		if !again || took > c.all.bound {
			c.all.waited(took)
			c.fail(refused != "", took, args, err)
			return nil, false
		}
		c.all.f.judge.Count("refusals of innocents: "+strings.Fields(string(refused))[0], 1)
		time.Sleep(10 * time.Millisecond)
	}
}

func isRefusal(text string) bool {
	for _, r := range refusals {
		if strings.HasPrefix(text, r) {
			return true
		}
	}
	return false
}

// fail reports that an innocent was not served, and lets the innocent begin anew.
func (c *innocent) fail(replied bool, took time.Duration, args []string, err error) {
	what := judge.ClientError
	if !replied && took >= c.all.bound {
		what = answersLate
	}
	c.all.f.told(what, "%s on n%d, after %v: %.200q: %v", c.name, c.node+1, took, args, err)
	if !replied {
		if c.l != nil {
			c.l.Close()
		}
		c.l = nil
		time.Sleep(100 * time.Millisecond)
	}
}

func (c *innocent) once(args []string) (any, error) {
	c.all.gate.RLock()
	defer c.all.gate.RUnlock()
	if c.l == nil {
		l, err := c.all.f.dial(c.node)
		if err != nil {
			return nil, err
		}
		c.l = l
	}
	return c.l.do(args...)
}

func (c *innocent) unique() string {
	c.n++
	return fmt.Sprintf("%s-%d", c.name, c.n)
}

// mutex takes a lock for which others contend, renews it and releases it.
func (c *innocent) mutex() {
	key, owner := fmt.Sprintf("mutex:%d", c.rng.IntN(mutexes)), c.unique()
	got, ok := c.do("SET", key, owner, "NX", "PX", fmt.Sprint(leaseTime.Milliseconds()))
	if !ok {
		c.do("EVAL", unlock, "1", key, owner) // the lock may have been granted
		return
	}
	if got == nil {
		return
	}
	taken := time.Now()
	c.all.holders.Take(key, owner)
	c.all.f.judge.Count("locks granted", 1)
	time.Sleep(time.Duration(c.rng.Int64N(int64(think))))
	if got, ok := c.do("EVAL", renew, "1", key, owner, fmt.Sprint(leaseTime.Milliseconds())); ok && time.Since(taken) < leaseTime {
		c.all.f.judge.Count("locks renewed", 1)
		c.mine(key, owner, "renewal", got)
		taken = time.Now()
	}
	c.all.holders.Drop(key, owner)
	if got, ok := c.do("EVAL", unlock, "1", key, owner); ok && time.Since(taken) < leaseTime {
		c.mine(key, owner, "release", got)
	}
}

func (c *innocent) mine(key, owner, what string, got any) {
	if got != int64(1) {
		c.all.f.told(judge.LockLost, "%s was not %s's any more: its %s returned %v", key, owner, what, got)
	}
}

// lease takes a lock for a short time, and checks shortly before the end of that time that the lock is still there.
func (c *innocent) lease() {
	ttl := time.Duration(150+c.rng.IntN(400)) * time.Millisecond
	l := &judge.Lease{Key: "lease:" + c.name, Owner: c.unique(), TTL: ttl, Sent: time.Now()}
	got, ok := c.do("SET", l.Key, l.Owner, "NX", "PX", fmt.Sprint(ttl.Milliseconds()))
	if !ok || got != "OK" {
		return
	}
	l.Granted = l.Sent // the reply may have waited behind an attacker's reply, for longer than the judge allows for a reply
	time.Sleep(time.Until(l.From().Add(ttl - 20*time.Millisecond)))
	if got, ok = c.do("GET", l.Key); ok && l.Owned(c.all.f.judge, got, time.Now()) {
		c.all.f.judge.Count("leases read before their end", 1)
	}
}

// look checks the lock that the client never releases.
func (c *innocent) look() {
	if got, ok := c.do("GET", c.held.Key); ok && got != c.held.Owner {
		c.all.f.told(judge.LockLost, "%s: owner %v, not %s", c.held.Key, got, c.held.Owner)
	}
	if got, ok := c.do("PTTL", c.held.Key); ok {
		left, _ := got.(int64)
		c.held.Remains(c.all.f.judge, left, time.Now())
	}
	if got, ok := c.do("SET", c.held.Key, "thief", "NX", "PX", "60000"); ok && got != nil {
		c.all.f.told(judge.TwoHolders, "%s was granted to a thief while %s held it", c.held.Key, c.held.Owner)
	}
}

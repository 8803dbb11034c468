package kills

import (
	"fmt"
	"time"

	"github.com/lockstep-io/lockstep/conformance/judge"
)

const (
	// Clients contend for these locks. The leases outlast the run, so the final check finds a lock that nobody has released.
	mutexes  = 12
	foreverS = "86400000"
	forever  = 24 * time.Hour

	unlock = `if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end`

	// These scripts take and release a reentrant lock in Redisson's form. enter returns 0 for another owner's lock.
	enter = `if redis.call('exists',KEYS[1]) == 0 or redis.call('hexists',KEYS[1],ARGV[1]) == 1 then
redis.call('pexpire',KEYS[1],ARGV[2]) local n = redis.call('hincrby',KEYS[1],ARGV[1],1) redis.call('pexpire',KEYS[1],ARGV[2]) return n end return 0`
	leave = `if redis.call('hexists',KEYS[1],ARGV[1]) == 0 then return -1 end
local n = redis.call('hincrby',KEYS[1],ARGV[1],-1) if n == 0 then redis.call('del',KEYS[1]) end return n`
)

// work carries out one action after the other until the run is over.
func (c *client) work() {
	if !c.hold() {
		return
	}
	for !c.run.over() {
		switch n := c.rng.IntN(100); {
		case n < 40:
			c.mutex()
		case n < 60:
			c.reentrant()
		case n < 77:
			c.increment()
		case n < 94:
			c.push()
		default:
			c.lease()
		}
		c.pause(c.run.pause)
	}
}

// held returns the name of the lock that a client takes at the start and never releases.
func (c *client) held() string { return "held:" + c.name }

func (c *client) hold() bool {
	l := &judge.Lease{Key: c.held(), Owner: c.name, TTL: forever, Sent: time.Now()}
	got, known := c.do("SET", l.Key, l.Owner, "NX", "PX", foreverS)
	if !known || got != "OK" {
		c.run.judge.Fault(judge.ClientError, "%s: %v", l.Key, got)
		return false
	}
	l.Granted = time.Now()
	c.token(l.Key, l.Owner, l.Owner)
	c.run.holds(l)
	return true
}

// take takes a lock in one of three ways. If the grant tells the token, the judge gets it.
func (c *client) take(key, owner, ms string) (granted, known bool) {
	var token any
	switch c.rng.IntN(3) {
	case 0:
		got, known := c.do("SET", key, owner, "NX", "PX", ms)
		return got == "OK", known
	case 1:
		got, known := c.do("LOCK.ACQUIRE", key, owner, "PX", ms)
		list, _ := got.([]any)
		if !known || list == nil {
			return false, known
		}
		token = list[0]
	default:
		// The lock has two owners, one after the other, in one entry of the log.
		first := owner + "-first"
		got := c.transaction([]string{"SET", key, first, "NX", "PX", ms}, []string{"LOCK.TOKEN", key, "OWNER", first}, []string{"DELIFEQ", key, first},
			[]string{"SET", key, owner, "NX", "PX", ms}, []string{"LOCK.TOKEN", key, "OWNER", owner})
		if got == nil || got[3] == nil {
			return false, got != nil
		}
		c.run.told(key, first, got[1])
		token = got[4]
	}
	c.run.told(key, owner, token)
	return true, true
}

// token asks for the token of a lock that the owner holds.
func (c *client) token(key, owner, hold string) {
	if got, known := c.do("LOCK.TOKEN", key, "OWNER", owner); known {
		c.run.told(key, hold, got)
	}
}

// mutex takes a lock for which others contend, and releases it.
func (c *client) mutex() {
	key, owner := fmt.Sprintf("mutex:%d", c.rng.IntN(mutexes)), c.unique()
	granted, known := c.take(key, owner, foreverS)
	if known && !granted {
		return // another client holds the lock
	}
	if known {
		c.run.holders.Take(key, owner)
		c.run.judge.Count("locks granted", 1)
		c.pause(c.run.pause / 2)
		if c.rng.IntN(200) == 0 {
			c.pause(time.Second) // the pause is so long that a kill may come in it
		}
		if got, known := c.do("LOCK.RENEW", key, owner, "PX", foreverS); known && got != int64(1) {
			c.run.judge.Fault(judge.LockLost, "%s was not %s's any more: its renewal returned %v", key, owner, got)
		}
		c.token(key, owner, owner)
		c.run.holders.Drop(key, owner)
	}
	before := known
	got, known := c.do("EVAL", unlock, "1", key, owner)
	if before && known && got != int64(1) {
		c.run.judge.Fault(judge.LockLost, "%s was not %s's any more: its release returned %v", key, owner, got)
	}
	if !known {
		c.insist("EVAL", unlock, "1", key, owner)
	}
}

// reentrant takes a lock up to three times and releases it as often.
func (c *client) reentrant() {
	key := fmt.Sprintf("reentrant:%d", c.rng.IntN(mutexes))
	count, hold := judge.Counter{Name: key + " of " + c.name}, c.unique()
	for depth := 1 + c.rng.IntN(3); depth > 0; depth-- {
		got, known := c.do("EVAL", enter, "1", key, c.name, foreverS)
		if known && got == int64(0) && count.High == 0 {
			return // another client holds the lock
		}
		if count.Low == 0 && known {
			c.run.holders.Take(key, c.name)
			defer c.run.holders.Drop(key, c.name)
		}
		if !c.counted(&count, 1, got, known, key) {
			return
		}
		if count.High > 0 {
			c.token(key, c.name, hold)
		}
	}
	c.run.judge.Count("reentrant locks granted", 1)
	c.pause(c.run.pause / 2)
	for count.High > 0 {
		if count.High == 1 {
			c.run.holders.Drop(key, c.name)
		}
		got, known := c.do("EVAL", leave, "1", key, c.name)
		if !c.counted(&count, -1, got, known, key) {
			return
		}
	}
}

// counted judges a change of a reentrant lock's count. If the outcome is unknown, it asks for the count.
func (c *client) counted(count *judge.Counter, delta int64, got any, known bool, key string) bool {
	if n, number := got.(int64); known && number {
		count.Changed(c.run.judge, delta, n)
		return true
	}
	count.Maybe(delta)
	got, known = c.insist("EVAL", `return tonumber(redis.call('hget',KEYS[1],ARGV[1]) or 0)`, "1", key, c.name)
	n, number := got.(int64)
	if known && number {
		count.Is(c.run.judge, n)
	}
	return known
}

// increment increments a counter of the client alone and a counter of all clients.
func (c *client) increment() {
	got, known := c.do("INCR", c.counter.Name)
	if n, number := got.(int64); known && number {
		c.counter.Changed(c.run.judge, 1, n)
	} else {
		c.counter.Maybe(1)
		if got, known = c.insist("INCRBY", c.counter.Name, "0"); known {
			n, _ := got.(int64)
			c.counter.Is(c.run.judge, n)
		}
	}
	ro := c.run.begin()
	got, known = c.do("INCR", ro.counter())
	ro.incremented(c.run.judge, got, known)
}

// push appends an element that nobody has appended before.
func (c *client) push() {
	ro, element := c.run.begin(), c.unique()
	_, known := c.do("RPUSH", ro.list(), element)
	ro.pushed(element, known)
}

// lease takes a lock for a short time, and checks shortly before the end of that time that the lock is still there.
func (c *client) lease() {
	ttl := time.Duration(300+c.rng.IntN(2200)) * time.Millisecond
	l := &judge.Lease{Key: "lease:" + c.name, Owner: c.unique(), TTL: ttl, Sent: time.Now()}
	if granted, _ := c.take(l.Key, l.Owner, fmt.Sprint(ttl.Milliseconds())); !granted {
		return // after a kill, the client's last lease ends late
	}
	l.Granted = time.Now()
	// This is the latest moment at which a reply can still come before the end.
	time.Sleep(time.Until(l.From().Add(ttl - 20*time.Millisecond)))
	got, known := c.do("GET", l.Key)
	if known && l.Owned(c.run.judge, got, time.Now()) {
		c.run.judge.Count("leases read before their end", 1)
	}
	// By the client's own clock the lease ends later, because it counts from the arrival of the reply.
	time.Sleep(time.Until(l.Granted.Add(ttl - 20*time.Millisecond)))
	if got, known = c.do("GET", l.Key); !known || time.Since(l.Granted) >= ttl {
		return
	}
	c.run.judge.Count("leases read within their time to live from the arrival of the reply", 1)
	if got != l.Owner {
		c.run.judge.Count("leases read so that were over: the reply had been on its way", 1)
	}
}

package store

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// What LOCK.FORCE does for the clients of each library.

// wake tells the clients that wait for a lock that it has ended, as the lock's own library does. value is the string that the lock was.
func (c *Ctx) wake(name, value, kind string) {
	switch kind {
	case kindRLock, kindReentrant, kindFenced, kindGroup:
		c.announce(unlockChannel(name), "0")
	case kindFairLock:
		if q := c.fairQueue(c.DB, name); q.Len() > 0 {
			c.announce(unlockChannel(name)+":"+q.At(0), "0")
		}
	case kindReadWrite:
		c.announce(readWriteChannel+braced(name), "1") // this message wakes all that wait, and 0 only one
	case kindLatch:
		c.announce(latchChannel+braced(name), "0")
	case kindPlain:
		c.signal(name)
		if isUUID(value) {
			c.tellRegistries(name)
		}
	}
}

const readWriteChannel = "redisson_rwlock:"

// announce publishes a message of Redisson. In Cluster mode Redisson subscribes to shard channels.
func (c *Ctx) announce(channel, message string) {
	c.Publish(Channel, channel, message)
	c.Publish(Shard, channel, message)
}

// Names of the keys of python-redis-lock: the lock, and the list in which its release wakes one client.
const (
	pythonLock   = "lock:"
	pythonSignal = "lock-signal:"
	signalTTL    = 1000 // ms: nobody may be waiting any more
)

// signalKey returns the list in which clients of python-redis-lock wait for the lock at a key; "" if the key has not the name of one.
func signalKey(key string) string {
	name, ok := strings.CutPrefix(key, pythonLock)
	if !ok {
		return ""
	}
	return pythonSignal + name
}

// signal wakes a client of python-redis-lock, if one waits and the user may do that.
func (c *Ctx) signal(name string) {
	key := stringBytes(signalKey(name))
	if len(key) == 0 || c.env.Blocked == nil || c.env.Blocked(c.DB, string(key)) == 0 || !c.MayRun(c.Cmd.table.Lookup(lpushCommand), lpushCommand, key, oneText) {
		return
	}
	c.work(keySteps)
	if e := c.LookupWrite(c.DB, key); e != nil {
		return // its clients wake by what is there
	}
	c.PushHead(c.DB, key, "1")
	c.SetDeadline(c.DB, key, c.now.Lease+signalTTL)
	c.event(eventList, "lpush", key)
}

var (
	lpushCommand = []byte("lpush")
	oneText      = []byte("1")
)

// mostRegistries is how many names of registries tellRegistries tries: each part of a key before a colon may be one.
const mostRegistries = 8

// tellRegistries publishes what Spring Integration's RedisLockRegistry publishes when it releases a lock. The lock's key is the name of the
// registry, a colon, and the name of the lock.
func (c *Ctx) tellRegistries(key string) {
	from := 0
	for range mostRegistries {
		i := strings.IndexByte(key[from:], ':')
		if i < 0 {
			return
		}
		from += i + 1
		c.Publish(Channel, key[:from-1]+"-channel:"+key[from:], key)
	}
}

// mayEnd returns why LOCK.FORCE cannot end a lock, or "".
func (c *Ctx) mayEnd(e *Entry, kind string, ended int) Error {
	if kind != kindSemaphore {
		return ""
	}
	zrem, key := c.Cmd.table.Lookup(zremCommand), stringBytes(permitsKey(e.key))
	switch {
	case c.permits(c.DB, e.key) == nil:
		return ErrLockAnonymous
	case !c.MayRun(zrem, zremCommand, key, oneText):
		return ErrNoPermKey
	}
	return ""
}

var zremCommand = []byte("zrem")

// giveBack gives the permits of a semaphore back, as their release does.
func (c *Ctx) giveBack(e *Entry, permits []lockHolder) {
	count, key, taken := countOf(e), c.Args[1], permitsKey(e.key)
	for _, h := range permits {
		c.work(keySteps)
		if id, err := hex.DecodeString(h.owner); err == nil { // it is the text that eachPermit has made
			c.ScoreRemove(c.DB, stringBytes(taken), string(id))
		}
	}
	c.event(eventSortedSet, "zrem", stringBytes(taken))
	c.eventIfGone(stringBytes(taken))
	left := strconv.FormatInt(addSaturating(count, int64(len(permits))), 10)
	c.KeepString(c.DB, key, left)
	c.eventOn(eventString, "incrby")
	c.announce(semaphoreChannel+braced(string(key)), left)
}

// dropValues takes values of Redisson's lock of several values from their owners, and reports whether others are left.
func (c *Ctx) dropValues(key []byte, h *Hash, ended []lockHolder) (others bool) {
	owners := map[string]bool{}
	for _, e := range ended {
		owners[e.owner] = true
	}
	var drop []string
	h.Each(func(f Field) bool {
		c.work(1)
		if owners[f.Value] {
			drop = append(drop, f.Name, f.Name+":"+f.Value+groupHolds, f.Name+":"+f.Value+groupEnd)
		} else if redissonOwner(f.Value) {
			others = true
		}
		return true
	})
	if !others {
		return false
	}
	for _, field := range drop {
		c.work(keySteps)
		if _, ok := h.Get(field); ok {
			c.HashDelete(c.DB, key, field)
		}
	}
	return true
}

// dropScore removes a member of a sorted set, if it is one.
func (c *Ctx) dropScore(key []byte, z *SortedSet, member string) {
	c.work(keySteps)
	if _, ok := z.Score(member); ok {
		c.ScoreRemove(c.DB, key, member)
	}
}

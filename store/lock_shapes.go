package store

import (
	"encoding/hex"
	"strings"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// The shapes of locks that a mark alone does not show. A shape is that of all elements, of which the server looks at lookAtFields at most.

// stringKind returns the kind of a string.
func (t *Txn) stringKind(db int, e *Entry) string {
	count := len(e.str) <= maxCount && isInteger(e.str)
	switch {
	case count && e.form&formLatch != 0:
		return kindLatch
	case count && (e.form&formSemaphore != 0 || t.permits(db, e.key) != nil):
		return kindSemaphore
	case e.form&formLock == 0:
		return ""
	case len(e.str) <= MaxLockName && strings.HasPrefix(e.str, "ADDED:") && strings.Contains(e.str, "@"):
		return kindShedLock
	}
	return kindPlain
}

// maxCount is the length of the longest number that a semaphore or a latch can have.
const maxCount = len("-9223372036854775808")

func isInteger(text string) bool {
	_, ok := redistext.ParseInt(stringBytes(text))
	return ok
}

// permitsKey is the key of the permits that Redisson's semaphore with leases has given.
func permitsKey(key string) string { return braced(key) + ":timeout" }

// permitBytes is the length of the id of a permit.
const permitBytes = 16

// permits returns the given permits of Redisson's semaphore with leases; nil: it has given none, or it is no such semaphore.
func (t *Txn) permits(db int, key string) *SortedSet {
	e := t.peek(db, permitsKey(key))
	if e == nil || t.dead(e) || e.typ != TypeSortedSet {
		return nil
	}
	looked, all := 0, true
	e.Scores().Each(0, func(m Scored) bool {
		looked++
		all = len(m.Member) == permitBytes
		return all && looked < lookAtFields
	})
	t.looked += looked
	if !all {
		return nil
	}
	return e.Scores()
}

// noLease is the end of a permit without a lease, as Redisson stores it.
const noLease = 922337203685477

// eachPermit calls fn for the permits of a semaphore with leases, if the user may read their key.
func (c *Ctx) eachPermit(e *Entry, of lockHolder, fn func(h lockHolder) bool) {
	z := c.permits(c.DB, e.key)
	if z == nil || !c.MayRun(c.Cmd.table.Lookup(zrangeCommand), zrangeCommand, stringBytes(permitsKey(e.key)), zeroText, zeroText) {
		return
	}
	of.token = 0 // the token of the key changes with its number
	z.Each(0, func(m Scored) bool {
		of.owner = hex.EncodeToString([]byte(m.Member))
		var alive bool
		if of.until, alive = c.scoredUntil(m.Score); !alive {
			c.work(1)
			return true
		}
		return fn(of)
	})
}

var (
	zrangeCommand = []byte("zrange")
	zeroText      = []byte("0")
)

// scoredUntil converts a Unix time in ms, as libraries store it for the end of a lease, to the lease clock; alive is false if it has passed.
func (c *Ctx) scoredUntil(score float64) (until int64, alive bool) {
	if score >= noLease {
		return 0, true
	}
	left := score - float64(c.now.Wall/1000)
	if !(left > 0) {
		return 0, false
	}
	return addSaturating(c.now.Lease, int64(left)), true
}

// Fields of Redisson's lock of several values: a value has its owner's name in the field that is called as the value, and this owner's holds
// and the end of its lease in two more.
const (
	groupHolds = ":lock_count"
	groupEnd   = ":expire_time"
)

// groupShape reports whether a hash is Redisson's lock of several values.
func (t *Txn) groupShape(h *Hash) bool {
	looked, all, owned := 0, true, false
	h.Each(func(f Field) bool {
		looked++
		switch {
		case redissonOwner(f.Value):
			owned = true
		case strings.HasSuffix(f.Name, groupHolds):
			all = endsWithOwner(strings.TrimSuffix(f.Name, groupHolds)) && isInteger(f.Value)
		case strings.HasSuffix(f.Name, groupEnd):
			all = endsWithOwner(strings.TrimSuffix(f.Name, groupEnd)) && isInteger(f.Value)
		default:
			all = false
		}
		return all && looked < lookAtFields
	})
	t.looked += looked
	return all && owned
}

// endsWithOwner reports whether a text is a value, a colon, and the name of an owner of Redisson.
func endsWithOwner(text string) bool {
	from := strings.LastIndexByte(text, ':') - uuidLength
	return from > 0 && text[from-1] == ':' && redissonOwner(text[from:])
}

// eachValue calls fn for each value of Redisson's lock of several values, with its owner.
func (c *Ctx) eachValue(h *Hash, of lockHolder, fn func(h lockHolder) bool) {
	h.Each(func(f Field) bool {
		c.work(3)
		if !redissonOwner(f.Value) {
			return true
		}
		of.owner, of.holds = f.Value, 1
		alive := true
		if end, ok := h.Get(f.Name + ":" + f.Value + groupEnd); ok {
			if ms, ok := redistext.ParseInt(stringBytes(end)); ok {
				of.until, alive = c.scoredUntil(float64(ms))
			}
		}
		if holds, ok := h.Get(f.Name + ":" + f.Value + groupHolds); ok {
			of.holds, _ = redistext.ParseInt(stringBytes(holds))
		}
		return !alive || fn(of)
	})
}

// symfonyWrite is the member that Symfony's RedisStore adds beside the token of a writer.
const symfonyWrite = "__write__"

// symfonyShape reports whether a sorted set is a lock of Symfony's RedisStore: tokens of 32 random bytes in base64, by the end of their leases.
func (t *Txn) symfonyShape(z *SortedSet) bool {
	looked, write, all := 0, false, true
	z.Each(0, func(m Scored) bool {
		looked++
		if m.Member == symfonyWrite {
			write = true
		} else {
			all = symfonyToken(m.Member)
		}
		return all && looked < lookAtFields
	})
	t.looked += looked
	return all && (!write || z.Len() <= 2)
}

func symfonyToken(text string) bool {
	const length = 44
	if len(text) != length || text[length-1] != '=' {
		return false
	}
	for i := range length - 1 {
		c := text[i]
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '+' || c == '/') {
			return false
		}
	}
	return true
}

// eachSymfony calls fn for the owners of a lock of Symfony's RedisStore.
func (c *Ctx) eachSymfony(z *SortedSet, of lockHolder, fn func(h lockHolder) bool) {
	z.Each(0, func(m Scored) bool {
		alive := false
		of.owner = m.Member
		if of.until, alive = c.scoredUntil(m.Score); !alive || m.Member == symfonyWrite {
			c.work(1)
			return true
		}
		return fn(of)
	})
}

package store

import (
	"hash/maphash"
	"strings"
)

// Many libraries take a lock by a script that looks for the key, by GET or EXISTS, and sets it if it is missing. That is what SET with NX does,
// so the string is a lock, too. Redisson makes the numbers of its semaphores and latches so, and tells their channels.

// missingKeys is how many missing keys a script is remembered to have looked for: the last ones.
const missingKeys = 8

// foundMissing notes that the running script has found a key missing.
func (c *Ctx) foundMissing(key []byte) {
	if c.InScript {
		c.missing[c.misses%missingKeys] = c.missingHash(bytesToString(key))
		c.misses++
	}
}

// wasMissing reports whether the running script has found a key missing.
func (c *Ctx) wasMissing(key []byte) bool {
	if c.misses == 0 {
		return false
	}
	hash := c.missingHash(bytesToString(key))
	for _, h := range c.missing {
		if h == hash {
			return true
		}
	}
	return false
}

// missingHash is never 0. If two keys have the same, a string may be called a lock that is none.
func (c *Ctx) missingHash(key string) uint64 {
	return (maphash.String(cacheSeed, key) + uint64(c.DB)) | 1
}

// Channels of Redisson's semaphores and latches, before the name of the key.
const (
	semaphoreChannel = "redisson_sc:"
	latchChannel     = "redisson_countdownlatch__channel__"
)

// marksCount marks the number of a semaphore or a latch of Redisson, if the running script has made it, and now publishes to its channel.
func (c *Ctx) marksCount(channel []byte) {
	if c.misses == 0 {
		return
	}
	marks := formSemaphore
	name, ok := strings.CutPrefix(bytesToString(channel), semaphoreChannel)
	if !ok {
		if name, ok = strings.CutPrefix(bytesToString(channel), latchChannel); !ok {
			return
		}
		marks = formLatch
	}
	if c.markCount(name, marks) || len(name) < 2 || name[0] != '{' || name[len(name)-1] != '}' {
		return
	}
	c.markCount(name[1:len(name)-1], marks)
}

func (c *Ctx) markCount(key string, marks strForm) bool {
	c.work(keySteps)
	e := c.peek(c.DB, key)
	if !c.wasMissing(stringBytes(key)) || e == nil || c.dead(e) || e.typ != TypeString || !isInteger(e.str) {
		return false
	}
	c.Mark(c.DB, stringBytes(key), marks)
	return true
}

package store

import "strings"

// cmdLockForce replies how many owners have lost the lock.
func cmdLockForce(c *Ctx) Reply {
	if !equalFold(c.Args[2], "reason") {
		return syntaxError
	}
	var owner, token []byte
	for rest := c.Args[4:]; len(rest) > 0; rest = rest[2:] {
		switch {
		case len(rest) > 1 && equalFold(rest[0], "owner") && owner == nil:
			owner = rest[1]
		case len(rest) > 1 && equalFold(rest[0], "token") && token == nil:
			token = rest[1]
		default:
			return syntaxError
		}
	}
	want := int64(-1)
	if token != nil {
		var fault *Reply
		if want, fault = parseToken(token); fault != nil {
			return *fault
		}
	}
	if !c.TokensCounted() {
		return noTokens
	}
	e := c.LookupWrite(c.DB, c.Args[1])
	if e == nil {
		return Zero
	}
	kind := c.kindOf(e)
	if kind == "" {
		return Err(ErrNoLock)
	}
	var ended []lockHolder
	others := false
	c.eachHolder(e, kind, func(h lockHolder) bool {
		c.work(1)
		if (owner == nil || h.owner == string(owner)) && (want < 0 || h.token == uint64(want)) {
			ended = append(ended, h)
		} else {
			others = true
		}
		return true
	})
	if refusal := c.mayEnd(e, kind, len(ended)); refusal != "" {
		return Err(refusal)
	}
	if owner != nil || token != nil || kind == kindSemaphore {
		if len(ended) == 0 {
			return Zero
		}
		if l := e.Lock(); l != nil {
			others = l.Len() > len(ended) // some may only keep their places
		}
	}
	c.judged(LockForced, kind, c.Args[3], len(ended))
	c.end(e, kind, ended, others)
	c.Publish(Channel, eventChannel(c.DB, "forced"), forcedMessage(c.Args[1], c.Args[3], kind, c.Caller, ended))
	if kind == kindLatch {
		return One // it has no owners
	}
	return Int(int64(len(ended)))
}

// end takes a lock from owners; others says that it has others, which keep it.
func (c *Ctx) end(e *Entry, kind string, ended []lockHolder, others bool) {
	key, name, reads := c.Args[1], e.key, 0
	switch kind {
	case kindSemaphore:
		c.giveBack(e, ended)
		return
	case kindGroup:
		if others {
			others = c.dropValues(key, e.Fields(), ended)
		}
		ended = nil
	}
	for _, h := range ended {
		c.work(keySteps)
		if kind == kindReadWrite {
			c.endReads(name, h, &reads)
		}
		switch {
		case !others:
		case e.typ == TypeLock:
			c.drop(c.DB, key, h.owner)
		case kind == kindSymfony:
			c.dropScore(key, e.Scores(), h.owner)
			c.dropScore(key, e.Scores(), symfonyWrite)
		case e.typ == TypeHash:
			c.HashDelete(c.DB, key, h.owner)
			if kind == kindReadWrite && strings.HasSuffix(h.owner, writeSuffix) {
				c.HashSet(c.DB, key, "mode", "read") // the writer that has read, too, reads on
			}
		}
	}
	switch {
	case !others:
		c.Delete(c.DB, key)
		c.eventOn(eventGeneric, "del")
	case e.typ == TypeLock:
		c.eventOn(eventModule, "lock.release")
	case e.typ == TypeSortedSet:
		c.eventOn(eventSortedSet, "zrem")
	default:
		c.eventOn(eventHash, "hdel")
	}
	if others {
		c.eventIfGone(key)
	}
	c.wake(name, e.str, kind)
}

// mostReads is how many keys of readers one command looks at.
const mostReads = 1000

// endReads deletes the keys that keep the times of a reader's holds, as far as the user may delete them.
func (c *Ctx) endReads(name string, h lockHolder, looked *int) {
	del := c.Cmd.table.Lookup(delCommand)
	for i := int64(1); i <= h.holds && *looked < mostReads && redissonOwner(h.owner); i++ {
		*looked++
		c.work(keySteps)
		k := stringBytes(readKey(name, h.owner, i))
		if c.LookupWrite(c.DB, k) != nil && c.MayRun(del, delCommand, k) {
			c.Delete(c.DB, k)
		}
	}
}

var delCommand = []byte("del")

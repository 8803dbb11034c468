package store

import "math"

// resultRoom is how much a command that combines sets may add to its result, which can be much larger than the sets.
type resultRoom struct {
	c       *Ctx
	members int64
	bytes   int64
	each    int64 // bytes that a member takes besides its name
	refusal Error
}

// replyRoom returns the room for a result that becomes the reply of the command; per is the number of Reply values for each member.
func (c *Ctx) replyRoom(per int) *resultRoom {
	return &resultRoom{c, math.MaxInt64, c.MaxReply(), int64(per * ReplySize), c.ErrReply()}
}

// storeRoom returns the room for a result at Args[1], if each member takes the fewest bytes possible.
func (c *Ctx) storeRoom(compact int, memberSize int64) *resultRoom {
	limit := c.MaxEntry() + entryRoom
	grown := c.size - c.from.size
	if old := c.peek(c.DB, bytesToString(c.Args[1])); old != nil {
		grown -= old.size() // the result replaces the old value
	}
	written := int64(c.ws.Size() - c.from.writes)
	return &resultRoom{c, int64(compact) + max(limit-grown, 0)/memberSize, limit - written, int64(len(c.Args[1])) + writeHead, c.ErrTooBig()}
}

// writeHead is how many bytes a write to a collection takes at least, besides the key and the member: the operation and two lengths.
const writeHead = 3

// add counts a member of the result; it returns false if the result is too large.
func (r *resultRoom) add(name string) bool {
	r.c.work(stepsOf(name))
	r.members--
	r.bytes -= r.each + int64(len(name))
	return !r.full()
}

// full reports whether the result is too large.
func (r *resultRoom) full() bool { return r.members < 0 || r.bytes < 0 }

func (r *resultRoom) refuse() Reply { return Err(r.refusal) }

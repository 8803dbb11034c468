package store

import "math"

// resultRoom is how much a command that combines sets may still add to its result. The command ends as soon as the result is too
// large. Otherwise the complete result would be in memory before the command is refused. A result can be much larger than its sets,
// because an integer takes many times more memory in a result than in a set.
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

// storeRoom returns the room for a result that is stored at the key Args[1]. It assumes that each member takes the fewest bytes
// possible in the log and in memory. compact is the largest number of members in the compact form: each further member takes at
// least memberSize bytes of memory.
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

package server

import (
	"slices"
	"sync"
)

// These pools lend buffers to outboxes with more than keepOutput bytes of output, so that an idle client takes no memory for them.
var halves, wholes = sync.Pool{}, sync.Pool{} // of *[]byte, with capacities of 2 and 4 times keepOutput

// borrow returns an empty buffer with a capacity of at least size bytes; size must not exceed 4 times keepOutput.
func borrow(size int) []byte {
	pool, room := &halves, 2*keepOutput
	if size > room {
		pool, room = &wholes, 4*keepOutput
	}
	if b, ok := pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 0, room)
}

// giveBack puts a buffer that nobody uses any more into its pool. It ignores a buffer that borrow would not return.
func giveBack(b []byte) {
	b = b[:0]
	switch cap(b) {
	case 2 * keepOutput:
		halves.Put(&b)
	case 4 * keepOutput:
		wholes.Put(&b)
	}
}

// chunks is a sequence of bytes in pieces. All outboxes share one copy of a large message.
type chunks struct {
	first  [][]byte // the pieces before the field last; other outboxes may share their bytes, so nobody changes these bytes
	size   int      // bytes of the pieces in first
	unused int      // unused capacity behind the pieces of first, in bytes
	last   []byte
}

func (c *chunks) len() int { return c.size + len(c.last) }

// push appends a message; it does not copy a large one.
func (c *chunks) push(message []byte) {
	if len(message) <= keepOutput {
		c.last = append(c.last, message...)
		return
	}
	c.seal()
	c.first = append(c.first, slices.Clip(message)) // Clip: the unused capacity does not count as memory of this client
	c.size += len(message)
}

// seal moves the piece in the field last to the end of the field first.
func (c *chunks) seal() {
	if len(c.last) > 0 {
		c.first = append(c.first, c.last)
		c.size += len(c.last)
		c.unused += cap(c.last) - len(c.last)
		c.last = nil
	}
}

// join appends the pieces of the parameter other, which the caller must not use again.
func (c *chunks) join(other chunks) {
	if len(other.first) == 0 {
		c.last = append(c.last, other.last...)
		return
	}
	c.seal()
	c.first, c.last = append(c.first, other.first...), other.last
	c.size, c.unused = c.size+other.size, c.unused+other.unused
}

// head returns the first piece.
func (c *chunks) head() []byte {
	if len(c.first) > 0 {
		return c.first[0]
	}
	return c.last
}

// drop removes the first n bytes of the first piece.
func (c *chunks) drop(n int) {
	switch {
	case len(c.first) > 0:
		c.size -= n
		if c.first[0] = c.first[0][n:]; len(c.first[0]) == 0 {
			c.shift()
		}
	case n == len(c.last) && cap(c.last) > keepOutput:
		giveBack(c.last)
		c.last = nil
	default:
		c.last = c.last[:copy(c.last, c.last[n:])]
	}
}

// shift removes the first element of c.first.
func (c *chunks) shift() {
	c.unused -= cap(c.first[0]) - len(c.first[0]) // this is what seal has added for the piece: drop shortens length and capacity alike
	c.first[0], c.first = nil, c.first[1:]
}

// take removes and returns the first piece. If that piece was c.last, the empty buffer spare becomes the new c.last.
func (c *chunks) take(spare []byte) []byte {
	out := c.head()
	if len(c.first) == 0 {
		c.last = spare
		return out
	}
	c.size -= len(out)
	c.shift()
	return out
}

package server

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// outbox is everything on its way to one client. Replies come from the
// session's goroutine, messages from whichever goroutine publishes; both only
// append, whole frames, under the lock. One goroutine at a time writes to the
// socket, without the lock: the session's when it has answered a pipeline, or
// one that a message has started.
type outbox struct {
	conn   net.Conn
	try    tryWriter     // the same, if a loop serves it …
	onPush func()        // … which is told of messages by this
	sent   *atomic.Int64 // bytes written, over all sessions
	cutOff *atomic.Int64 // those who were, at their limit
	memory *clientMemory // of all clients; nil: nobody counts

	mu      sync.Mutex
	moved   sync.Cond // signalled after each write
	pending chunks
	spare   []byte // memory of the last write, to be used again
	writing int    // bytes that the writer has taken
	written int64  // bytes that it has finished with
	busy    bool   // a writer is at work
	told    bool   // the loop knows of a message
	counted int    // bytes that memory knows of
	held    bool   // messages wait in late: a reply is being written in pieces
	late    chunks
	failed  bool      // the connection is gone or given up: drop everything
	over    time.Time // since when the soft limit has been exceeded
}

const (
	// keepOutput is how much memory an outbox keeps for its next frames.
	keepOutput = 64 << 10
	// lendLimit is how much it lends: what is sent to many holds up whatever else runs on
	// the processor.
	lendLimit = 16 << 10
)

func newOutbox(conn net.Conn, sent, cutOff *atomic.Int64) *outbox {
	o := &outbox{conn: conn, sent: sent, cutOff: cutOff}
	o.try, _ = conn.(tryWriter)
	o.moved.L = &o.mu
	return o
}

// tryWriter writes what it can without waiting.
type tryWriter interface {
	tryWrite(p []byte) (int, error)
}

// setOnPush has fn called when a message waits.
func (o *outbox) setOnPush(fn func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.onPush = fn
}

// limit is a client output buffer limit: none where 0.
type limit struct {
	hard, soft int64
	softFor    time.Duration
}

// add appends frames to what will be sent at the next flush, and returns how
// much waits.
func (o *outbox) add(frames func(b []byte) []byte) int {
	o.mu.Lock()
	if !o.failed {
		o.pending.last = frames(o.pending.last)
	}
	o.count()
	n := o.pending.len() + o.writing
	o.mu.Unlock()
	return n
}

// push appends a message, which may be pushed to others, too, and sees to its being sent, without waiting for it.
// A client that is past its limit is cut off.
func (o *outbox) push(message []byte, l limit, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed {
		return
	}
	if o.held {
		o.late.push(message)
	} else {
		o.pending.push(message)
	}
	o.count()
	if o.exceeds(l, now) {
		o.cutOff.Add(1)
		o.fail()
		return
	}
	switch {
	case o.busy || o.told || o.held:
	case o.onPush != nil:
		o.told = true
		o.onPush()
	default:
		o.busy = true
		go o.start()
	}
}

// hold keeps messages out of what the session adds until release, whose caller
// flushes.
func (o *outbox) hold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = true
}

func (o *outbox) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = false
	if !o.failed {
		o.pending.join(o.late)
	}
	o.late = chunks{}
}

// exceeds applies the limits of Redis's checkClientOutputBufferLimits: at once
// beyond the hard one, after a while beyond the soft one.
func (o *outbox) exceeds(l limit, now time.Time) bool {
	size := int64(o.pending.len() + o.late.len() + o.writing)
	if l.hard > 0 && size >= l.hard {
		return true
	}
	if l.soft == 0 || size < l.soft {
		o.over = time.Time{}
		return false
	}
	if o.over.IsZero() {
		o.over = now
	}
	return now.Sub(o.over) > l.softFor
}

// checkLimit disconnects the client if it is past its limit.
func (o *outbox) checkLimit(l limit, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.failed && o.exceeds(l, now) {
		o.cutOff.Add(1)
		o.fail()
		return false
	}
	return true
}

// flush sends what is pending and waits until it has been handed to the
// operating system, so that a client that does not read holds up nobody but
// itself.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	goal := o.written + int64(o.writing+o.pending.len())
	for o.written < goal && !o.failed {
		if o.busy {
			o.moved.Wait()
			continue
		}
		o.busy = true
		o.write()
	}
}

// flushNow sends what it can without waiting and reports whether nothing is
// left. Only the loop calls it.
func (o *outbox) flushNow() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tryAll()
}

// sendPushed is the loop's answer to onPush: it sends messages, and what cannot
// be sent at once is left to a goroutine.
func (o *outbox) sendPushed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told = false
	if !o.busy && !o.tryAll() {
		o.busy = true
		go o.start()
	}
}

// lend returns what is pending to who writes it, which settle tells of: nil if there is
// nothing, or much, or somebody writes.
func (o *outbox) lend() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.pending.len(); o.failed || o.busy || n == 0 || n > lendLimit {
		return nil
	}
	out := o.pending.last
	o.pending.last, o.spare = o.spare[:0], nil
	o.busy, o.writing = true, len(out)
	return out
}

// settle takes back what was lent, of which n bytes have been written. The rest is
// written first by the next who writes.
func (o *outbox) settle(out []byte, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent.Add(int64(n))
	o.written += int64(n)
	o.busy, o.writing = false, 0
	o.moved.Broadcast()
	switch rest := out[:copy(out, out[n:])]; {
	case o.failed:
	case len(rest) == 0 && cap(out) > keepOutput:
	case len(rest) > 0 || o.pending.len() == 0:
		first := chunks{last: rest}
		first.join(o.pending)
		o.pending = first
	default:
		o.spare = rest
	}
}

// tryAll is flushNow with mu held.
func (o *outbox) tryAll() bool {
	if o.failed {
		return true
	}
	if o.busy {
		return false
	}
	defer o.count()
	for o.pending.len() > 0 {
		out := o.pending.head()
		n, err := o.try.tryWrite(out)
		o.sent.Add(int64(n))
		o.written += int64(n)
		if err != nil {
			o.fail()
			return true
		}
		if o.pending.drop(n); n < len(out) {
			return false
		}
	}
	return true
}

// start is a writer of its own goroutine.
func (o *outbox) start() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.write()
}

// write is the one writer: busy is set and mu is held, except during the
// write itself. It goes on until nothing is pending.
func (o *outbox) write() {
	for o.pending.len() > 0 && !o.failed {
		own := len(o.pending.first) == 0
		out := o.pending.take(o.spare[:0])
		o.spare = nil
		o.writing = len(out)
		o.mu.Unlock()
		n, err := o.conn.Write(out)
		o.sent.Add(int64(n))
		o.mu.Lock()
		o.writing = 0
		o.written += int64(len(out))
		if own && cap(out) <= keepOutput {
			o.spare = out[:0]
		}
		if err != nil {
			o.fail()
		}
		o.count()
		o.moved.Broadcast()
	}
	o.busy = false
	o.moved.Broadcast()
}

// fail gives the connection up; the reader notices by its being closed.
func (o *outbox) fail() {
	o.failed = true
	o.pending, o.spare, o.late = chunks{}, nil, chunks{}
	o.count()
	o.moved.Broadcast()
	// The error says what is known: the connection is of no more use.
	_ = o.conn.Close()
}

// count tells what waits here, if that is much, or was.
func (o *outbox) count() {
	n := o.pending.len() + o.late.len() + o.writing
	if n <= keepOutput {
		n = 0
	}
	if n != o.counted && o.memory != nil {
		by := n - o.counted
		o.counted = n
		o.memory.changed(int64(by))
	}
}

// abort cuts the client off.
func (o *outbox) abort() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail()
}

// size returns how many bytes wait to be sent.
func (o *outbox) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pending.len() + o.late.len() + o.writing
}

// isOver reports whether the client has been cut off.
func (o *outbox) isOver() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

// chunks are bytes in a row. A large message is one piece of memory for all who have it.
type chunks struct {
	first [][]byte // goes before last; others may have it, too: it is not written to
	size  int      // of first
	last  []byte
}

func (c *chunks) len() int { return c.size + len(c.last) }

// push appends a message.
func (c *chunks) push(message []byte) {
	if len(message) <= keepOutput {
		c.last = append(c.last, message...)
		return
	}
	c.seal()
	c.first = append(c.first, message)
	c.size += len(message)
}

// seal puts last behind first.
func (c *chunks) seal() {
	if len(c.last) > 0 {
		c.first = append(c.first, c.last)
		c.size += len(c.last)
		c.last = nil
	}
}

// join appends other bytes, which are not used again.
func (c *chunks) join(other chunks) {
	if len(other.first) == 0 {
		c.last = append(c.last, other.last...)
		return
	}
	c.seal()
	c.first, c.size, c.last = append(c.first, other.first...), c.size+other.size, other.last
}

// head returns the bytes that come first.
func (c *chunks) head() []byte {
	if len(c.first) > 0 {
		return c.first[0]
	}
	return c.last
}

// drop removes some of head's.
func (c *chunks) drop(n int) {
	switch {
	case len(c.first) > 0:
		c.size -= n
		if c.first[0] = c.first[0][n:]; len(c.first[0]) == 0 {
			c.first[0], c.first = nil, c.first[1:]
		}
	case n == len(c.last) && cap(c.last) > keepOutput:
		c.last = nil
	default:
		c.last = c.last[:copy(c.last, c.last[n:])]
	}
}

// take removes head's bytes and returns them. spare is for what is appended then.
func (c *chunks) take(spare []byte) []byte {
	out := c.head()
	if len(c.first) == 0 {
		c.last = spare
		return out
	}
	c.size -= len(out)
	c.first[0], c.first = nil, c.first[1:]
	return out
}

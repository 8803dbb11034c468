package server

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// outbox holds all output to one client: replies of the session, and messages from any goroutine. All append whole frames under mu.
//
// One goroutine at a time writes to the socket. An event loop never waits for the socket (tryAll, lend). A goroutine that may wait calls
// write.
type outbox struct {
	conn   net.Conn
	try    tryWriter     // conn, if a loop serves it
	onPush func()        // tells the loop that a message waits; nil: no loop serves the connection
	sent   *atomic.Int64 // bytes written to all clients
	cutOff *atomic.Int64 // number of clients that were cut off at their output buffer limit
	memory *clientMemory // counts the memory of all clients; nil: the memory is not counted
	gone   func()        // cutOffNow calls it when it cuts the client off; may be nil
	clock  func() time.Time
	active *atomic.Int64 // Unix ms of the client's last activity, such as output that the system took; nil: not recorded

	mu      sync.Mutex
	moved   sync.Cond // signalled when busy becomes false, after each system call of write, and by fail
	pending chunks    // output that no goroutine writes yet
	spare   []byte    // memory of output that has been written: the next pending.last uses it
	writing int       // how many bytes the method write or the caller of lend is writing now
	written int64     // bytes that have been written so far
	lent    time.Time // when lend last returned output
	busy    bool      // a goroutine runs the method write or is about to, or has output from lend
	told    bool      // push has called onPush, and the loop has not called sendPushed since
	counted int       // bytes that the method count has reported to clientMemory
	held    bool      // from hold to release: messages go to late, because a reply is being queued in pieces
	late    []message
	lateLen int       // bytes of the frames in late
	closing bool      // push drops messages, because the connection ends after the replies
	failed  bool      // the connection has been closed (fail): all output is dropped
	over    time.Time // since when the soft limit has been exceeded; zero: it is not exceeded
}

const (
	// keepOutput is the most memory, in bytes, that an outbox keeps for later output.
	keepOutput = 16 << 10
	// lendLimit is the most that lend returns, because one system call sends the output of many connections, and occupies a processor.
	lendLimit = 16 << 10
	// messageCost is how many bytes a message in outbox.late takes besides its frame.
	messageCost = 64
)

func newOutbox(conn net.Conn, sent, cutOff *atomic.Int64) *outbox {
	o := &outbox{conn: conn, sent: sent, cutOff: cutOff}
	o.try, _ = conn.(tryWriter)
	o.moved.L = &o.mu
	return o
}

// tryWriter is a connection that writes what it can without waiting.
type tryWriter interface {
	tryWrite(p []byte) (int, error)
}

// setOnPush sets the function that push calls when a message waits.
func (o *outbox) setOnPush(fn func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.onPush = fn
}

// limit is a client output buffer limit; 0 means no limit.
type limit struct {
	hard, soft int64
	softFor    time.Duration
}

// add appends replies of size bytes (0: small ones) through the function frames, and returns how many bytes of output wait.
func (o *outbox) add(size int, frames func(b []byte) []byte) int {
	o.mu.Lock()
	if !o.failed {
		o.makeRoom(max(size, smallBuffer))
		o.pending.last = frames(o.pending.last)
	}
	o.count()
	n := o.pending.len() + o.writing
	o.mu.Unlock()
	return n
}

// addPieces does what the method add does, with a large reply that has been encoded in pieces.
func (o *outbox) addPieces(pieces [][]byte) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.failed {
		for _, p := range pieces {
			o.pending.push(p)
		}
	}
	o.count()
	return o.pending.len() + o.writing
}

// makeRoom prepares pending.last for size bytes. It begins a new buffer rather than let append copy a large one.
func (o *outbox) makeRoom(size int) {
	c := &o.pending
	if c.last == nil {
		c.last, o.spare = o.spare[:0], nil
	}
	need := len(c.last) + size
	switch {
	case need <= cap(c.last) || need <= keepOutput:
	case need <= 4*keepOutput && len(c.first) == 0:
		small := c.last
		c.last = append(borrow(need), small...)
		if cap(small) > keepOutput {
			giveBack(small)
		} else {
			o.spare = small[:0]
		}
	default:
		if c.seal(); size > keepOutput {
			c.last = make([]byte, 0, size)
		}
	}
}

// push appends a message without waiting. Several outboxes may share its memory. push cuts off a client whose output exceeds the limit l.
func (o *outbox) push(m message, l limit, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed || o.closing {
		return
	}
	if o.held {
		o.late = append(o.late, m)
		o.lateLen += len(m.frame)
	} else {
		o.pending.push(m.frame)
	}
	o.count()
	if o.exceeds(l, now) {
		o.cutOff.Add(1)
		o.cutOffNow()
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

// closeToMessages drops later messages, because the connection ends after the replies. A waiting message would turn the close into a
// reset, which loses replies.
func (o *outbox) closeToMessages() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closing = true
}

// hold keeps messages from coming between the replies until the method release is called. release sends nothing, so the session must
// flush after it.
func (o *outbox) hold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = true
}

// release ends what hold began, and queues what renew returns for each message since then. It releases mu during renew: goroutines that
// push wait for mu, and may hold locks that renew needs.
func (o *outbox) release(renew func(m *message) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.late) > 0 && !o.failed {
		late, size := o.late, o.lateLen
		o.late = nil
		o.mu.Unlock()
		for i := range late {
			late[i].frame = renew(&late[i])
		}
		o.mu.Lock()
		if o.lateLen -= size; o.failed {
			break
		}
		for i := range late {
			o.pending.push(late[i].frame)
		}
	}
	o.held, o.late, o.lateLen = false, nil, 0
	o.count()
}

// exceeds reports whether the client must be cut off, by the rules of Redis's checkClientOutputBufferLimits.
func (o *outbox) exceeds(l limit, now time.Time) bool {
	size := int64(o.pending.len() + o.lateLen + o.writing)
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

// checkLimit cuts a client off if its output is beyond its limit. It returns false if it has cut the client off.
func (o *outbox) checkLimit(l limit, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.failed && o.exceeds(l, now) {
		o.cutOff.Add(1)
		o.cutOffNow()
		return false
	}
	return true
}

// flush sends the pending output, and waits until the operating system has taken it. So a client
// that does not read delays only itself.
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

// flushNow sends as much output as it can without waiting, and reports whether no output is left. Only the loop calls it, with the present
// time.
func (o *outbox) flushNow(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tryAll(now)
}

// sendPushed sends the output, unless another goroutine writes already. What the socket does not take is left to a goroutine.
func (o *outbox) sendPushed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told = false
	if !o.busy && o.pending.len() > 0 && !o.tryAll(o.now()) {
		o.busy = true
		go o.start()
	}
}

// lend returns output for the caller to write, or nil. If it is not nil, the caller must call settle. now is the present time.
func (o *outbox) lend(now time.Time) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.pending.last); o.failed || o.busy || o.pending.size > 0 || n == 0 || n > lendLimit {
		return nil
	}
	out := o.pending.last
	o.pending.last, o.spare = o.spare[:0], nil
	o.busy, o.writing, o.lent = true, len(out), now
	return out
}

// settle takes back the output from lend, of which the caller has written n bytes. The next write begins
// with the rest.
func (o *outbox) settle(out []byte, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.took(n, o.lent)
	o.written += int64(n)
	o.busy, o.writing = false, 0
	o.moved.Broadcast()
	switch rest := out[:copy(out, out[n:])]; {
	case o.failed:
	case len(rest) == 0 && cap(out) > keepOutput:
		o.count()
	case len(rest) > 0 || o.pending.len() == 0:
		first := chunks{last: rest}
		first.join(o.pending)
		o.pending = first
	default:
		o.spare = rest
	}
}

// now returns the present time for a caller that is about to write; zero if the client's last activity is not recorded.
func (o *outbox) now() (t time.Time) {
	if o.active != nil {
		t = o.clock()
	}
	return t
}

// took counts n bytes that the system has accepted. A client that reads is not idle, so its last activity is the beginning of the write.
func (o *outbox) took(n int, began time.Time) {
	o.sent.Add(int64(n))
	if n > 0 && o.active != nil {
		o.active.Store(began.UnixMilli())
	}
}

// tryAll does what flushNow does, for a caller that holds mu.
func (o *outbox) tryAll(began time.Time) bool {
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
		o.took(n, began)
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

// start runs write on a goroutine of its own.
func (o *outbox) start() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.write()
}

// write writes until no output is pending or the connection has failed. The caller has set busy, which write clears, and holds mu, which
// write releases during system calls.
func (o *outbox) write() {
	for o.pending.len() > 0 && !o.failed {
		own := len(o.pending.first) == 0
		out := o.pending.take(o.spare[:0])
		o.spare = nil
		o.writing = len(out)
		began := o.now()
		o.mu.Unlock()
		n, err := o.conn.Write(out)
		o.mu.Lock()
		o.took(n, began)
		o.writing = 0
		o.written += int64(len(out))
		switch {
		case !own:
		case cap(out) <= keepOutput:
			o.spare = out[:0]
		default:
			giveBack(out)
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

// fail discards all output and closes the connection, so that its reader notices. The system also discards undelivered output, if there
// was output to discard.
func (o *outbox) fail() {
	if !o.failed && o.pending.len()+o.lateLen+o.writing > 0 {
		resetAtClose(o.conn)
	}
	o.failed = true
	o.pending, o.spare, o.late, o.lateLen = chunks{}, nil, nil, 0
	o.count()
	o.moved.Broadcast()
	// An error of Close does not matter: the connection is useless already.
	_ = o.conn.Close()
}

// takes returns how much memory the waiting output takes. The caller holds mu.
func (o *outbox) takes() int {
	n := o.pending.len() + o.pending.unused + o.lateLen + len(o.late)*messageCost + o.writing
	if size := cap(o.pending.last); size > keepOutput {
		n += size - len(o.pending.last)
	}
	return n
}

// memoryHeld returns what the method takes returns, for a caller that does not hold mu.
func (o *outbox) memoryHeld() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.takes()
}

// count calls memory.changed if the memory of the waiting output has changed. Up to keepOutput bytes count as 0. The caller holds
// mu.
func (o *outbox) count() {
	n := o.takes()
	if n <= keepOutput {
		n = 0
	}
	if n != o.counted && o.memory != nil {
		by := n - o.counted
		o.counted = n
		o.memory.changed(int64(by))
	}
}

// abort closes the connection. If no output waits in the outbox, the operating system still sends the output that it has accepted.
func (o *outbox) abort() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail()
}

// cut closes the connection of a client that the server cuts off. Unlike abort, it always makes the system discard undelivered output.
func (o *outbox) cut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cutOffNow()
}

// cutOffNow does what the method cut does, for a caller that holds mu.
func (o *outbox) cutOffNow() {
	if o.failed {
		return
	}
	resetAtClose(o.conn)
	if o.gone != nil {
		o.gone()
	}
	o.fail()
}

// resetAtClose makes closing a connection reset it: the operating system discards the output that the peer has not
// acknowledged.
func resetAtClose(conn net.Conn) {
	for {
		switch c := conn.(type) {
		case interface{ resetAtClose() }:
			c.resetAtClose()
			return
		case interface{ SetLinger(sec int) error }:
			_ = c.SetLinger(0) // it fails only on a connection that is closed
			return
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return // not a TCP connection
		}
	}
}

// size returns how many bytes wait to be sent.
func (o *outbox) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pending.len() + o.lateLen + o.writing
}

// isOver reports whether the outbox has closed the connection: by abort, by cutting the client off, or after a failed write.
func (o *outbox) isOver() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

package cluster

import (
	"bufio"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"lockstep/cluster/internal/fair"
	"lockstep/cluster/internal/frame"
)

// outbox writes frames to a connection from a goroutine of its own, because
// the sequencer must never wait for a peer. Frames that are queued together
// leave together.
type outbox struct {
	conn net.Conn

	mu      sync.Mutex
	full    [][]byte // frames to be written before buf
	buf     []byte   // frames, being filled
	waiting int      // bytes in full
	writing int      // bytes that take has returned and that are not written yet
	err     error
	ready   chan struct{} // has room for one: buf is not empty, or err is set
}

const (
	// peerWriteTimeout ends a link whose other side does not read …
	peerWriteTimeout = 10 * time.Second
	// … and maxOutbox is how many bytes may wait to be written before the link ends, too.
	maxOutbox = 512 << 20
	// pieceSize is the size from which on a buffer takes no more frames: a large buffer would be copied
	// to grow.
	pieceSize = 256 << 10
	// maxPeerOutput is how many bytes may wait before the leader puts off replies to reads that are
	// larger than fair.SmallReply: all of them would stand in memory at once.
	maxPeerOutput = 4 << 20
)

var errSlowPeer = errors.New("cluster: a peer does not read what is sent to it")

func newOutbox(conn net.Conn) *outbox {
	return &outbox{conn: conn, ready: make(chan struct{}, 1)}
}

// send appends a frame built by fill. An error means that the frame will not
// be sent.
func (o *outbox) send(kind byte, id uint64, fill func([]byte) []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil && o.waiting+len(o.buf) > maxOutbox {
		o.end(errSlowPeer)
	}
	if o.err != nil {
		return o.err
	}
	if len(o.buf) > pieceSize {
		o.full, o.buf, o.waiting = append(o.full, o.buf), nil, o.waiting+len(o.buf)
	}
	start := len(o.buf)
	o.buf = frame.End(fill(frame.Begin(o.buf, kind, id)), start)
	if start == 0 {
		o.signal()
	}
	return nil
}

// size returns how many bytes wait to be written.
func (o *outbox) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waiting + len(o.buf) + o.writing
}

func (o *outbox) signal() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// end stops the outbox; the caller holds mu.
func (o *outbox) end(err error) {
	if o.err == nil {
		o.err = err
	}
	o.conn.Close()
	o.signal()
}

// close stops the outbox and its goroutine.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end(net.ErrClosed)
}

// run writes until the outbox ends.
func (o *outbox) run() {
	var spare []byte
	for range o.ready {
		pieces, ok := o.take(spare)
		if !ok {
			return
		}
		for i, out := range pieces {
			if !o.write(out) {
				return
			}
			pieces[i], spare = nil, out[:0]
		}
		if cap(spare) > 1<<20 {
			spare = nil
		}
	}
}

// take returns what is to be written, in order; false if the outbox has ended.
func (o *outbox) take(spare []byte) (pieces [][]byte, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil || o.waiting+len(o.buf) == 0 {
		return nil, o.err == nil
	}
	pieces = append(o.full, o.buf)
	o.writing = o.waiting + len(o.buf)
	o.full, o.buf, o.waiting = nil, spare, 0
	return pieces, true
}

// write writes a piece, and reports whether it could.
func (o *outbox) write(out []byte) bool {
	stalled := time.AfterFunc(peerWriteTimeout, func() { o.conn.Close() })
	_, err := o.conn.Write(out)
	stalled.Stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing -= len(out)
	if err != nil {
		o.end(err)
	}
	return o.err == nil
}

// forwarded is a request that was sent to a peer and waits for its result.
type forwarded struct {
	client *Client                      // that has sent it; nil: none
	done   func(body []byte, err error) // called once
	waits  func()                       // if not nil: called when the peer says that it waits, or runs for long
}

// link is a connection to a peer for forwarding to it.
type link struct {
	peer  greeting
	out   *outbox
	token uint64 // by which the leader knows the requests of this link; set before it becomes a route
	room  func() // if not nil: waits until there is room for a large result

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]*forwarded
	retired bool // takes no more calls and ends with the last result
	broken  bool
}

func newLink(conn net.Conn, peer greeting) *link {
	return &link{peer: peer, out: newOutbox(conn), waiting: map[uint64]*forwarded{}}
}

// call sends a frame; done is called with the result, or with errNotExecuted
// if the frame was certainly not sent, or with errUnknown. It returns a
// function that gives the call up.
func (l *link) call(kind byte, fill func([]byte) []byte, done func([]byte, error)) (giveUp func()) {
	return l.callWaiting(kind, fill, &forwarded{done: done})
}

// callWaiting is call for a request whose sender also hears when the peer says that it takes long
// (f.waits).
func (l *link) callWaiting(kind byte, fill func([]byte) []byte, f *forwarded) (giveUp func()) {
	id := l.start(kind, fill, f)
	if id == 0 {
		return func() {}
	}
	return func() { l.resolve(id, nil, errUnknown) }
}

// start is call without the function that gives up. It returns the number of the call; 0 if done has been
// called.
func (l *link) start(kind byte, fill func([]byte) []byte, f *forwarded) (id uint64) {
	l.mu.Lock()
	var err error
	if !l.broken && !l.retired {
		// mu is held, so fail finds the call in waiting if it has been sent.
		if err = l.out.send(kind, l.next+1, fill); err == nil {
			l.next++
			id = l.next
			l.waiting[id] = f
		}
	}
	l.mu.Unlock()
	if id == 0 {
		f.done(nil, errNotExecuted)
	}
	if err != nil {
		l.fail()
	}
	return id
}

// cancel asks the peer to cancel a blocking command; the result of the call tells whether it did.
func (l *link) cancel(call uint64, how int32) {
	// If the link is broken, fail ends the call.
	_ = l.out.send(frameCancel, call, func(b []byte) []byte { return append(b, byte(how)) })
}

// progress is called when the peer says that a call waits, or runs for long.
func (l *link) progress(id uint64) {
	l.mu.Lock()
	f := l.waiting[id]
	l.mu.Unlock()
	if f != nil && f.waits != nil {
		f.waits()
	}
}

func (l *link) resolve(id uint64, body []byte, err error) {
	l.mu.Lock()
	f := l.waiting[id]
	delete(l.waiting, id)
	last := l.retired && len(l.waiting) == 0
	l.mu.Unlock()
	if f != nil {
		f.client.Holds(len(body))
		f.done(body, err)
	}
	if last {
		l.fail()
	}
}

// retire ends the link as soon as every call has its result.
func (l *link) retire() {
	l.mu.Lock()
	l.retired = true
	last := len(l.waiting) == 0
	l.mu.Unlock()
	if last {
		l.fail()
	}
}

// read delivers results until the connection ends.
func (l *link) read(r *bufio.Reader) {
	defer l.fail()
	for {
		f, err := l.readNext(r)
		switch {
		case err == nil && f.Kind == frameResult:
			l.resolve(f.ID, f.Body, nil)
		case err == nil && f.Kind == frameWaits:
			l.progress(f.ID)
		default:
			return
		}
	}
}

// readNext reads a frame. Before it reads a large one it waits for room.
func (l *link) readNext(r *bufio.Reader) (frame.Frame, error) {
	n, err := frame.ReadLength(r, frame.MaxLength)
	if err != nil {
		return frame.Frame{}, err
	}
	if n > fair.SmallReply && l.room != nil {
		l.room()
	}
	return frame.ReadRest(r, n)
}

// fail ends the link. The calls that are still waiting have an unknown outcome.
func (l *link) fail() {
	l.out.close()
	l.mu.Lock()
	l.broken = true
	waiting := l.waiting
	l.waiting = map[uint64]*forwarded{}
	l.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(waiting)) {
		waiting[id].done(nil, errUnknown)
	}
}

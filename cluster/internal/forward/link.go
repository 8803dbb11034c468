package forward

import (
	"bufio"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
)

// Outbox writes frames to a connection from a goroutine of its own, because the sequencer must never wait for a peer.
type Outbox struct {
	Longest int // most bytes that a frame may have; less than frame.MaxLength in tests

	conn net.Conn

	mu      sync.Mutex
	full    [][]byte // frames to be written before those in the field buf
	buf     []byte   // the latest frames; Send appends to them
	waiting int      // bytes in the field full
	writing int      // bytes that the method take has returned and that are not written yet
	err     error
	ready   chan struct{} // has room for one value, which wakes Run: buf is not empty, or err is set
}

const (
	// If the other side of a link does not read a piece of at most writeSize bytes within peerWriteTimeout, the link ends.
	peerWriteTimeout = 10 * time.Second
	writeSize        = 256 << 10
	// maxOutbox is how many bytes may wait to be written. If more wait when another frame is to be sent, the link ends.
	maxOutbox = 512 << 20
	// pieceSize is the size above which buf moves to the list full, because a large buffer would be copied to grow.
	pieceSize = 256 << 10
	// MaxPeerOutput is how many bytes may wait before the leader puts off further large replies, so that not all are in memory.
	MaxPeerOutput = 4 << 20
)

var errSlowPeer = errors.New("cluster: a peer does not read what is sent to it")

func NewOutbox(conn net.Conn) *Outbox {
	return &Outbox{Longest: frame.MaxLength, conn: conn, ready: make(chan struct{}, 1)}
}

// Send appends a frame built by fill. After an error the frame is not sent and, except for ErrTooLong, the outbox has ended.
func (o *Outbox) Send(kind byte, id uint64, fill func([]byte) []byte) error {
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
	buf := fill(frame.Begin(o.buf, kind, id))
	if len(buf)-start > o.Longest {
		return ErrTooLong // o.buf still ends where the frame begins, in memory of its usual size
	}
	o.buf = frame.End(buf, start)
	if start == 0 {
		o.signal()
	}
	return nil
}

// Takes reports whether that number of further bytes may wait to be written.
func (o *Outbox) Takes(bytes int) bool { return o.Size()+bytes <= maxOutbox }

// Size returns how many bytes wait to be written.
func (o *Outbox) Size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waiting + len(o.buf) + o.writing
}

func (o *Outbox) signal() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// end stops the outbox; the caller holds mu.
func (o *Outbox) end(err error) {
	if o.err == nil {
		o.err = err
	}
	o.conn.Close()
	o.signal()
}

// Close stops the outbox and its goroutine.
func (o *Outbox) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end(net.ErrClosed)
}

// Run writes until the outbox ends.
func (o *Outbox) Run() {
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

// take returns what is to be written, in order. ok is false if the outbox has ended.
func (o *Outbox) take(spare []byte) (pieces [][]byte, ok bool) {
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

// write writes a piece, and reports whether it could. A long piece over a slow connection has no time limit as long as the peer
// reads.
func (o *Outbox) write(out []byte) bool {
	stalled := time.AfterFunc(peerWriteTimeout, func() { o.conn.Close() })
	_, err := o.conn.Write(out[:min(len(out), writeSize)])
	for from := writeSize; from < len(out) && err == nil; from += writeSize {
		stalled.Reset(peerWriteTimeout)
		_, err = o.conn.Write(out[from:min(len(out), from+writeSize)])
	}
	stalled.Stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing -= len(out)
	if err != nil {
		o.end(err)
	}
	return o.err == nil
}

// Forwarded is a request that was sent to a peer and waits for its result.
type Forwarded struct {
	Client *fair.Client                 // the client that has sent the request; nil: none
	Done   func(body []byte, err error) // called once, with the result or an error
	Waits  func(place uint64)           // if not nil: called when the peer says that the request waits, in which place, or runs for long
}

// Link is a connection over which this node forwards requests to a peer.
type Link struct {
	Peer  Handshake
	Out   *Outbox
	Token uint64 // by which the leader knows the requests of this link; set before the link becomes a route
	Room  func() // if not nil: waits until there is room for a large result

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]*Forwarded
	retired bool // the link accepts no more calls, and ends with the result of the last one
	broken  bool
}

func NewLink(conn net.Conn, peer Handshake) *Link {
	return &Link{Peer: peer, Out: NewOutbox(conn), waiting: map[uint64]*Forwarded{}}
}

// Call does what Start does, with the parameter done as Forwarded.Done. The function giveUp ends the call with raftnode.ErrUnknown,
// if the call has no result yet.
func (l *Link) Call(kind byte, fill func([]byte) []byte, done func([]byte, error)) (giveUp func()) {
	id := l.Start(kind, fill, &Forwarded{Done: done})
	return func() { l.Resolve(id, nil, raftnode.ErrUnknown) }
}

// Start sends a frame; id is 0 if it was not sent. f.Done gets the result, or raftnode.ErrUnknown if the peer may have executed it.
func (l *Link) Start(kind byte, fill func([]byte) []byte, f *Forwarded) (id uint64) {
	l.mu.Lock()
	var err error
	if !l.broken && !l.retired {
		// mu is held until the call is in the map waiting, so Fail finds every call that has been sent.
		if err = l.Out.Send(kind, l.next+1, fill); err == nil {
			l.next++
			id = l.next
			l.waiting[id] = f
		}
	}
	l.mu.Unlock()
	switch {
	case err == ErrTooLong:
		f.Done(nil, err)
	case id == 0:
		f.Done(nil, raftnode.ErrNotExecuted)
		if err != nil {
			l.Fail()
		}
	}
	return id
}

// Cancel asks the peer to cancel a blocking command for the reason how, or says that another call's client was cut off.
func (l *Link) Cancel(call uint64, how int32) {
	// If the link is broken, Fail ends the call.
	_ = l.Out.Send(Cancel, call, func(b []byte) []byte { return append(b, byte(how)) })
}

// progress is called when the peer says that a call waits, or runs for long.
func (l *Link) progress(id uint64, body []byte) {
	l.mu.Lock()
	f := l.waiting[id]
	l.mu.Unlock()
	if f != nil && f.Waits != nil {
		f.Waits(ReadPlace(body))
	}
}

// Resolve ends a call with its result, or with an error. It does nothing if the call has ended already.
func (l *Link) Resolve(id uint64, body []byte, err error) {
	l.mu.Lock()
	f := l.waiting[id]
	delete(l.waiting, id)
	last := l.retired && len(l.waiting) == 0
	l.mu.Unlock()
	if f == nil {
		return
	}
	f.Client.Holds(len(body))
	f.Done(body, err)
	if last {
		l.Fail()
	}
}

// Retire makes the link accept no more calls, and ends it as soon as every call has its result.
func (l *Link) Retire() {
	l.mu.Lock()
	l.retired = true
	last := len(l.waiting) == 0
	l.mu.Unlock()
	if last {
		l.Fail()
	}
}

// Read delivers results until the connection ends.
func (l *Link) Read(r *bufio.Reader) {
	defer l.Fail()
	for {
		f, err := l.readNext(r)
		switch {
		case err == nil && f.Kind == Result:
			l.Resolve(f.ID, f.Body, nil)
		case err == nil && f.Kind == Waits:
			l.progress(f.ID, f.Body)
		default:
			return
		}
	}
}

// readNext reads a frame. Before it reads a large one it waits for room.
func (l *Link) readNext(r *bufio.Reader) (frame.Frame, error) {
	n, err := frame.ReadLength(r, frame.MaxLength)
	if err != nil {
		return frame.Frame{}, err
	}
	if n > fair.SmallReply && l.Room != nil {
		l.Room()
	}
	return frame.ReadRest(r, n)
}

// Fail ends the link. The calls that are still waiting have an unknown outcome.
func (l *Link) Fail() {
	l.Out.Close()
	l.mu.Lock()
	l.broken = true
	waiting := l.waiting
	l.waiting = map[uint64]*Forwarded{}
	l.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(waiting)) {
		waiting[id].Done(nil, raftnode.ErrUnknown)
	}
}

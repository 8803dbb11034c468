package cluster

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"github.com/lockstep-io/lockstep/store"
)

// The network of the simulation. A connection delivers in order, when the seed says, and may end at any time.

type simPair struct {
	s       *simulation
	id      int
	proto   byte
	ends    [2]*simConn
	streams [2]simStream // what ends[0] has sent, and what ends[1] has sent
	over    bool         // neither end uses the connection any more
}

// simStream is one direction of a connection; only the driver uses it.
type simStream struct {
	frames    [][]byte
	partial   []byte
	pumping   bool
	chosen    bool // the byte that chooses the protocol has been taken off
	handshook bool
	finish    bool // the stream ends when frames is empty
	over      bool // the stream has ended
}

// simConn is one end of a connection.
type simConn struct {
	pair *simPair
	side int
	node *simNode
	boot int // number of the node's process

	mu     sync.Mutex
	cond   *sync.Cond
	in     []byte
	eof    bool
	closed bool
	out    []byte
	dirty  bool
}

var _ net.Conn = (*simConn)(nil)

func (c *simConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.in) == 0 && !c.eof && !c.closed {
		c.cond.Wait()
	}
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case len(c.in) == 0:
		return 0, io.EOF
	}
	n := copy(b, c.in)
	c.in = c.in[n:]
	return n, nil
}

func (c *simConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	c.out = append(c.out, b...)
	c.announce()
	return len(b), nil
}

func (c *simConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		c.cond.Broadcast()
		c.announce()
	}
	return nil
}

// die closes an end whose process has died. What goroutines of that process still write is not sent.
func (c *simConn) die() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.cond.Broadcast()
}

// announce tells the driver that this end has written something, or was closed. The caller holds c.mu.
func (c *simConn) announce() {
	if !c.dirty {
		c.dirty = true
		c.pair.s.arrive(c.node.i, arriveBytes, 2*c.pair.id+c.side, func() { c.pair.s.sent(c) })
	}
}

type simAddr string

func (a simAddr) Network() string { return "sim" }
func (a simAddr) String() string  { return string(a) }

func (c *simConn) LocalAddr() net.Addr              { return simAddr(c.node.addr) }
func (c *simConn) RemoteAddr() net.Addr             { return simAddr(c.pair.ends[1-c.side].node.addr) }
func (c *simConn) SetDeadline(time.Time) error      { return nil }
func (c *simConn) SetReadDeadline(time.Time) error  { return nil }
func (c *simConn) SetWriteDeadline(time.Time) error { return nil }

var errSimDial = errors.New("simulation: no connection")

// dial is the function Config.dial of a node.
func (s *simulation) dial(from *simNode, boot int, addr string, proto byte) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	to := s.byAddr(addr)
	s.arrive(from.i, arriveDial, int(proto)*100+to.i, func() {
		if from.boots != boot || from.m == nil {
			done <- result{nil, errSimDial}
			return
		}
		s.after(s.delay(s.plan.slowNet), func() {
			if from.boots != boot || from.m == nil || to.m == nil || to.paused || s.isCut(from, to) || s.isCut(to, from) {
				wait := time.Duration(0)
				if s.chance(2) {
					wait = peerport.DialTimeout
				}
				s.after(wait, func() { done <- result{nil, errSimDial} })
				return
			}
			done <- result{s.connect(from, to, proto), nil}
		})
	})
	r := <-done
	return r.conn, r.err
}

// connect makes a connection, and makes the far node serve it.
func (s *simulation) connect(from, to *simNode, proto byte) *simConn {
	s.pairs++
	p := &simPair{s: s, id: s.pairs, proto: proto}
	for i, n := range []*simNode{from, to} {
		c := &simConn{pair: p, side: i, node: n, boot: n.boots}
		c.cond = sync.NewCond(&c.mu)
		p.ends[i] = c
		n.conns = append(n.conns, c)
	}
	s.note("connection %d from %s to %s: %c", p.id, from.id, to.id, proto)
	if proto == peerport.ProtoForward {
		go to.n.serveForward(p.ends[1])
	} else {
		go to.n.peers.Serve(p.ends[1])
	}
	return p.ends[0]
}

// sent takes what an end has written, and notes whether that end has been closed.
func (s *simulation) sent(c *simConn) {
	c.mu.Lock()
	out, closed := c.out, c.closed
	c.out, c.dirty = nil, false
	c.mu.Unlock()
	p := c.pair
	if p.over {
		return
	}
	st := &p.streams[c.side]
	if c.side == 0 && !st.chosen && len(out) > 0 {
		st.chosen, out = true, out[1:]
	}
	st.take(out, p.proto)
	if closed {
		s.endStream(p, c.side)
	}
	s.pump(p, c.side)
}

// take cuts bytes into frames, and sorts them. Otherwise the scheduler would decide the order of frames that two goroutines send at
// the same instant.
func (st *simStream) take(out []byte, proto byte) {
	if len(out) == 0 {
		return
	}
	if !st.handshook && proto == peerport.ProtoForward {
		st.handshook = true
		st.frames = append(st.frames, out)
		return
	}
	st.partial = append(st.partial, out...)
	var list [][]byte
	for len(st.partial) >= 4 {
		n := 4 + int(binary.BigEndian.Uint32(st.partial))
		if len(st.partial) < n {
			break
		}
		list = append(list, bytes.Clone(st.partial[:n]))
		st.partial = st.partial[n:]
	}
	slices.SortStableFunc(list, func(a, b []byte) int {
		return cmp.Compare(store.Flag(a[4] != forward.Submit).Int, store.Flag(b[4] != forward.Submit).Int)
	})
	st.frames = append(st.frames, list...)
}

// about describes a frame without its number, because the two goroutines that send may take their numbers in either order.
func about(f []byte) string {
	if string(f[:4]) == forward.Magic {
		return "a handshake"
	}
	_, size := binary.Uvarint(f[5:])
	return fmt.Sprintf("a frame of kind %d, %d bytes,", f[4], len(f)-5-size)
}

// endStream ends a direction: at once, after everything that is on its way, or after some of that.
func (s *simulation) endStream(p *simPair, side int) {
	st := &p.streams[side]
	if st.finish {
		return
	}
	st.finish = true
	if n := len(st.frames); n > 0 && s.chance(2) {
		st.frames = st.frames[:s.r.IntN(n+1)]
	}
	// The other side need not close, but what it sends goes nowhere.
	s.note("connection %d: side %d ends behind %d frames", p.id, side, len(st.frames))
	if s.plan.stale && !s.calm && s.chance(3) && !st.pumping {
		st.pumping = true
		s.endLate(p, side, s.now()+s.between(ms, 3*time.Second))
	}
}

// endLate delivers what is left of a direction much later, but at once if the faults are over.
func (s *simulation) endLate(p *simPair, side int, at time.Duration) {
	if left := at - s.now(); left > 0 && !s.calm {
		s.after(min(left, 50*ms), func() { s.endLate(p, side, at) })
		return
	}
	s.deliver(p, side)
}

// pump schedules the delivery of the next frame of a direction.
func (s *simulation) pump(p *simPair, side int) {
	st := &p.streams[side]
	if st.pumping || st.over || len(st.frames) == 0 && !st.finish {
		return
	}
	st.pumping = true
	s.after(s.frameDelay(p), func() { s.deliver(p, side) })
}

func (s *simulation) frameDelay(p *simPair) time.Duration {
	if p.proto == peerport.ProtoFacts {
		return 300 * time.Microsecond
	}
	return s.delay(s.plan.slowNet)
}

func (s *simulation) deliver(p *simPair, side int) {
	st, from, to := &p.streams[side], p.ends[side].node, p.ends[1-side]
	if s.isCut(from, to.node) || to.node.paused && to.node.boots == to.boot {
		s.in(5*ms, 40*ms, func() { s.deliver(p, side) })
		return
	}
	st.pumping = false
	to.mu.Lock()
	closed := to.closed
	switch {
	case len(st.frames) > 0:
		f := st.frames[0]
		st.frames = st.frames[1:]
		if !closed {
			to.in = append(to.in, f...)
			to.cond.Broadcast()
			if p.proto == peerport.ProtoForward {
				s.note("connection %d: %s gets %s from %s", p.id, to.node.id, about(f), from.id)
			}
		}
	case st.finish:
		to.eof, st.over = true, true
		to.cond.Broadcast()
		to.mu.Unlock()
		return
	}
	to.mu.Unlock()
	s.pump(p, side)
}

// breakPair ends a connection from outside.
func (s *simulation) breakPair(p *simPair) {
	for side := range p.ends {
		s.endStream(p, side)
		s.pump(p, side)
	}
}

func (s *simulation) isCut(from, to *simNode) bool {
	return from.isolated || to.isolated || from.cut[to.i]
}

func (s *simulation) byAddr(addr string) *simNode {
	for _, n := range s.nodes {
		if n.addr == addr {
			return n
		}
	}
	panic(addr)
}

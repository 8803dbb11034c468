// Package turns bounds the CPU time that strangers, who have not authenticated, can make this process spend on TLS
// handshakes.
//
// A signature with an RSA key takes milliseconds, and a stranger triggers one with a few hundred bytes. So a
// handshake computes only while it has one of a fixed number of turns. The addresses whose handshakes wait get the
// turns in rotation: the handshakes of an address that sends a flood wait mostly for each other.
package turns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Turns hands out a fixed number of turns to handshakes.
type Turns struct {
	rests bool // after each turn the processor is left to other work for as long as the turn took, at most maxRest

	mu      sync.Mutex
	free    int
	waiting map[line][]chan struct{}
	order   [2][]line // lines with waiting handshakes, the next one first; [0]: of unknown addresses, [1]: of known ones
	known   bool      // give has last looked into order[1], not order[0]
}

// line names a queue of waiting handshakes. An answered handshake, which needs little more CPU time, does not wait behind new ones of
// its address.
type line struct {
	from            netip.Addr
	known, answered bool
}

// Half returns a Turns with one turn for every two processors. A single processor has one turn, which rests after each use
// (Turns.rests).
func Half() *Turns {
	n := runtime.GOMAXPROCS(0)
	return New(max(1, n/2), n == 1)
}

// New returns a Turns with the given count. If rests is true, a turn rests for as long as it was taken, at most maxRest.
func New(count int, rests bool) *Turns {
	return &Turns{free: count, rests: rests, waiting: map[line][]chan struct{}{}}
}

// take waits for a turn; it returns false if gone is closed first.
func (t *Turns) take(l line, gone <-chan struct{}) bool {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return true
	}
	mine := make(chan struct{})
	if len(t.waiting[l]) == 0 {
		t.order[l.rank()] = append(t.order[l.rank()], l)
	}
	t.waiting[l] = append(t.waiting[l], mine)
	t.mu.Unlock()
	select {
	case <-mine:
		// The runtime runs a woken goroutine next: without Gosched, a node with one processor would answer
		// no command between two handshakes.
		runtime.Gosched()
		return true
	case <-gone:
		if !t.forget(l, mine) {
			t.give() // the handshake got a turn in the meantime
		}
		return false
	}
}

// rank returns the index in Turns.order of the list that the line belongs to.
func (l line) rank() int {
	if l.known {
		return 1
	}
	return 0
}

// maxRest bounds a rest. A goroutine that held its turn for longer did not compute all that time: the system had given its
// processor to others.
const maxRest = 20 * time.Millisecond

// giveAfter gives back a turn, at once or, if t.rests is set, after a rest. The parameter had is how long the handshake held it.
func (t *Turns) giveAfter(had time.Duration) {
	if t.rests && had > 0 {
		time.AfterFunc(min(had, maxRest), t.give)
		return
	}
	t.give()
}

// give passes a turn to a waiting handshake. While known and unknown addresses wait, every second turn goes to a known one.
func (t *Turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = !t.known && len(t.order[1]) > 0 || len(t.order[0]) == 0
	order := &t.order[line{known: t.known}.rank()]
	if len(*order) == 0 {
		t.free++
		return
	}
	l := (*order)[0]
	*order = (*order)[1:]
	// Within a line the choice is random: the client that came first may have given up.
	list := t.waiting[l]
	i, last := rand.IntN(len(list)), len(list)-1
	close(list[i])
	list[i] = list[last]
	if last > 0 {
		t.waiting[l] = list[:last]
		*order = append(*order, l)
	} else {
		delete(t.waiting, l)
	}
}

// forget removes a waiting handshake; it returns false if the handshake has already got a turn.
func (t *Turns) forget(l line, who chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting[l], who)
	if i < 0 {
		return false
	}
	t.waiting[l] = slices.Delete(t.waiting[l], i, i+1)
	if len(t.waiting[l]) == 0 {
		delete(t.waiting, l)
		order := &t.order[l.rank()]
		*order = slices.DeleteFunc(*order, func(other line) bool { return other == l })
	}
	return true
}

// Idle reports whether all of count turns are free and no handshake waits.
func (t *Turns) Idle(count int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.free == count && len(t.waiting) == 0 && len(t.order[0])+len(t.order[1]) == 0
}

// Conn takes turns for the handshake between crypto/tls and a connection. Until Done returns, only WaitsForClient and Answered are
// safe for concurrent use.
type Conn struct {
	net.Conn
	ctx      context.Context
	now      func() time.Time
	turns    *Turns // nil after the handshake
	line     line
	has      bool        // the handshake has a turn
	since    time.Time   // time since which the handshake has its turn
	in       []byte      // bytes that Read returns next
	read     int         // bytes read for the handshake
	client   atomic.Bool // the handshake waits for the client
	answered atomic.Bool // the node has sent something
}

// Conn returns a connection whose handshake computes only while it has a turn. The caller must call Done after the handshake. from is
// the other side's Origin, known says whether somebody has authenticated from it before, and in has the bytes already read.
func (t *Turns) Conn(ctx context.Context, conn net.Conn, in []byte, from netip.Addr, known bool, now func() time.Time) *Conn {
	return &Conn{Conn: conn, ctx: ctx, now: now, turns: t, line: line{from: from, known: known}, in: in}
}

// readSize is larger than most messages of a handshake. Otherwise crypto/tls would wait for a turn for each piece of a message.
const readSize = 4 << 10

// maxRead is how many bytes the other side may send for a handshake. Without this limit, a stranger could make crypto/tls keep much
// more.
const maxRead = 32 << 10

var (
	errMuch   = fmt.Errorf("it has sent more than %d bytes for the handshake", maxRead)
	errHungUp = errors.New("it has hung up before the node answered")
)

// Read gives back the turn before it waits for data of the handshake, and takes a new one when data has arrived.
func (c *Conn) Read(p []byte) (n int, err error) {
	if len(c.in) == 0 && c.turns == nil {
		return c.Conn.Read(p)
	}
	if len(c.in) == 0 {
		err = c.fill()
	}
	n = copy(p, c.in)
	if c.in = c.in[n:]; len(c.in) == 0 {
		c.in = nil
	}
	return n, err
}

// fill reads the data that has arrived, and waits for a turn before crypto/tls works on it.
func (c *Conn) fill() error {
	c.giveBack()
	buf := make([]byte, readSize)
	c.client.Store(true)
	n, err := c.Conn.Read(buf)
	c.client.Store(false)
	if c.read += n; err == nil && c.read > maxRead {
		return errMuch
	}
	if err == nil {
		err = c.takeTurn()
	}
	c.in = buf[:n]
	return err
}

// takeTurn waits for a turn. It returns an error if the client has hung up before an answer, and so cannot complete the handshake.
func (c *Conn) takeTurn() error {
	c.line.answered = c.answered.Load()
	if !c.line.answered && hungUp(c.Conn) {
		return errHungUp
	}
	if c.has = c.turns.take(c.line, c.ctx.Done()); !c.has {
		return context.Cause(c.ctx)
	}
	c.since = c.now()
	if !c.line.answered && hungUp(c.Conn) { // while it waited
		return errHungUp
	}
	return nil
}

// WaitsForClient reports whether the handshake waits for the client to send or to read.
func (c *Conn) WaitsForClient() bool { return c.client.Load() }

// Answered reports whether the node has sent something for the handshake.
func (c *Conn) Answered() bool { return c.answered.Load() }

// Write gives back the turn of the handshake first, because it may block until the other side reads.
func (c *Conn) Write(p []byte) (int, error) {
	if c.turns == nil {
		return c.Conn.Write(p)
	}
	c.giveBack()
	c.answered.Store(true)
	c.client.Store(true)
	defer c.client.Store(false)
	return c.Conn.Write(p)
}

// Done gives back the turn. The caller calls it when the handshake has succeeded or failed; later reads and writes take
// no turns.
func (c *Conn) Done() {
	c.giveBack()
	c.turns = nil
}

func (c *Conn) giveBack() {
	if c.has {
		c.has = false
		c.turns.giveAfter(c.now().Sub(c.since))
	}
}

// Origin returns the address of the other side for limits per address: for IPv6 the /64 network, in which one client can have many
// addresses.
func Origin(conn net.Conn) netip.Addr {
	tcp, ok := conn.RemoteAddr().(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Addr{}
	}
	addr := tcp.AddrPort().Addr().Unmap()
	if !addr.Is6() {
		return addr
	}
	network, err := addr.WithZone("").Prefix(64)
	if err != nil {
		return addr
	}
	return network.Addr()
}

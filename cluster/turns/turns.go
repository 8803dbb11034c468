// Package turns bounds the CPU time that strangers can make this process spend on TLS handshakes.
//
// A signature with an RSA key takes milliseconds, and a stranger triggers one with a few hundred bytes. So a
// handshake needs a turn while it computes. Turns go round the addresses that wait: the handshakes of an
// address that sends a flood wait mostly for each other.
package turns

import (
	"context"
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
	order   [2][]line // lines with waiting handshakes, the next one first; [0]: of strangers, [1]: of known addresses
	known   bool      // the last turn went to a known address
}

// line is a queue of similar handshakes. Handshakes that the node has answered have a line of
// their own: they need little more CPU time, and do not wait behind all new ones.
type line struct {
	from            netip.Addr
	known, answered bool
}

// Half returns turns for half of the processors; with one processor, turns for half of its time.
func Half() *Turns {
	n := runtime.GOMAXPROCS(0)
	return New(max(1, n/2), n == 1)
}

// New returns count turns. With rests, each turn comes back only after a rest as long as the turn, at most maxRest.
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
		// The runtime runs a woken goroutine next: with one processor, the node would answer
		// no command between two handshakes.
		runtime.Gosched()
		return true
	case <-gone:
		if !t.forget(l, mine) {
			t.give() // the turn came at the same time
		}
		return false
	}
}

// rank returns the index of the line's queue in Turns.order.
func (l line) rank() int {
	if l.known {
		return 1
	}
	return 0
}

// maxRest bounds a rest: a goroutine that held its turn for longer did not compute all that time; the system had
// given its processor to others.
const maxRest = 20 * time.Millisecond

// giveAfter gives a turn back, after a rest if the turns have rests. had is how long the turn was held.
func (t *Turns) giveAfter(had time.Duration) {
	if t.rests && had > 0 {
		time.AfterFunc(min(had, maxRest), t.give)
		return
	}
	t.give()
}

// give passes a turn to a waiting handshake, if there is one. Every second turn goes to a known
// address while both kinds wait.
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

// Conn stands between crypto/tls and a connection during the handshake. One goroutine uses it; any may call WaitsForClient.
type Conn struct {
	net.Conn
	ctx    context.Context
	now    func() time.Time
	turns  *Turns // nil after the handshake
	line   line
	has    bool        // the handshake has a turn …
	since  time.Time   // … since this time
	in     []byte      // bytes that Read returns next
	read   int         // bytes read for the handshake
	client atomic.Bool // the handshake waits for the client
}

// Conn returns a connection whose handshake computes by turns until Done is called. known means that the
// node has let its address in before; in holds bytes already read from conn. A wait for a turn ends with ctx.
func (t *Turns) Conn(ctx context.Context, conn net.Conn, in []byte, from netip.Addr, known bool, now func() time.Time) *Conn {
	return &Conn{Conn: conn, ctx: ctx, now: now, turns: t, line: line{from: from, known: known}, in: in}
}

// readSize is more than the size of a ClientHello, or of a certificate with its signature: crypto/tls
// reads these in pieces, and would wait for a turn for each piece.
const readSize = 4 << 10

// maxRead is several times the size of a handshake, even with a long chain of certificates. Without
// it crypto/tls would keep a quarter of a megabyte for each stranger.
const maxRead = 32 << 10

var errMuch = fmt.Errorf("it has sent more than %d bytes for the handshake", maxRead)

// Read gives its turn back while it waits for data.
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
		if c.has = c.turns.take(c.line, c.ctx.Done()); !c.has {
			return context.Cause(c.ctx)
		}
		c.since = c.now()
	}
	c.in = buf[:n]
	return err
}

// WaitsForClient reports whether the handshake waits for the client to send or to read.
func (c *Conn) WaitsForClient() bool { return c.client.Load() }

// Write gives its turn back, too: the client may not read, and the write would block.
func (c *Conn) Write(p []byte) (int, error) {
	if c.turns == nil {
		return c.Conn.Write(p)
	}
	c.giveBack()
	c.line.answered = true
	c.client.Store(true)
	defer c.client.Store(false)
	return c.Conn.Write(p)
}

// Done ends the handshake, whether it succeeded or failed.
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

// Origin returns the address by which a connection is counted. For IPv6 that is the /64 network,
// in which one client can have as many addresses as it likes.
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

// Package turns bounds what strangers can have this process compute for TLS handshakes.
//
// A signature with an RSA key takes milliseconds, and a stranger gets one by a few hundred bytes. So who
// computes for a handshake needs a turn, and those who wait for one get it in turn by their addresses:
// who sends a flood waits for his own flood.
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
	"time"
)

// Turns are the right to compute for a handshake.
type Turns struct {
	rests bool // after each turn the processor is left to others for as long

	mu      sync.Mutex
	free    int
	waiting map[line][]chan struct{}
	order   [2][]line // of strangers, and of those who are known: each that somebody waits in, who is next first
	known   bool      // had the last turn
}

// line is where those wait who are alike. Those whom the node has answered need little
// more, and do not wait behind all that begin.
type line struct {
	from            netip.Addr
	known, answered bool
}

// Half leaves half of the processors to others, and half of the time if there is one.
func Half() *Turns {
	n := runtime.GOMAXPROCS(0)
	return New(max(1, n/2), n == 1)
}

// New returns so many turns; rests says that the processor is left to others after each, for as long.
func New(count int, rests bool) *Turns {
	return &Turns{free: count, rests: rests, waiting: map[line][]chan struct{}{}}
}

// take waits for a turn; false if gone is closed before.
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
		// The runtime would run this one next: with one processor no command would be
		// answered between two handshakes.
		runtime.Gosched()
		return true
	case <-gone:
		if !t.forget(l, mine) {
			t.give() // it came at the same time
		}
		return false
	}
}

// rank is the place of a line's order.
func (l line) rank() int {
	if l.known {
		return 1
	}
	return 0
}

// maxRest is how long a rest may be: who was stopped by the system has not computed.
const maxRest = 20 * time.Millisecond

// giveAfter is give by who has had the turn for a while.
func (t *Turns) giveAfter(had time.Duration) {
	if t.rests && had > 0 {
		time.AfterFunc(min(had, maxRest), t.give)
		return
	}
	t.give()
}

// give passes a turn on. Every second one is for those who are known.
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
	// Of one address it is left to chance: the first who came may have given up.
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

// forget takes back that somebody waits, unless he has been given a turn.
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

// Idle reports whether nobody has a turn or waits for one, if there are so many.
func (t *Turns) Idle(count int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.free == count && len(t.waiting) == 0 && len(t.order[0])+len(t.order[1]) == 0
}

// Conn stands between crypto/tls and a connection while hands are shaken. One goroutine uses it.
type Conn struct {
	net.Conn
	ctx   context.Context
	now   func() time.Time
	turns *Turns // nil once hands have been shaken
	line  line
	has   bool // a turn
	since time.Time
	in    []byte // has been read, and comes next
	read  int    // so much, for the handshake
}

// Conn returns a connection that computes by turns until Done is called. known says that its address
// is one of those who have been let in before; in has been read from it. A wait for a turn ends with ctx.
func (t *Turns) Conn(ctx context.Context, conn net.Conn, in []byte, from netip.Addr, known bool, now func() time.Time) *Conn {
	return &Conn{Conn: conn, ctx: ctx, now: now, turns: t, line: line{from: from, known: known}, in: in}
}

// readSize is more than a ClientHello has, or a certificate with its signature: crypto/tls reads these
// in pieces, and would wait for a turn for each.
const readSize = 4 << 10

// maxRead is several times what a handshake has, with a long chain of certificates, too. crypto/tls
// would keep a quarter of a megabyte for each stranger.
const maxRead = 32 << 10

var errMuch = fmt.Errorf("it has sent more than %d bytes for the handshake", maxRead)

// Read has no turn while it waits.
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

// fill reads what there is, and waits for a turn to work on it.
func (c *Conn) fill() error {
	c.giveBack()
	buf := make([]byte, readSize)
	n, err := c.Conn.Read(buf)
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

// Write has no turn either: the other side may leave no room for its answer.
func (c *Conn) Write(p []byte) (int, error) {
	if c.turns != nil {
		c.giveBack()
		c.line.answered = true
	}
	return c.Conn.Write(p)
}

// Done is called when hands have been shaken, or not.
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

// Origin is what counts as one address: of IPv6 the network, in which anybody has as many
// addresses as he likes.
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

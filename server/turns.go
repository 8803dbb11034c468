package server

import (
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"
)

// turns are the right to compute for a handshake. A signature with an RSA key takes
// milliseconds and a stranger gets it by a few hundred bytes, so only a share of the
// processors does this, and those who wait are served in turn by their addresses: who
// sends a flood waits for his own flood.
type turns struct {
	mu      sync.Mutex
	free    int
	rests   bool // after each turn the processor is left to others for as long
	waiting map[line][]chan struct{}
	order   []line // each that somebody waits in, who is next first
}

// line is where those wait who are alike. Those whom the node has answered need little
// more, and do not wait behind all that begin.
type line struct {
	from     netip.Addr
	answered bool
}

// newTurns leaves half of the processors to the loops, and half of the time if there is one.
func newTurns() *turns {
	n := runtime.GOMAXPROCS(0)
	return &turns{free: max(1, n/2), rests: n == 1, waiting: map[line][]chan struct{}{}}
}

// take waits for a turn; false if gone is closed before.
func (t *turns) take(l line, gone <-chan struct{}) bool {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return true
	}
	mine := make(chan struct{})
	if len(t.waiting[l]) == 0 {
		t.order = append(t.order, l)
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

// maxRest is how long a rest may be: who was stopped by the system has not computed.
const maxRest = 20 * time.Millisecond

// giveAfter is give by who has had the turn for a while.
func (t *turns) giveAfter(had time.Duration) {
	if t.rests && had > 0 {
		time.AfterFunc(min(had, maxRest), t.give)
		return
	}
	t.give()
}

// give passes a turn on.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		t.free++
		return
	}
	l := t.order[0]
	t.order = t.order[1:]
	close(t.waiting[l][0])
	if rest := t.waiting[l][1:]; len(rest) > 0 {
		t.waiting[l] = rest
		t.order = append(t.order, l)
	} else {
		delete(t.waiting, l)
	}
}

// forget takes back that somebody waits, unless he has been given a turn.
func (t *turns) forget(l line, who chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting[l], who)
	if i < 0 {
		return false
	}
	t.waiting[l] = slices.Delete(t.waiting[l], i, i+1)
	if len(t.waiting[l]) == 0 {
		delete(t.waiting, l)
		t.order = slices.DeleteFunc(t.order, func(other line) bool { return other == l })
	}
	return true
}

// origin is what counts as one address: of IPv6 the network, in which anybody has as many
// addresses as he likes.
func origin(conn net.Conn) netip.Addr {
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

package cluster

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"lockstep/cluster/turns"
)

// A caller costs a goroutine, a socket and buffers before it has shown that it is a peer: on a
// port that others reach, anybody may call as often as he likes. So it has to say what it wants
// within greetTimeout, and there are at most maxStrangers such callers at once. If there are more, one is
// cut off: of the address that most of them call from, the one that has been there longest.
// Peers greet within milliseconds, so it is not they, even if a thousand others call. Handshakes are
// computed in turn (package turns). Every second turn is for the addresses at which peers have proved
// themselves; who calls from there is cut off last.
//
// A caller is no stranger any more when it has proved to be a peer by its certificate. Where nothing
// has to be proved nobody ever is more than one who greets as a peer would: such callers
// are counted for as long as they stay, and go after those who have not greeted.
//
// Strangers are bounded by number, not by rate. A limit that refuses newcomers would let a flood keep
// the peers out. Here the newcomer is let in and an old stranger goes; a peer needs milliseconds to
// prove itself.

const (
	maxStrangers = 256
	// snapshotPause is for how long Raft's own protocol may say nothing within the first request.
	snapshotPause = 30 * time.Second
)

// arrivals are the connections that others have made to the peer port.
type arrivals struct {
	strangers *strangers
	patience  time.Duration // greetTimeout; a test has less
	known     *peerAddrs

	mu    sync.Mutex
	all   map[*arrival]struct{}
	count int // of those that are not proven
	next  uint64
	done  bool
}

// arrival is one of them.
type arrival struct {
	net.Conn // the caller's; within TLS, once that is there
	raw      net.Conn
	of       *arrivals
	from     netip.Addr // the caller's host, or network
	number   uint64
	ctx      context.Context // ends with the connection
	end      context.CancelFunc
	late     *time.Timer // cuts it off while it has not greeted

	// Guarded by of.mu:
	greeted, proven, kept, gone bool
}

func newArrivals(s *strangers, known *peerAddrs) *arrivals {
	return &arrivals{strangers: s, patience: greetTimeout, known: known, all: map[*arrival]struct{}{}}
}

// admit takes a new connection in; nil if the port is closed.
func (as *arrivals) admit(conn net.Conn) *arrival {
	a := &arrival{Conn: conn, raw: conn, of: as, from: turns.Origin(conn)}
	a.ctx, a.end = context.WithCancel(context.Background())
	as.mu.Lock()
	if as.done {
		as.mu.Unlock()
		conn.Close()
		return nil
	}
	var victim *arrival
	if as.count >= maxStrangers {
		victim = as.victim()
	}
	as.next++
	a.number = as.next
	as.all[a] = struct{}{}
	as.count++
	a.late = time.AfterFunc(as.patience, a.tooLate)
	as.mu.Unlock()
	if victim != nil {
		as.strangers.note(tooMany, victim.raw.RemoteAddr().String(), nil)
		victim.Close()
	}
	return a
}

// victim is who is cut off for another; mu is held.
func (as *arrivals) victim() (found *arrival) {
	calls := map[netip.Addr]int{}
	for a := range as.all {
		if !a.proven {
			calls[a.from]++
		}
	}
	before := func(a, b *arrival) bool {
		known, other := as.known.has(a.from), as.known.has(b.from)
		switch {
		case a.greeted != b.greeted:
			return !a.greeted
		case known != other:
			return !known
		case calls[a.from] != calls[b.from]:
			return calls[a.from] > calls[b.from]
		}
		return a.number < b.number
	}
	for a := range as.all {
		if !a.proven && (found == nil || before(a, found)) {
			found = a
		}
	}
	return found
}

// prove notes that the caller is a peer, and from now on speaks within TLS.
func (a *arrival) prove(within net.Conn) {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	a.Conn = within
	if !a.gone && !a.proven {
		a.proven = true
		a.of.count--
	}
}

// maxKnown bounds the addresses that peers are known by: who adds one is a peer, whose
// address may change each time it is started.
const maxKnown = 1024

// peerAddrs are the addresses at which peers have proved that they are some. Strangers there may be, too.
type peerAddrs struct {
	mu  sync.Mutex
	all map[netip.Addr]struct{}
}

func (p *peerAddrs) learn(addr netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[netip.Addr]struct{}{}
	}
	p.all[addr] = struct{}{}
	for other := range p.all {
		if len(p.all) <= maxKnown {
			return
		}
		delete(p.all, other) // whichever
	}
}

func (p *peerAddrs) has(addr netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.all[addr]
	return ok
}

// addrs are those of who has proved something to this node; none if nobody has to.
func (g *peerGate) addrs() *peerAddrs {
	if g == nil {
		return new(peerAddrs)
	}
	return &g.known
}

// greet notes that the caller has said what a peer says first.
func (a *arrival) greet() {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	a.greeted = true
	a.late.Stop()
}

// greets is greet for what a protocol was handed.
func greets(conn net.Conn) {
	if a, ok := conn.(*arrival); ok {
		a.greet()
	}
}

// keep leaves it to its user to close the connection when the port closes.
func (a *arrival) keep() {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	a.kept = true
}

func (a *arrival) tooLate() {
	a.of.mu.Lock()
	late := !a.greeted && !a.gone
	a.of.mu.Unlock()
	if late {
		a.of.strangers.note(tooSlow, a.raw.RemoteAddr().String(), nil)
		a.Close()
	}
}

// wasCutOff reports whether this node has closed the connection: what a reader of it is told
// depends on how far the close has come.
func (a *arrival) wasCutOff() bool {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	return a.gone
}

// Close implements net.Conn.
func (a *arrival) Close() error {
	a.of.mu.Lock()
	if !a.gone {
		a.gone = true
		a.late.Stop()
		delete(a.of.all, a)
		if !a.proven {
			a.of.count--
		}
	}
	a.of.mu.Unlock()
	a.end()
	return a.raw.Close()
}

// close ends all but those that are kept.
func (as *arrivals) close() {
	as.mu.Lock()
	as.done = true
	var list []*arrival
	for a := range as.all {
		if !a.kept {
			list = append(list, a)
		}
	}
	as.mu.Unlock()
	for _, a := range list {
		a.Close()
	}
}

// raftArrival is a connection for Raft's own protocol, which does not say when a request has been
// read: a caller has greeted when it is answered, or has sent so much that it is a snapshot. That takes its
// time, and so may what is done with it when all of it is here.
type raftArrival struct {
	*arrival
	read     int
	answered bool
}

// snapshotLength is more than other requests of Raft's own protocol have that come first.
const snapshotLength = 16 << 10

func (r *raftArrival) Read(p []byte) (int, error) {
	n, err := r.arrival.Read(p)
	if r.answered || n <= 0 {
		return n, err
	}
	if r.read += n; r.read > snapshotLength {
		r.answered = true
		r.greet()
	} else {
		r.more()
	}
	return n, err
}

// more gives the caller time for more.
func (r *raftArrival) more() {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	if !r.greeted && !r.gone {
		r.late.Reset(snapshotPause)
	}
}

func (r *raftArrival) Write(p []byte) (int, error) {
	if !r.answered {
		r.answered = true
		r.greet()
	}
	return r.arrival.Write(p)
}

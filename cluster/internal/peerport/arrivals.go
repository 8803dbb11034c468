package peerport

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/cluster/turns"
)

// A caller costs memory before it has proved that it is a peer; until then it is a stranger. A caller must send its handshake
// (handshakeDone) within HandshakeTimeout. If there are more than maxStrangers, the node cuts off one that has sent no handshake: the
// oldest from the address with the most strangers, and those from addresses of peers last. A limit that refuses newcomers would let a
// flood keep the peers out.
//
// Peers send their handshake within milliseconds, so none is cut off, even among a thousand callers. TLS handshakes take turns (package
// turns), every second one for addresses of peers.
//
// If the node asks for no proof, every caller remains a stranger, but one that has sent a handshake is cut off only if all have sent
// one.

const (
	maxStrangers = 256
	// snapshotPause is how long a caller of Raft's own protocol may pause within its first request.
	snapshotPause = 30 * time.Second
)

// arrivals are the connections that others have made to the peer port.
type arrivals struct {
	strangers *Strangers
	patience  time.Duration // HandshakeTimeout; a test has less
	known     *peerAddrs

	mu       sync.Mutex
	all      map[*arrival]struct{}
	unproven []*arrival // the strangers, oldest first
	origins  map[netip.Addr]*origin
	seen     uint64 // known.version when origin.known was set in all origins
	done     bool
}

// origin is what the strangers from one address have in common.
type origin struct {
	calls int  // how many there are
	known bool // peers have proved themselves at this address
}

// arrival is one connection that another party has made to the peer port.
type arrival struct {
	net.Conn // the caller's connection; after a TLS handshake, the TLS connection
	raw      net.Conn
	of       *arrivals
	from     netip.Addr      // the caller's address; for IPv6 its network (turns.Origin)
	ctx      context.Context // ends with the connection; nil before the call of start, like the next two fields
	end      context.CancelFunc
	late     *time.Timer // cuts off a caller that has sent no handshake in time

	// Guarded by of.mu:
	origin                *origin // nil: the caller is no stranger
	handshook, kept, gone bool
}

func newArrivals(s *Strangers, known *peerAddrs) *arrivals {
	return &arrivals{strangers: s, patience: HandshakeTimeout, known: known, all: map[*arrival]struct{}{}, origins: map[netip.Addr]*origin{}}
}

// register registers a new connection, and cuts off a stranger if there are maxStrangers. It returns nil if the port is closed.
func (as *arrivals) register(conn net.Conn) *arrival {
	a := &arrival{Conn: conn, raw: conn, of: as, from: turns.Origin(conn)}
	as.mu.Lock()
	if as.done {
		as.mu.Unlock()
		conn.Close()
		return nil
	}
	var victim *arrival
	if len(as.unproven) >= maxStrangers {
		victim = as.victim()
		victim.leave()
	}
	as.all[a] = struct{}{}
	as.unproven = append(as.unproven, a)
	a.origin = as.origins[a.from]
	if a.origin == nil {
		a.origin = &origin{known: as.known.has(a.from)}
		as.origins[a.from] = a.origin
	}
	a.origin.calls++
	as.mu.Unlock()
	if victim != nil {
		as.strangers.Note(tooMany, victim.raw.RemoteAddr().String(), nil)
		victim.finish()
	}
	return a
}

// start prepares a registered connection for use; it returns false if the connection is closed, or cannot be opened.
func (a *arrival) start() bool {
	a.of.mu.Lock()
	if a.gone {
		a.of.mu.Unlock()
		return false
	}
	a.ctx, a.end = context.WithCancel(context.Background())
	a.late = time.AfterFunc(a.of.patience, a.tooLate)
	var err error
	if u, ok := a.raw.(interface{ open() (net.Conn, error) }); ok {
		var conn net.Conn
		if conn, err = u.open(); err == nil {
			a.Conn, a.raw = conn, conn
		} else {
			a.leave()
		}
	}
	a.of.mu.Unlock()
	if err != nil {
		a.end() // the method open has closed the connection
	}
	return err == nil
}

// admit registers and starts a connection; it returns nil if the port is closed, or if the method start fails.
func (as *arrivals) admit(conn net.Conn) *arrival {
	a := as.register(conn)
	if a == nil || !a.start() {
		return nil
	}
	return a
}

// victim returns the stranger to cut off; the caller holds mu. A flood calls victim thousands of times a second, so it allocates
// nothing.
func (as *arrivals) victim() *arrival {
	if now := as.known.version.Load(); now != as.seen {
		as.seen = now
		for addr, o := range as.origins {
			o.known = as.known.has(addr)
		}
	}
	before := func(a, b *arrival) bool {
		switch {
		case a.handshook != b.handshook:
			return !a.handshook
		case a.origin.known != b.origin.known:
			return !a.origin.known
		}
		return a.origin.calls > b.origin.calls
	}
	found := as.unproven[0]
	for _, a := range as.unproven[1:] {
		if before(a, found) {
			found = a
		}
	}
	return found
}

// noStranger removes the connection from the strangers; the caller holds mu.
func (a *arrival) noStranger() {
	if a.origin == nil {
		return
	}
	if a.origin.calls--; a.origin.calls == 0 {
		delete(a.of.origins, a.from)
	}
	a.origin = nil
	i := slices.Index(a.of.unproven, a)
	a.of.unproven = slices.Delete(a.of.unproven, i, i+1)
}

// prove notes that the caller is a peer. The parameter within is the TLS connection over which the caller speaks from now on.
func (a *arrival) prove(within net.Conn) {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	a.Conn = within
	a.noStranger()
}

// maxKnown bounds the number of addresses in a peerAddrs. Only a peer adds an address, but its address may
// change each time it is started.
const maxKnown = 1024

// peerAddrs are the addresses at which peers have proved themselves. Strangers may call from them, too.
type peerAddrs struct {
	version atomic.Uint64 // counts changes

	mu  sync.Mutex
	all map[netip.Addr]struct{}
}

func (p *peerAddrs) learn(addr netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.all[addr]; ok {
		return
	}
	p.version.Add(1)
	if p.all == nil {
		p.all = map[netip.Addr]struct{}{}
	}
	p.all[addr] = struct{}{}
	for other := range p.all {
		if len(p.all) <= maxKnown {
			return
		}
		delete(p.all, other) // any one will do
	}
}

func (p *peerAddrs) has(addr netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.all[addr]
	return ok
}

// addrs returns the addresses at which peers have proved themselves to this node. It returns none if
// the node asks peers for no proof.
func (g *peerGate) addrs() *peerAddrs {
	if g == nil {
		return new(peerAddrs)
	}
	return &g.known
}

// handshakeDone notes that the caller has sent what a peer sends first.
func (a *arrival) handshakeDone() {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	a.handshook = true
	a.late.Stop()
}

// HandshakeDone is handshakeDone for a connection that a protocol serves. It does nothing if conn is no arrival.
func HandshakeDone(conn net.Conn) {
	if a, ok := conn.(*arrival); ok {
		a.handshakeDone()
	}
}

// keep lets the connection stay open when the port closes: whoever uses the connection has to close it.
func (a *arrival) keep() {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	a.kept = true
}

func (a *arrival) tooLate() {
	a.of.mu.Lock()
	late := !a.handshook && !a.gone
	a.of.mu.Unlock()
	if late {
		a.of.strangers.Note(tooSlow, a.raw.RemoteAddr().String(), nil)
		a.Close()
	}
}

// wasCutOff reports whether this node has closed the connection. The error of a read does not show that.
func (a *arrival) wasCutOff() bool {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	return a.gone
}

// Close implements net.Conn.
func (a *arrival) Close() error {
	a.of.mu.Lock()
	was := a.gone
	a.leave()
	a.of.mu.Unlock()
	if was {
		return nil
	}
	return a.finish()
}

// leave notes that the connection ends. The caller holds mu, and afterwards calls finish without mu.
func (a *arrival) leave() {
	if a.gone {
		return
	}
	a.gone = true
	if a.late != nil {
		a.late.Stop()
	}
	delete(a.of.all, a)
	a.noStranger()
}

// finish closes the connection after the method leave. No method sets the fields of the arrival any more, so finish needs no
// lock.
func (a *arrival) finish() error {
	if a.end != nil {
		a.end()
	}
	return a.raw.Close()
}

// close closes the port's connections, except those that are kept.
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

// raftArrival is a connection for Raft's own protocol. Its handshake is done when this node answers, or when the request must be a
// snapshot.
type raftArrival struct {
	*arrival
	read     int
	answered bool // handshakeDone has been called
}

// snapshotLength is more bytes than any first request of Raft's own protocol has, except a snapshot.
const snapshotLength = 16 << 10

func (r *raftArrival) Read(p []byte) (int, error) {
	n, err := r.arrival.Read(p)
	if r.answered || n <= 0 {
		return n, err
	}
	if r.read += n; r.read > snapshotLength {
		r.answered = true
		r.handshakeDone()
	} else {
		r.more()
	}
	return n, err
}

// more gives the caller, which has sent something, snapshotPause to send more.
func (r *raftArrival) more() {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	if !r.handshook && !r.gone {
		r.late.Reset(snapshotPause)
	}
}

func (r *raftArrival) Write(p []byte) (int, error) {
	if !r.answered {
		r.answered = true
		r.handshakeDone()
	}
	return r.arrival.Write(p)
}

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/cluster/turns"
)

const (
	// handshakeTime is how long a client may take for the handshake.
	handshakeTime = 5 * time.Second
	// maxHandshakes is the default of Config.MaxHandshakes. It is plenty: the handshake of an honest client takes milliseconds.
	maxHandshakes = 512
	// maxQuiet is how many bytes a client may send after the handshake until crypto/tls finds data in them: enough for the largest
	// record.
	maxQuiet = 20 << 10
)

var (
	errHandshakeTime = fmt.Errorf("the handshake was not over after %v", handshakeTime)
	errQuiet         = fmt.Errorf("it has sent %d bytes without any data in them", maxQuiet)
	errHandshakeMany = errors.New("it was cut off: too many clients of its address are at the handshake")
)

// handshakes are the TLS connections that have no session yet. Further clients of an address with fromOne handshakes in progress wait
// in the lobby.
//
// If handshakes.most are in progress, the server cuts off a random one of the address that has most. An attacker could arrange that the
// oldest, or the longest waiting, belongs to an honest client.
type handshakes struct {
	certs *Certificates
	turns *turns.Turns
	most  int // handshakes in progress at a time

	mu    sync.Mutex
	open  map[netip.Addr][]*wire // oldest first
	count int                    // connections in the field open
	// ending is how many handshakes were cut off, but have open connections until a processor is free for their goroutines.
	ending int
	ended  sync.Cond // signals that the field ending has become less, or that the field over has been set
	lobby  lobby
	over   bool // the server is closing

	failures seldomLine
	failed   int64 // failures since the start
}

func newHandshakes(certs *Certificates, log *slog.Logger, most int) *handshakes {
	h := &handshakes{
		certs: certs, turns: certs.turns, most: most, open: map[netip.Addr][]*wire{}, lobby: lobby{callers: map[netip.Addr][]*caller{}},
		failures: seldomLine{log: log, level: slog.LevelWarn, msg: "clients failed at the TLS handshake"},
	}
	h.ended.L = &h.mu
	return h
}

// wire is the connection between crypto/tls and a socket.
type wire struct {
	*turns.Conn
	tls   *tls.Conn
	from  netip.Addr
	ctx   context.Context
	quiet int // bytes from the socket since crypto/tls last found data in them; -1 during the handshake
	// end cancels ctx, so that a handshake fails. It does not close the connection, which may belong to a session by then.
	end context.CancelCauseFunc

	// handshakes.mu guards these:
	looks  int  // how many calls of handshakes.look have found the handshake waiting for its client (lobby.go)
	cutOff bool // the handshake was cut off (handshakes.cut)
}

// begin starts the handshake with a client, puts the client into the lobby, or closes conn. Another goroutine calls then after a
// successful handshake.
func (h *handshakes) begin(conn net.Conn, config *tls.Config, now func() time.Time, then func(*wire)) {
	c := &caller{conn: conn, from: turns.Origin(conn), config: config, now: now, then: then}
	if config == nil || !h.receive(c) {
		_ = conn.Close() // without an error reply, which a TLS client could not read before the handshake
	}
}

// start begins the handshake of a caller. The caller of start holds mu.
func (h *handshakes) start(c *caller) {
	w := &wire{from: c.from, quiet: -1}
	w.ctx, w.end = context.WithCancelCause(context.Background())
	w.Conn = h.turns.Conn(w.ctx, c.conn, nil, w.from, false, c.now)
	w.tls = tls.Server(w, c.config)
	h.enter(w)
	go func() {
		err := w.shake()
		if err != nil {
			_ = c.conn.Close() // before leave stops counting the connection
		}
		h.leave(w)
		if cut := context.Cause(w.ctx); cut != nil {
			err = cut
		}
		if err != nil {
			h.refuse(c.conn.RemoteAddr().String(), err, c.now())
			_ = c.conn.Close()
			return
		}
		c.then(w)
	}()
}

// shake does the handshake within handshakeTime.
func (w *wire) shake() error {
	late := time.AfterFunc(handshakeTime, func() { w.end(errHandshakeTime) })
	defer late.Stop()
	defer w.Done()
	if err := w.ctx.Err(); err != nil {
		return err // the handshake was cut off before it got a processor
	}
	err := w.tls.HandshakeContext(w.ctx)
	w.quiet = 0
	return err
}

// Read bounds the input that a client may send after the handshake as handshake messages. crypto/tls would collect up to 256 KiB of
// each.
func (w *wire) Read(p []byte) (int, error) {
	if w.quiet < 0 {
		return w.Conn.Read(p) // package turns bounds the input of the handshake
	}
	if w.quiet >= maxQuiet {
		return 0, errQuiet
	}
	n, err := w.Conn.Read(p[:min(len(p), maxQuiet-w.quiet)])
	w.quiet += n
	return n, err
}

// hears must be called whenever a Read of w.tls has returned data of the client.
func (w *wire) hears() { w.quiet = 0 }

// fromOne returns how many handshakes with clients of one address may be in progress at a time.
func (h *handshakes) fromOne() int { return max(1, h.most/4) }

// full reports whether no further handshake may begin. That happens if handshakes that were cut off are slow to end. The caller holds
// mu.
func (h *handshakes) full() bool { return h.count+h.ending >= h.most+(h.most+1)/2 }

// enter adds a new handshake to h.open. If h.most are in progress already, it first ends one of them. The caller holds mu.
func (h *handshakes) enter(w *wire) {
	if h.count >= h.most {
		list := h.open[crowded(h.open)]
		h.cut(list[rand.IntN(len(list))])
	}
	h.open[w.from] = append(h.open[w.from], w)
	h.count++
}

// cut ends a handshake to make room. The caller holds mu.
func (h *handshakes) cut(w *wire) {
	h.remove(w)
	w.cutOff = true
	h.ending++
	w.end(errHandshakeMany)
}

// crowded returns the address with the most connections.
func crowded[T any](by map[netip.Addr][]T) (most netip.Addr) {
	n := 0
	for from, list := range by {
		if len(list) > n {
			most, n = from, len(list)
		}
	}
	return most
}

// remove removes a handshake from h.open, if it is there. The caller holds mu.
func (h *handshakes) remove(w *wire) {
	list := h.open[w.from]
	i := slices.Index(list, w)
	if i < 0 {
		return
	}
	if list = slices.Delete(list, i, i+1); len(list) > 0 {
		h.open[w.from] = list
	} else {
		delete(h.open, w.from)
	}
	h.count--
}

func (h *handshakes) leave(w *wire) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.cutOff {
		h.ending--
		h.ended.Broadcast()
	}
	h.remove(w)
	h.admit(w.from)
}

// stop ends all handshakes in progress, closes the connections in the lobby, and makes begin refuse all later clients.
func (h *handshakes) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	h.ended.Broadcast()
	h.lobby.close()
	for _, list := range h.open {
		for _, w := range list {
			w.end(net.ErrClosed)
		}
	}
}

// refuse counts a client that failed at the handshake or was not let in.
func (h *handshakes) refuse(from string, err error, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note(from, err, now)
}

// note does what refuse does, for a caller that holds mu.
func (h *handshakes) note(from string, err error, now time.Time) {
	if h.over {
		return
	}
	why := err.Error()
	h.failed++
	h.failures.note(now, "last", from, "error", why[:min(len(why), 2*maxQuoted)])
}

// total returns how many failures there have been since the start.
func (h *handshakes) total() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

// FailedHandshakes returns how many clients have failed at the TLS handshake since the start, with those that the lobby sent away.
func (srv *Server) FailedHandshakes() int64 { return srv.hands.total() }

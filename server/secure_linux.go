package server

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"
)

// tlsConn is a TLS connection that a loop serves. As fdConn, whose place it takes for the
// guard and the outbox, its Read and tryWrite never wait.
//
//	socket → fdConn.Read → tls.Conn (whole records) → Read → guard
//	socket ← fdConn.tryWrite ← sealed (ciphertext) ← tls.Conn ← tryWrite ← outbox
//
// crypto/tls goes on after an error that is temporary: it keeps the part of a record that
// has come. It writes into sealed, which has room, so nobody who holds one of its locks
// waits; who waits for the socket holds none.
type tlsConn struct {
	*fdConn
	raw  rawConn
	tls  *tls.Conn
	more bool // it may hold input that the socket does not have any more; the loop's

	// taken is of how many of the bytes to be written next the ciphertext is in sealed
	// already; who writes has it.
	taken int

	mu     sync.Mutex
	sealed []byte // in the order in which it must be sent
	sent   int    // of sealed
}

// rawConn is the socket as tlsConn needs it.
type rawConn interface {
	Read(p []byte) (int, error)
	tryWrite(p []byte) (int, error)
	drained() bool
}

const (
	// sealAtOnce is how much is encrypted before it is sent: four records.
	sealAtOnce = 64 << 10
	// maxSealed is how much ciphertext may wait. More than a tryWrite makes only comes
	// from a client that asks for new keys again and again and reads nothing.
	maxSealed = 2 * sealAtOnce
	// keepSealed is for how much a connection keeps memory.
	keepSealed = 16 << 10
)

var errFloodOfKeys = errors.New("the client asks for new keys and does not read them")

// notYet is the temporary error of a socket without input.
type notYet struct{}

func (notYet) Error() string   { return "there is no input yet" }
func (notYet) Timeout() bool   { return true }
func (notYet) Temporary() bool { return true }

var _ net.Error = notYet{}

// under is what crypto/tls takes for the socket.
type under struct {
	net.Conn // nil
	c        *tlsConn
}

// secure makes a connection of the loops of one that has shaken hands. It replaces the
// socket below crypto/tls, which may hold input already.
func secure(c *fdConn, w *wire) *tlsConn {
	t := &tlsConn{fdConn: c, raw: c, tls: w.tls, more: true}
	w.Conn.Conn = under{c: t}
	return t
}

func (u under) Read(p []byte) (int, error) {
	if u.c.raw.drained() {
		return 0, notYet{}
	}
	n, err := u.c.raw.Read(p)
	if n == 0 && err == nil {
		err = notYet{}
	}
	return n, err
}

func (u under) Write(p []byte) (int, error) {
	u.c.mu.Lock()
	defer u.c.mu.Unlock()
	if len(u.c.sealed)-u.c.sent > maxSealed {
		return 0, errFloodOfKeys
	}
	u.c.sealed = append(u.c.sealed, p...)
	return len(p), nil
}

// SetWriteDeadline is called before a leave-taking: nothing here waits.
func (under) SetWriteDeadline(time.Time) error { return nil }

// Read returns 0 and no error if there is no input.
func (t *tlsConn) Read(p []byte) (int, error) {
	n, err := t.tls.Read(p)
	t.more = n > 0
	if _, owes := t.send(); owes != nil && err == nil {
		err = owes
	}
	switch {
	case n > 0:
		return n, nil // an error is told again
	case err == error(notYet{}):
		return 0, nil
	}
	return 0, err
}

// tryWrite writes as much as there is room for. Bytes count as written when the socket has
// all of their ciphertext; those of which it has a part come again with the next call, as
// the first, and are not encrypted again.
func (t *tlsConn) tryWrite(p []byte) (int, error) {
	written := 0
	for {
		all, err := t.send()
		if err != nil || !all {
			return written, err
		}
		written += t.taken
		t.taken = 0
		if written >= len(p) {
			return written, nil
		}
		n := min(len(p)-written, sealAtOnce)
		if _, err := t.tls.Write(p[written : written+n]); err != nil {
			return written, err
		}
		t.taken = n
	}
}

// send sends what ciphertext there is room for, and reports whether that was all.
func (t *tlsConn) send() (all bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.sealed) == 0 {
		return true, nil
	}
	n, err := t.raw.tryWrite(t.sealed[t.sent:])
	t.sent += n
	if err != nil || t.sent < len(t.sealed) {
		return false, err
	}
	if cap(t.sealed) > keepSealed {
		t.sealed = nil
	}
	t.sealed, t.sent = t.sealed[:0], 0
	return true, nil
}

// waiting returns how much ciphertext waits for room in the socket.
func (t *tlsConn) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.sealed) - t.sent
}

// Write waits until all of p has been written.
func (t *tlsConn) Write(p []byte) (int, error) { return t.writeAll(p, t.tryWrite) }

// writable is the loop's word that the socket has room.
func (t *tlsConn) writable() {
	// An error is found by who writes next.
	_, _ = t.send()
	t.fdConn.writable()
}

// Close takes leave of the client, if there is room for that, and ends the connection.
func (t *tlsConn) Close() error {
	if !t.shut.Load() {
		_ = t.tls.CloseWrite() // into sealed
		if t.fdConn.hold() {
			_, _ = t.send()
			t.fdConn.leave()
		}
	}
	return t.fdConn.Close()
}

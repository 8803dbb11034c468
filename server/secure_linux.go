package server

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"
)

// tlsConn is a TLS connection that a loop serves, in place of an fdConn. Its Read and tryWrite never wait.
//
//	socket → fdConn.Read → tls.Conn (whole records) → Read → guard
//	socket ← fdConn.tryWrite ← sealed (ciphertext) ← tls.Conn ← tryWrite ← outbox
//
// Without input, crypto/tls gets a temporary error (notYet), and goes on at the next Read. What crypto/tls writes goes into sealed. So a
// goroutine that waits for the socket (in Write) holds no lock of crypto/tls.
type tlsConn struct {
	*fdConn
	raw  rawConn
	tls  *tls.Conn
	wire *wire
	more bool // crypto/tls may have read data that Read has not returned yet; only the loop uses this field

	// taken is how many bytes of its next argument p tryWrite has already encrypted into sealed. Only tryWrite uses this field.
	taken int

	mu     sync.Mutex
	sealed []byte // ciphertext, in the order in which it must be sent
	sent   int    // bytes of sealed that the socket has taken
}

// rawConn has the methods of fdConn by which tlsConn uses the socket.
type rawConn interface {
	Read(p []byte) (int, error)
	tryWrite(p []byte) (int, error)
	drained() bool
}

const (
	// sealAtOnce is how many bytes tryWrite encrypts before it sends their ciphertext: four records.
	sealAtOnce = 64 << 10
	// maxSealed bounds the waiting ciphertext. Only a client that requests new keys again and again, and reads nothing, reaches it.
	maxSealed = 2 * sealAtOnce
	// keepSealed is the size in bytes of the largest buffer that a connection keeps when all ciphertext has been sent.
	keepSealed = 16 << 10
)

var errFloodOfKeys = errors.New("the client asks for new keys and does not read them")

// notYet is the temporary error of a socket without input.
type notYet struct{}

func (notYet) Error() string   { return "there is no input yet" }
func (notYet) Timeout() bool   { return true }
func (notYet) Temporary() bool { return true }

var _ net.Error = notYet{}

// under is the connection that crypto/tls uses as its socket.
type under struct {
	net.Conn // nil: crypto/tls calls only the methods below
	c        *tlsConn
}

// secure makes the connection of a loop after the handshake on w. more is true, because crypto/tls may already have read data.
func secure(c *fdConn, w *wire) *tlsConn {
	t := &tlsConn{fdConn: c, raw: c, tls: w.tls, wire: w, more: true}
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
	if u.c.sent > len(u.c.sealed)/2 { // drop what the socket has taken, because a client may keep sealed from ever becoming empty
		u.c.sealed, u.c.sent = u.c.sealed[:copy(u.c.sealed, u.c.sealed[u.c.sent:])], 0
	}
	u.c.sealed = append(u.c.sealed, p...)
	return len(p), nil
}

// SetWriteDeadline does nothing: crypto/tls calls it before its closing alert, and no write here waits.
func (under) SetWriteDeadline(time.Time) error { return nil }

// Read returns 0 and no error if there is no input.
func (t *tlsConn) Read(p []byte) (int, error) {
	n, err := t.tls.Read(p)
	if t.more = n > 0; t.more {
		t.wire.hears()
	}
	if _, owes := t.send(); owes != nil && err == nil {
		err = owes
	}
	switch {
	case n > 0:
		return n, nil // the next Read returns the error again
	case err == error(notYet{}):
		return 0, nil
	}
	return 0, err
}

// tryWrite writes what the socket has room for, and returns how many bytes of p that is. The next p must begin with the rest, which may be
// partly encrypted (taken).
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

// send sends as much ciphertext as the socket has room for, and reports whether it has sent all.
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

// waiting returns how many bytes of ciphertext wait for room in the socket.
func (t *tlsConn) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.sealed) - t.sent
}

// Write waits until all of p has been written.
func (t *tlsConn) Write(p []byte) (int, error) { return t.writeAll(p, t.tryWrite) }

// writable sends waiting ciphertext; the loop calls it when the socket has room.
func (t *tlsConn) writable() {
	// An error is not lost: the next send returns it again.
	_, _ = t.send()
	t.fdConn.writable()
}

// Close sends a closing alert, if the socket has room for it, and ends the connection.
func (t *tlsConn) Close() error {
	if !t.shut.Load() {
		_ = t.tls.CloseWrite() // puts the alert into sealed
		if t.fdConn.hold() {
			_, _ = t.send()
			t.fdConn.leave()
		}
	}
	return t.fdConn.Close()
}

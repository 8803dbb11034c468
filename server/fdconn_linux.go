package server

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fdConn is a TCP connection on a socket of its own, which Go's runtime knows
// nothing about: only a loop waits for it. Read and tryWrite never wait and are
// the loop's; Write waits and is for other goroutines; anybody may Close.
//
// Close only shuts the socket down. The descriptor is closed when the loop has
// released the connection and no Write is in progress, so that nobody can be
// left with a number that has come to mean another connection.
type fdConn struct {
	net.Conn // nil: deadlines are not used
	fd       int
	remote   net.Addr
	local    net.Addr
	onClose  func() // called once

	// The loop's:
	readable bool // the socket may have input
	hungUp   bool // the end is among it, or a fault

	shut     atomic.Bool
	waiting  atomic.Bool   // a Write waits for room …
	room     chan struct{} // … and is told by this
	mu       sync.Mutex
	writers  int
	released bool
}

var _ net.Conn = (*fdConn)(nil)

func (c *fdConn) RemoteAddr() net.Addr { return c.remote }
func (c *fdConn) LocalAddr() net.Addr  { return c.local }

// Read returns 0 and no error if there is no input.
func (c *fdConn) Read(p []byte) (int, error) {
	for {
		// A raw call, here and below: it does not wait, so the scheduler need
		// not hear of it. recv and send are a twentieth cheaper than read and write.
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(c.fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), 0, 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			c.readable = false
			return 0, nil
		case errno != 0:
			return 0, errno
		case n == 0:
			return 0, io.EOF
		}
		if int(n) < len(p) && !c.hungUp {
			// Drained; the next input is another event. But the event of an
			// end that is there already has been.
			c.readable = false
		}
		return int(n), nil
	}
}

// drained reports whether a Read would find nothing.
func (c *fdConn) drained() bool { return !c.readable }

// tryWrite writes as much as there is room for.
func (c *fdConn) tryWrite(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		rest := p[sent:]
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(c.fd), uintptr(unsafe.Pointer(unsafe.SliceData(rest))), uintptr(len(rest)),
			unix.MSG_NOSIGNAL, 0, 0)
		switch {
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			return sent, nil
		case errno != 0:
			return sent, errno
		default:
			sent += int(n)
		}
	}
	return sent, nil
}

// Write waits until all of p has been written.
func (c *fdConn) Write(p []byte) (int, error) { return c.writeAll(p, c.tryWrite) }

// hold keeps the descriptor until leave; it reports false if that is too late.
func (c *fdConn) hold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.released {
		return false
	}
	c.writers++
	return true
}

// writeAll calls try, and waits for room, until all of p has been written.
func (c *fdConn) writeAll(p []byte, try func([]byte) (int, error)) (int, error) {
	if !c.hold() {
		return 0, net.ErrClosed
	}
	defer c.leave()
	sent, announced := 0, false
	for {
		n, err := try(p[sent:])
		sent += n
		switch {
		case err != nil || sent == len(p):
			return sent, err
		case c.shut.Load():
			return sent, net.ErrClosed
		case !announced:
			// Once more, now that the event cannot be missed.
			announced = true
			c.waiting.Store(true)
		default:
			<-c.room
		}
	}
}

func (c *fdConn) leave() {
	c.waiting.Store(false)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writers--
	c.closeUnused()
}

// writable is the loop's word that the socket has room.
func (c *fdConn) writable() {
	if c.waiting.Load() {
		c.wakeWriter()
	}
}

func (c *fdConn) wakeWriter() {
	select {
	case c.room <- struct{}{}:
	default:
	}
}

// Close ends the connection; the loop sees to the rest.
func (c *fdConn) Close() error {
	if c.shut.Swap(true) {
		return nil
	}
	c.mu.Lock()
	var err error
	if !c.released {
		err = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	}
	c.mu.Unlock()
	c.wakeWriter()
	c.onClose()
	return err
}

// release gives the descriptor back. The loop calls it once, as the last thing.
func (c *fdConn) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = true
	c.closeUnused()
}

func (c *fdConn) closeUnused() {
	if c.released && c.writers == 0 && c.fd >= 0 {
		// Whatever it reports, the descriptor is gone.
		_ = unix.Close(c.fd)
		c.fd = -1
	}
}

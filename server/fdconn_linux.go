package server

import (
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fdConn is a TCP connection that Go's runtime does not poll: only a loop waits for its events and calls Read. Write may wait, so the
// loop does not call it. Any goroutine may call Close.
//
// Close only shuts the socket down. The descriptor is closed when the loop has released the connection and no Write is in progress.
// Otherwise its number could belong to another connection while a goroutine still uses it.
type fdConn struct {
	net.Conn // nil: it only provides the deadline methods, which nobody calls
	fd       int
	remote   net.Addr
	local    net.Addr
	onClose  func()      // Close calls it if onLoop is true
	onLoop   atomic.Bool // the connection belongs to a loop, or will in a moment

	// Only the loop uses these two:
	readable bool // the socket may have input
	hungUp   bool // the input includes the end of the connection, or a fault

	shut     atomic.Bool
	resets   atomic.Bool   // see resetAtClose
	waiting  atomic.Bool   // a Write waits for room in the socket
	room     chan struct{} // wakes the waiting Write
	mu       sync.Mutex
	writers  int
	released bool
}

var _ net.Conn = (*fdConn)(nil)

func (c *fdConn) RemoteAddr() net.Addr { return c.remote }
func (c *fdConn) LocalAddr() net.Addr  { return c.local }

// copyMost bounds the bytes that one system call copies, because the call holds up all other goroutines of its processor.
const copyMost = 64 << 10

// Read returns 0 and no error if there is no input.
func (c *fdConn) Read(p []byte) (int, error) {
	p = p[:min(len(p), copyMost)]
	for {
		// A raw system call suffices, because it does not wait. recv and send cost a twentieth less than read and write.
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
			// The socket is empty, and the next input causes an event. If hungUp is set, there is no further event, so readable stays
			// true until the end.
			c.readable = false
		}
		return int(n), nil
	}
}

// drained reports whether a Read would find no input.
func (c *fdConn) drained() bool { return !c.readable }

// tryWrite writes as much as the socket has room for.
func (c *fdConn) tryWrite(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		rest := p[sent:min(len(p), sent+copyMost)]
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

// hold keeps the descriptor open until the caller calls the method leave. It reports false if the loop has already
// released the connection.
func (c *fdConn) hold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.released {
		return false
	}
	c.writers++
	return true
}

// writeAll calls the function try until all of p has been written, and waits for room in the socket between the calls. After each copyMost
// bytes, other goroutines come first.
func (c *fdConn) writeAll(p []byte, try func([]byte) (int, error)) (int, error) {
	if !c.hold() {
		return 0, net.ErrClosed
	}
	defer c.leave()
	sent, announced := 0, false
	for {
		part := p[sent:min(len(p), sent+copyMost)]
		n, err := try(part)
		sent += n
		switch {
		case err != nil || sent == len(p):
			return sent, err
		case c.shut.Load():
			return sent, net.ErrClosed
		case n == len(part):
			runtime.Gosched()
		case !announced:
			// Try once more: an event that comes from now on wakes this goroutine.
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

// writable wakes a waiting Write; the loop calls it when the socket has room.
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

// Close shuts the connection down; the loop releases it.
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
	if c.onLoop.Load() {
		c.onClose()
	}
	return err
}

// release lets the descriptor be closed. The loop calls it once, as its last use of the connection; adopt calls it for a refused
// client.
func (c *fdConn) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = true
	c.closeUnused()
}

// setOption sets an option of the socket.
func (c *fdConn) setOption(level, option, value int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.released {
		return net.ErrClosed
	}
	return unix.SetsockoptInt(c.fd, level, option, value)
}

// resetAtClose makes the kernel reset the connection when the descriptor is closed, and discard the output
// that the peer has not acknowledged.
func (c *fdConn) resetAtClose() { c.resets.Store(true) }

func (c *fdConn) closeUnused() {
	if c.released && c.writers == 0 && c.fd >= 0 {
		if c.resets.Load() {
			// An error does not matter: unix.Close then still sends the output, instead of discarding it.
			_ = unix.SetsockoptLinger(c.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		}
		// Close frees the descriptor even if it returns an error.
		_ = unix.Close(c.fd)
		c.fd = -1
	}
}

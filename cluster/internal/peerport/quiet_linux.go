package peerport

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// quietConn hides its system calls from the Go runtime, which would watch each from a thread. That is costly, and the calls never block.
type quietConn struct {
	net.Conn
	raw syscall.RawConn
	in  quietReads
	out quietWrites
}

// quietReads is the state of the read in progress.
type quietReads struct {
	mu    sync.Mutex
	p     []byte
	n     int
	errno syscall.Errno
	try   func(fd uintptr) (done bool)
}

// quietWrites is the state of the write in progress.
type quietWrites struct {
	mu    sync.Mutex
	p     []byte // not written yet
	errno syscall.Errno
	try   func(fd uintptr) (done bool)
}

// quietCopy bounds the bytes that one system call copies, because the call holds up all other goroutines
// of its processor.
const quietCopy = 64 << 10

// quietOrder tells the race detector that a write happens before the read of the same bytes, as the net package does.
var quietOrder atomic.Uint32

// quiet returns a quietConn on conn if conn is a TCP connection, and conn itself otherwise.
func quiet(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn // only for a nil connection, which neither a dialer nor a listener returns
	}
	noticeSilence(raw)
	c := &quietConn{Conn: tcp, raw: raw}
	c.in.try, c.out.try = c.in.read, c.out.write
	return c
}

// silence is how long a connection stays open while the other end acknowledges nothing: a firewall may have forgotten the connection.
const silence = 5 * time.Second

// noticeSilence makes the kernel close a connection after silence. Without that, the connection works, too.
func noticeSilence(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence/time.Millisecond))
	})
}

// SyscallConn implements syscall.Conn.
func (c *quietConn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

// Read implements net.Conn.
func (c *quietConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	r := &c.in
	r.mu.Lock()
	defer r.mu.Unlock()
	r.p = p[:min(len(p), quietCopy)]
	err := c.raw.Read(r.try)
	r.p = nil
	switch {
	case err != nil:
		return 0, err
	case r.errno != 0:
		return 0, c.failed("read", r.errno)
	case r.n == 0:
		return 0, io.EOF
	}
	return r.n, nil
}

// Write implements net.Conn.
func (c *quietConn) Write(p []byte) (int, error) {
	w := &c.out
	w.mu.Lock()
	defer w.mu.Unlock()
	w.p, w.errno = p, 0
	err := c.raw.Write(w.try)
	n := len(p) - len(w.p)
	w.p = nil
	if err == nil && w.errno != 0 {
		err = c.failed("write", w.errno)
	}
	return n, err
}

// failed wraps an error as the net package does.
func (c *quietConn) failed(op string, errno syscall.Errno) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, errno)}
}

func (r *quietReads) read(fd uintptr) (done bool) {
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(r.p))), uintptr(len(r.p)), 0, 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		quietOrder.Load()
		r.n, r.errno = int(n), errno
		return errno != syscall.EAGAIN
	}
}

func (w *quietWrites) write(fd uintptr) (done bool) {
	for len(w.p) > 0 {
		quietOrder.Add(1)
		n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(w.p))), uintptr(min(len(w.p), quietCopy)),
			syscall.MSG_NOSIGNAL, 0, 0)
		switch errno {
		case 0:
			w.p = w.p[n:]
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			w.errno = errno
			return true
		}
	}
	return true
}

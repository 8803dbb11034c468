package cluster

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// quietConn is a TCP connection whose reads and writes the runtime is not told of. The
// net package's are system calls that may last: before the first one after an idle
// moment the runtime wakes its monitor, which then looks every 20 µs whether the
// call has returned. Between nodes that ask each other a thousand times a second, and
// wait for the answer, that is half of what asking costs. But what does not wait does
// not last; only the waiting is the runtime's.
type quietConn struct {
	net.Conn
	raw syscall.RawConn
	in  quietReads
	out quietWrites
}

// quietReads is the read in progress.
type quietReads struct {
	mu    sync.Mutex
	p     []byte
	n     int
	errno syscall.Errno
	try   func(fd uintptr) (done bool)
}

// quietWrites is the write in progress.
type quietWrites struct {
	mu    sync.Mutex
	p     []byte // the rest
	errno syscall.Errno
	try   func(fd uintptr) (done bool)
}

// quietCopy is how much one system call copies at most, in bytes: it holds up whatever else
// runs on its processor.
const quietCopy = 64 << 10

// quietOrder is for the race detector: what one goroutine does before it writes has been done
// when another one has read that, as the net package tells it, too.
var quietOrder atomic.Uint32

// quiet returns conn as a quietConn if it is one of TCP.
func quiet(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn // nil, which neither a dialer nor a listener returns
	}
	c := &quietConn{Conn: tcp, raw: raw}
	c.in.try, c.out.try = c.in.read, c.out.write
	return c
}

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

// failed is what the net package makes of an error.
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

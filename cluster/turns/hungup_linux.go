package turns

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp reports whether the other side has closed the connection, or its sending half.
func hungUp(conn net.Conn) (gone bool) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false // only for a nil connection
	}
	// If this side has closed the connection, Control returns an error: the next Read or Write says so, too.
	_ = raw.Control(func(fd uintptr) {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, 0)
		gone = n > 0
	})
	return gone
}

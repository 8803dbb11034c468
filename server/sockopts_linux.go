package server

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsentLimit bounds the unsent output that the system keeps for a client, because a container's memory limit includes it. Sent but
// unacknowledged bytes do not count, so connections stay fast.
const unsentLimit = 64 << 10

// limitUnsent makes the operating system keep at most unsentLimit bytes of unsent output for a client.
func limitUnsent(c *net.TCPConn) error {
	return setOption(c, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentLimit)
}

// limitUnsentLocal does the work of limitUnsent for a client at a Unix socket. What such a client sends counts as its own memory.
func limitUnsentLocal(c *net.UnixConn) error {
	return setOption(c, unix.SOL_SOCKET, unix.SO_SNDBUF, unsentLimit/2) // the system doubles it
}

// limitInput bounds how much unread input the operating system keeps for a client or, if c is a listener, for each of its clients.
func limitInput(c syscall.Conn, bytes int) error {
	return setOption(c, unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
}

func setOption(c syscall.Conn, level, option, value int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	fault := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, value) })
	return errors.Join(err, fault)
}

// widenInput raises the limit of limitInput for a client that has authenticated. It ignores errors: without the higher limit, the
// client only sends more slowly.
func widenInput(conn net.Conn, bytes int) {
	for {
		switch c := conn.(type) {
		case interface {
			setOption(level, option, value int) error
		}:
			_ = c.setOption(unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
			return
		case *net.TCPConn:
			_ = limitInput(c, bytes)
			return
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return // not a TCP connection
		}
	}
}

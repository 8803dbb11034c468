package server

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsentLimit is how many bytes the operating system keeps for a client beyond what is on the way to it. Without a
// limit it keeps up to 4 MiB for a client that does not read, in memory that counts as this process's in a
// container. The client's network is kept busy all the same: what is on the way does not count.
const unsentLimit = 64 << 10

// limitUnsent bounds what the operating system keeps for a client that does not read.
func limitUnsent(c *net.TCPConn) error {
	return setOption(c, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentLimit)
}

// limitInput bounds what the operating system keeps of the input of a client.
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

// widenInput gives a connection the memory for input of a client that has authenticated. An error does not matter: the client
// sends more slowly then.
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

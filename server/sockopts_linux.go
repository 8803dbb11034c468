package server

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

const (
	// unsentLimit is how many bytes the operating system keeps for a client beyond what is on the way to it. Without a
	// limit it keeps up to 4 MiB for a client that does not read, in memory that counts as this process's in a
	// container. The client's network is kept busy all the same: what is on the way does not count.
	unsentLimit = 64 << 10
	// strangersInput is the memory that the operating system keeps for input of a client before it has authenticated
	// (the system takes twice as much with what it needs itself): strangers are served one after the other
	// (loop_strangers_linux.go), and what they send meanwhile stays there.
	strangersInput = 16 << 10
	// clientsInput is the same for a client that has authenticated. Without a limit the system keeps up to 6 MiB for one
	// whose commands wait. It is enough for 20 MB/s and a round trip of 10 ms.
	clientsInput = 208 << 10
)

// limitUnsent bounds what the operating system keeps for a client that does not read.
func limitUnsent(c *net.TCPConn) error {
	return setOption(c, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentLimit)
}

// limitInput bounds what the operating system keeps of the input of a client that has, or has not, authenticated.
func limitInput(c *net.TCPConn, known bool) error {
	if known {
		return setOption(c, unix.SOL_SOCKET, unix.SO_RCVBUF, clientsInput)
	}
	return setOption(c, unix.SOL_SOCKET, unix.SO_RCVBUF, strangersInput)
}

func setOption(c *net.TCPConn, level, option, value int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	fault := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, value) })
	return errors.Join(err, fault)
}

// hasAuthenticated gives a connection the memory for input of a client that has authenticated. An error does not matter:
// the client sends more slowly then.
func hasAuthenticated(conn net.Conn) {
	for {
		switch c := conn.(type) {
		case interface {
			setOption(level, option, value int) error
		}:
			_ = c.setOption(unix.SOL_SOCKET, unix.SO_RCVBUF, clientsInput)
			return
		case *net.TCPConn:
			_ = limitInput(c, true)
			return
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return // not a TCP connection
		}
	}
}

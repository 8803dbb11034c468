package peerport

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
)

// limitQueue bounds the kernel's queue of ln: in the net package's long queue, a peer behind strangers would give up.
func limitQueue(ln net.Listener, n int) {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		// Without the bound the port works, too.
		_ = raw.Control(func(ln uintptr) { _ = syscall.Listen(int(ln), n) })
	}
}

// takeWaiting passes at most n callers from the kernel's queue to take, with one system call each, and reports whether more may wait.
func takeWaiting(ln net.Listener, n int, take func(net.Conn)) (more bool) {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false // only for a nil listener
	}
	// If the listener is closed, Control calls nothing and returns an error. Nobody needs that error, because the next Accept returns
	// one, too.
	_ = raw.Control(func(ln uintptr) {
		for range n {
			fd, from, err := syscall.Accept4(int(ln), syscall.SOCK_CLOEXEC)
			if errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.ECONNABORTED) {
				continue
			}
			if err != nil {
				return // nobody waits, or the next Accept gets the same error
			}
			take(&unopened{fd: fd, from: addrPort(from)})
		}
		more = true
	})
	return more
}

// unopened is a connection that the kernel has accepted and Go does not know yet. It can only be opened or closed.
type unopened struct {
	net.Conn // nil
	fd       int
	from     netip.AddrPort
}

func (u *unopened) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(u.from) }
func (u *unopened) Close() error         { return syscall.Close(u.fd) }

var errHungUp = errors.New("the caller has hung up")

// open returns a connection for use in place of u. If it returns an error, u is closed.
func (u *unopened) open() (net.Conn, error) {
	file := os.NewFile(uintptr(u.fd), "")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	if conn.RemoteAddr() == nil { // the kernel forgets the address of a caller that has reset the connection
		conn.Close()
		return nil, errHungUp
	}
	return quiet(conn), nil
}

func addrPort(a syscall.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}

//go:build !linux

package peerport

import "net"

// quiet returns conn itself: quietConn is for Linux only.
func quiet(conn net.Conn) net.Conn { return conn }

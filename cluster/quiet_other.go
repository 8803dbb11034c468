//go:build !linux

package cluster

import "net"

// quiet is for Linux.
func quiet(conn net.Conn) net.Conn { return conn }

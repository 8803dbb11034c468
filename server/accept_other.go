//go:build !linux

package server

import "net"

// serveLoops reports that this system has no event loops: redcon serves each connection with a
// goroutine of its own.
func (srv *Server) serveLoops(net.Listener, Face, bool) (served bool, err error) { return false, nil }

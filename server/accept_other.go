//go:build !linux

package server

import "net"

// serveLoops reports that there are no event loops on this system: redcon
// serves each connection by a goroutine of its own.
func (srv *Server) serveLoops(net.Listener, Face, bool) (served bool, err error) { return false, nil }

//go:build !linux

package peerport

import "net"

// limitQueue does nothing: it is for Linux only.
func limitQueue(net.Listener, int) {}

// takeWaiting accepts nobody: it is for Linux only.
func takeWaiting(net.Listener, int, func(net.Conn)) (more bool) { return false }

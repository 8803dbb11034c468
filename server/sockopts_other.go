//go:build !linux

package server

import (
	"net"
	"syscall"
)

// What the operating system keeps for clients is its own matter here.
func limitUnsent(*net.TCPConn) error     { return nil }
func limitInput(syscall.Conn, int) error { return nil }
func widenInput(net.Conn, int)           {}

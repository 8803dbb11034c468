//go:build !linux

package server

import (
	"net"
	"syscall"
)

// On this system, the server does not limit what the operating system keeps for clients.
func limitUnsent(*net.TCPConn) error       { return nil }
func limitUnsentLocal(*net.UnixConn) error { return nil }
func limitInput(syscall.Conn, int) error   { return nil }
func widenInput(net.Conn, int)             {}

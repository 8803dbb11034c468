//go:build !linux

package server

import "net"

// What the operating system keeps for clients is its own matter here.
func limitUnsent(*net.TCPConn) error     { return nil }
func limitInput(*net.TCPConn, int) error { return nil }
func widenInput(net.Conn, int)           {}

// Package ports finds addresses at which a test can start nodes, and restart them.
package ports

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// These ports are below those of outgoing connections, which could otherwise take the port of a node that is down.
const first, end = 10_240, 32_768

// Addrs returns n loopback addresses. No other test gets one of them before t has ended.
func Addrs(t testing.TB, n int) []string {
	t.Helper()
	var list []string
	var failed error
	for range 100 * n {
		if len(list) == n {
			return list
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(first+rand.IntN(end-first)))
		held, err := hold(addr)
		if err != nil {
			failed = err
			continue
		}
		t.Cleanup(func() {
			if err := held.Close(); err != nil {
				t.Error(err)
			}
		})
		list = append(list, addr)
	}
	t.Fatalf("found %d of %d free ports from %d to %d: %v", len(list), n, first, end-1, failed)
	return nil
}

// hold checks that a TCP port is free. The returned UDP socket reserves the address among tests.
func hold(addr string) (net.PacketConn, error) {
	held, err := net.ListenPacket("udp", addr)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	if err := ln.Close(); err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return held, nil
}

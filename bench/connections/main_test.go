package main

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// TestConnections runs the program with few connections for a short time: 500 connections for two seconds.
func TestConnections(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads the memory of a process from /proc")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := plan{server: nodes.Binary(t), listen: ln.Addr().String(), idle: 400, busy: 100, locks: 20, last: 2 * time.Second}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := p.run()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r)
	if r.perIdle > 20 {
		t.Errorf("an idle connection takes %.1f KiB, want less than 20", r.perIdle)
	}
	if r.taken == 0 {
		t.Error("nobody got a lock")
	}
}

func TestField(t *testing.T) {
	info := "# Clients\r\nconnected_clients:42\r\nblocked_clients:0\r\n"
	if n := field(info, "connected_clients"); n != 42 {
		t.Errorf("got %d", n)
	}
	if n := field(info, "nosuch"); n != -1 {
		t.Errorf("got %d for a missing field", n)
	}
}

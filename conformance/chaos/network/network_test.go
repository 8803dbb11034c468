//go:build linux

package network

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"
)

var a, b = netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("10.77.0.2")

func two(t *testing.T) (*Switch, *Host, *Host) {
	t.Helper()
	s := NewSwitch(1)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	var hosts []*Host
	for _, addr := range []netip.Addr{a, b} {
		h, err := s.Add(addr)
		if errors.Is(err, ErrForbidden) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, h)
	}
	return s, hosts[0], hosts[1]
}

// echo listens on a host and sends back what it gets.
func echo(t *testing.T, h *Host) string {
	t.Helper()
	var ln net.Listener
	if err := h.Do(func() (err error) { ln, err = net.Listen("tcp4", h.Addr.String()+":0"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return ln.Addr().String()
}

// ping sends a byte, and waits until the byte comes back.
func ping(conn net.Conn, limit time.Duration) (time.Duration, error) {
	start := time.Now()
	if err := conn.SetDeadline(start.Add(limit)); err != nil {
		return 0, err
	}
	if _, err := conn.Write([]byte("x")); err != nil {
		return 0, err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return time.Since(start), err
}

func TestLinks(t *testing.T) {
	s, from, to := two(t)
	addr := echo(t, to)
	conn, err := from.Dial(addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	must := func(limit time.Duration) time.Duration {
		t.Helper()
		took, err := ping(conn, limit)
		if err != nil {
			t.Fatal(err)
		}
		return took
	}
	must(5 * time.Second)

	s.Set(b, a, Link{Delay: 50 * time.Millisecond, Jitter: 10 * time.Millisecond})
	if took := must(5 * time.Second); took < 50*time.Millisecond {
		t.Errorf("%v over a link that takes 50ms", took)
	}
	s.Set(b, a, Link{Duplicate: 1})
	must(5 * time.Second)
	s.Set(b, a, Link{Loss: 0.3})
	for range 10 {
		must(20 * time.Second)
	}

	// Only one direction is cut: what b sends no longer reaches a.
	s.Set(b, a, Link{Cut: true})
	if took, err := ping(conn, 300*time.Millisecond); err == nil {
		t.Errorf("an answer in %v over a link that is cut", took)
	}
	if _, err := from.Dial(addr, 300*time.Millisecond); err == nil {
		t.Error("connected over a link that is cut")
	}
	s.Heal()
	must(20 * time.Second) // by then TCP has sent the lost bytes again
	if carried, dropped := s.Packets(); carried == 0 || dropped == 0 {
		t.Errorf("%d packets carried, %d dropped", carried, dropped)
	}
}

// inHost is an environment variable: it tells the test binary that it was started in the host a.
const inHost = "LOCKSTEP_CHAOS_IN_HOST"

// A process that is started in a host has only the network of that host.
func TestProcessInHost(t *testing.T) {
	if os.Getenv(inHost) != "" {
		onlyHost(t)
		return
	}
	_, from, _ := two(t)
	var out []byte
	err := from.Do(func() (err error) {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestProcessInHost$")
		cmd.Env = append(os.Environ(), inHost+"=1")
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ln, err := net.Listen("tcp4", a.String()+":0")
	if err == nil {
		ln.Close()
		t.Errorf("%v can be used outside its host", a)
	}
}

func onlyHost(t *testing.T) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	for _, at := range list {
		if n := at.(*net.IPNet); n.IP.To4() != nil && !n.IP.IsLoopback() {
			ours = append(ours, n.String())
		}
	}
	if len(ours) != 1 || ours[0] != a.String()+"/24" {
		t.Errorf("the host has %v, want %v and nothing else", ours, a)
	}
}

package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// stopWithin is how long a node may take from SIGTERM to its end.
const stopWithin = 2 * time.Second

// stopping sends SIGTERM to the nodes, one after the other or to all at once. It returns how long each node took to end.
func stopping(t *testing.T, list []*nodes.Node, atOnce bool) []time.Duration {
	t.Helper()
	took := make([]time.Duration, len(list))
	var work sync.WaitGroup
	for i, n := range list {
		stop := func() {
			began := time.Now()
			if err := n.Process().Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
				return
			}
			if code := n.Wait(); code != exitOK {
				t.Errorf("%s ended with %d:\n%s", n.ID, code, lastLines(n.Log(), 12))
			}
			took[i] = time.Since(began)
		}
		if work.Go(stop); !atOnce {
			work.Wait()
		}
	}
	work.Wait()
	return took
}

// busyClients starts clients that lock, unlock and wait for locks through all nodes until the test ends. No reply makes them stop.
func busyClients(t *testing.T, list []*nodes.Node) {
	stop := make(chan struct{})
	var work sync.WaitGroup
	t.Cleanup(func() {
		close(stop)
		for _, n := range list {
			n.Kill() // a suspended node would never answer its clients
		}
		work.Wait()
	})
	for i, n := range list {
		for j := range 4 {
			work.Go(func() {
				for {
					busyClient(n.Addr, fmt.Sprintf("k%d-%d", i, j), stop)
					select {
					case <-stop:
						return
					case <-time.After(20 * time.Millisecond):
					}
				}
			})
		}
	}
}

// busyClient works on one connection until that connection breaks, or until stop is closed.
func busyClient(addr, key string, stop <-chan struct{}) {
	c, err := respclient.Dial(addr, 10*time.Second)
	if err != nil {
		return
	}
	defer c.Close()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		if _, err := c.Do("SET", key, fmt.Sprint(i), "NX", "PX", "30000"); err != nil {
			return
		}
		if _, err := c.Do("DEL", key); err != nil {
			return
		}
		if _, err := c.Do("BLPOP", key+":list", "0.01"); err != nil {
			return
		}
	}
}

// TestStopIsPrompt: nodes stop promptly in any order, even the last ones, when no node can take over.
func TestStopIsPrompt(t *testing.T) {
	byLead := func(leaderFirst bool) func([]*nodes.Node) []*nodes.Node {
		return func(list []*nodes.Node) []*nodes.Node {
			leader := nodes.Leader(list)
			rest := slices.DeleteFunc(slices.Clone(list), func(n *nodes.Node) bool { return n == leader })
			if leaderFirst {
				return append([]*nodes.Node{leader}, rest...)
			}
			return append(rest, leader)
		}
	}
	for _, test := range []struct {
		name   string
		nodes  int
		order  func([]*nodes.Node) []*nodes.Node
		atOnce bool
		before func([]*nodes.Node) // what happens before the stop; it gets the nodes in order
	}{
		{"one", 1, byLead(true), false, nil},
		{"the leader first", 3, byLead(true), false, nil},
		{"the leader last", 3, byLead(false), false, nil},
		{"all at once", 3, byLead(true), true, nil},
		{"the leader, the others were killed", 3, byLead(true), false, func(list []*nodes.Node) {
			list[1].Kill()
			list[2].Kill()
		}},
		{"the leader, the others stand still", 3, byLead(true), false, func(list []*nodes.Node) {
			for _, n := range list[1:] {
				if err := n.Process().Signal(syscall.SIGSTOP); err != nil {
					t.Error(err)
				}
			}
		}},
		{"a follower, the others stand still", 3, byLead(false), false, func(list []*nodes.Node) {
			for _, n := range list[1:] {
				if err := n.Process().Signal(syscall.SIGSTOP); err != nil {
					t.Error(err)
				}
			}
		}},
	} {
		for _, busy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, clients: %v", test.name, busy), func(t *testing.T) {
				list := nodes.Start(t, test.nodes)
				if busy {
					busyClients(t, list)
					time.Sleep(300 * time.Millisecond)
				}
				list = test.order(list)
				if test.before != nil {
					test.before(list)
					list = list[:1]
				}
				took := stopping(t, list, test.atOnce)
				t.Log(took)
				for i, n := range list {
					if took[i] > stopWithin {
						t.Errorf("%s took %v to stop; the last of its log:\n%s", n.ID, took[i], lastLines(n.Log(), 12))
					}
				}
			})
		}
	}
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}

// TestStopWithHTTPConnections: a node ends cleanly although it has HTTP connections without a request, or with half a request.
func TestStopWithHTTPConnections(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	for _, sent := range []string{"", "GET /heal"} {
		c, err := net.Dial("tcp", n.HTTPAddr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, sent); err != nil {
			t.Fatal(err)
		}
	}
	// An answer to a later client shows that the server has accepted both connections.
	if got, text := page(t, http.DefaultClient, "http://"+n.HTTPAddr+"/healthz", "", "", ""); got != http.StatusOK {
		t.Fatal(got, text)
	}
	stopping(t, []*nodes.Node{n}, false) // stopping checks the exit code
}

// TestStoppingIsNotReady: as soon as a node begins to stop, it reports that it stops, while it still answers its clients.
func TestStoppingIsNotReady(t *testing.T) {
	o := options{id: "n1", listen: "127.0.0.1:0", protected: "yes", voter: "yes", sentinelAuth: "yes", ephemeral: true, failoverWait: time.Second, scriptLimit: time.Second}
	cfg, err := o.clusterConfig()
	if err != nil {
		t.Fatal(err)
	}
	p, err := assemble(o, cfg, memoryPlan{}, cluster.NewSystemTime(), slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(p.listeners.close(), p.node.Close()); err != nil {
			t.Error(err)
		}
	}()
	if err := p.node.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	handler := pages(o, p, slog.New(slog.DiscardHandler))
	look := func(status int, text, ready string) {
		t.Helper()
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil)); w.Code != status || w.Body.String() != text {
			t.Errorf("/readyz: %d %q", w.Code, w.Body)
		}
		w = httptest.NewRecorder()
		if handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil)); !strings.Contains(w.Body.String(), "\nlockstep_ready "+ready+"\n") {
			t.Errorf("lockstep_ready is not %s", ready)
		}
	}
	look(http.StatusOK, "ready\n", "1")
	p.node.HandOver()
	look(http.StatusServiceUnavailable, "stopping\n", "0")
}

package clients

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/compatibility"
	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// control lets a test suite in another language ask for a failover while the suite holds locks.
//
//	GET  /addrs     addresses of the nodes, followers first
//	POST /failover  kill -9 of the leader; answers when another node leads
//	                and the killed one is back
//	POST /sight     asks LOCK.LIST, LOCK.INFO and LOCK.WAITERS about a lock
type control struct {
	mu     sync.Mutex // held during a failover
	list   []*nodes.Node
	sights []compatibility.Sight
}

// electionTimeout is how long the surviving nodes may take to elect a leader, on a machine under load.
const electionTimeout = 20 * time.Second

// addrs is the answer of GET /addrs.
type addrs struct {
	faces
	TLS faces `json:"tls"` // the same addresses for TLS
}

// faces holds addresses of the nodes: a list for each way in which clients find them.
type faces struct {
	Plain    []string `json:"plain"`
	Sentinel []string `json:"sentinel"`
	Cluster  []string `json:"cluster"`
}

// startControl serves the endpoint until the test ends, and returns its URL.
func startControl(t *testing.T, c *control) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /addrs", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, addrsOf(c.followersFirst()), nil)
	})
	mux.HandleFunc("POST /failover", func(w http.ResponseWriter, _ *http.Request) {
		killed, err := c.failover()
		answer(w, map[string]string{"killed": killed}, err)
	})
	mux.HandleFunc("POST /sight", c.sight)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String()
}

func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if err := json.NewEncoder(w).Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// addrsOf collects the addresses at which clients find the nodes.
func addrsOf(list []*nodes.Node) addrs {
	of := func(addr func(*nodes.Node) string) []string {
		found := []string{}
		for _, n := range list {
			found = append(found, addr(n))
		}
		return found
	}
	return addrs{
		faces: faces{
			Plain:    of(func(n *nodes.Node) string { return n.Addr }),
			Sentinel: of(func(n *nodes.Node) string { return n.SentinelAddr }),
			Cluster:  of(func(n *nodes.Node) string { return n.ClusterAddr }),
		},
		TLS: faces{
			Plain:    of(func(n *nodes.Node) string { return n.TLSAddr }),
			Sentinel: of(func(n *nodes.Node) string { return n.TLSSentinelAddr }),
			Cluster:  of(func(n *nodes.Node) string { return n.TLSClusterAddr }),
		},
	}
}

// followersFirst returns the nodes; the leader is the last one.
func (c *control) followersFirst() []*nodes.Node {
	leader := nodes.Leader(c.list)
	list := slices.DeleteFunc(slices.Clone(c.list), func(n *nodes.Node) bool { return n == leader })
	if leader != nil {
		list = append(list, leader)
	}
	return list
}

// electedOf waits until one of the nodes leads, and returns that node. It returns nil if none leads in time.
func electedOf(list []*nodes.Node) *nodes.Node {
	for deadline := time.Now().Add(electionTimeout); ; time.Sleep(20 * time.Millisecond) {
		if leader := nodes.Leader(list); leader != nil || time.Now().After(deadline) {
			return leader
		}
	}
}

// failover kills the leader, waits until another node leads, and restarts the killed node. If there is only one node, failover
// kills and restarts that node.
func (c *control) failover() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// On a machine under load an election may already be under way.
	leader := electedOf(c.list)
	if leader == nil {
		return "", errors.New("no node leads")
	}
	leader.Kill()
	rest := slices.DeleteFunc(slices.Clone(c.list), func(n *nodes.Node) bool { return n == leader })
	if len(rest) > 0 && electedOf(rest) == nil {
		return "", errors.New("no new leader in time")
	}
	leader.Run()
	leader.WaitReady()
	return leader.ID, nil
}

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/conformance/chaos/network"
)

// fleet is the cluster, its network, and the hosts from which it is used.
type fleet struct {
	net     *network.Switch
	nodes   []*node
	clients *network.Host // where the clients are; its links may be broken
	control *network.Host // the host from which this program asks the nodes; its links are never broken
	binary  string
	flags   []string // for every node, in addition to the common ones
	noDisks error    // why the nodes have no disks of their own

	mu      sync.Mutex
	spares  int     // how many spares have been made
	leaving []*node // spares that may still be members
}

// fleetConfig says what a fleet is made of.
type fleetConfig struct {
	nodes  int
	binary string
	dir    string
	seed   uint64
	flags  []string // for every node, in addition to the common ones
}

const prefix = "10.77.0."

// newFleet makes the hosts. The method startAll starts the nodes.
func newFleet(c fleetConfig) (_ *fleet, err error) {
	f := &fleet{net: network.NewSwitch(c.seed), binary: c.binary}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	var peers []string
	for i := range c.nodes {
		id := fmt.Sprintf("n%d", i+1)
		n := &node{id: id, addr: netip.MustParseAddr(fmt.Sprint(prefix, i+1)), dir: filepath.Join(c.dir, id), f: f}
		if err := os.MkdirAll(n.dir, 0o755); err != nil {
			return nil, err
		}
		if err := n.setClock(0); err != nil {
			return nil, err
		}
		if n.host, err = f.net.Add(n.addr); err != nil {
			return nil, err
		}
		if f.noDisks == nil {
			n.disk, err = newDisk(n.host, filepath.Join(n.dir, "disk.img"), n.diskPath())
			if errors.Is(err, errNoDisk) {
				f.noDisks = err
			} else if err != nil {
				return nil, err
			}
		}
		f.nodes = append(f.nodes, n)
		peers = append(peers, id+"="+n.at(peerPort))
	}
	f.flags = c.flags
	for _, n := range f.nodes {
		n.args = append(n.addresses(), "--peers", strings.Join(peers, ","))
	}
	if f.clients, err = f.net.Add(netip.MustParseAddr(prefix + "100")); err != nil {
		return nil, err
	}
	f.control, err = f.net.Add(netip.MustParseAddr(prefix + "200"))
	return f, err
}

// addresses returns the flags with the node's addresses.
func (n *node) addresses() []string {
	return append([]string{"serve", "--id", n.id, "--data", filepath.Join(n.diskPath(), "data"), "--audit-dir", n.auditPath(), "--protected-mode", "no",
		"--listen", n.at(plainPort), "--cluster-listen", n.at(clusterPort), "--sentinel-listen", n.at(sentinelPort),
		"--peer-listen", n.at(peerPort), "--http-listen", n.at(httpPort)}, n.f.flags...)
}

// startAll starts the processes that do not run.
func (f *fleet) startAll() error {
	var faults []error
	for _, n := range f.nodes {
		faults = append(faults, n.start())
	}
	return errors.Join(faults...)
}

// close ends all processes and the network.
func (f *fleet) close() error {
	for _, n := range append(f.nodes, f.leaving...) {
		n.kill()
	}
	return f.net.Close()
}

// waitReady waits until every node serves.
func (f *fleet) waitReady(limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for _, n := range f.nodes {
		for {
			err := n.ready()
			if err == nil {
				break
			}
			if n.died() {
				return fmt.Errorf("%s has ended: %v", n.id, n.crashed())
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s is not ready %v after everything was healed: %w", n.id, limit, err)
			}
			time.Sleep(20 * time.Millisecond) // polls a process
		}
	}
	return nil
}

// leader returns the node with the highest term that says that it leads, or nil. A deposed node may still say so.
func (f *fleet) leader() *node {
	var found *node
	best := ""
	for _, n := range f.nodes {
		n.mu.Lock()
		alive := n.cmd != nil && !ended(n.done) && !n.paused
		n.mu.Unlock()
		if !alive {
			continue
		}
		if st, err := n.status(); err == nil && st["role"] == "leader" {
			if term := fmt.Sprintf("%020s", st["term"]); term > best {
				found, best = n, term
			}
		}
	}
	return found
}

// waitEqual waits until all nodes report the same applied index and the same state hash.
func (f *fleet) waitEqual(limit time.Duration) error {
	var seen []string
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		seen = seen[:0]
		equal := true
		for _, n := range f.nodes {
			st, err := n.status()
			if err != nil {
				seen, equal = append(seen, n.id+": "+err.Error()), false
				continue
			}
			seen = append(seen, st["applied"]+" "+st["state-hash"])
			equal = equal && st["state-hash"] != "" && seen[len(seen)-1] == seen[0]
		}
		if equal {
			return nil
		}
		time.Sleep(20 * time.Millisecond) // polls processes
	}
	return fmt.Errorf("the nodes do not agree on applied index and state hash: %q", seen)
}

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	chaosnet "github.com/lockstep-io/lockstep/conformance/chaos/network"
	"github.com/lockstep-io/lockstep/conformance/environ"
	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// hostRounds says how many rounds TestHostsInTwoNetworks plays. TestMain hides the variable.
var hostRounds = os.Getenv("LOCKSTEP_HOSTS")

// TestHostsInTwoNetworks does what TestHosts does, with three nodes and two hosts, each in a network namespace of its own. In every third
// round a host or a node is cut off, a node is frozen, or the `lockstep lock` of the job that runs is stopped, for longer than its lease.
func TestHostsInTwoNetworks(t *testing.T) {
	rounds, err := strconv.Atoi(hostRounds)
	if err != nil {
		t.Skip("needs LOCKSTEP_HOSTS, a number of rounds: `make hosts` sets it")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	f := newHostNetwork(t, seed)
	c := contest{t: t, dir: t.TempDir(), addrs: strings.Join(f.addrs, ","), disturb: f.disturb}
	for i, host := range f.hosts {
		c.start[i] = func(cmd *exec.Cmd) error { return host.Do(cmd.Start) }
	}
	c.play(rounds, seed)
	t.Logf("faults: %v", f.made)
}

// hostNetwork is a cluster and two hosts.
type hostNetwork struct {
	t     *testing.T
	net   *chaosnet.Switch
	nodes [3]*chaosnet.Host
	hosts [2]*chaosnet.Host
	addrs []string
	runs  [3]*exec.Cmd
	made  map[string]int
}

func newHostNetwork(t *testing.T, seed uint64) *hostNetwork {
	f := &hostNetwork{t: t, net: chaosnet.NewSwitch(seed), made: map[string]int{}}
	add := func(last byte) *chaosnet.Host {
		h, err := f.net.Add(netip.AddrFrom4([4]byte{10, 77, 0, last}))
		if errors.Is(err, chaosnet.ErrForbidden) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	t.Cleanup(func() { _ = f.net.Close() })
	for i := range f.nodes {
		f.nodes[i] = add(byte(i + 1))
		f.addrs = append(f.addrs, net.JoinHostPort(f.nodes[i].Addr.String(), "6379"))
	}
	for i := range f.hosts {
		f.hosts[i] = add(byte(i + 101))
	}
	dir := t.TempDir()
	for i := range f.nodes {
		f.run(dir, i)
	}
	t.Cleanup(func() {
		for _, cmd := range f.runs {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	for i := range f.nodes {
		until(t, "a node that serves", func() bool { return f.serves(i) })
	}
	return f
}

// run starts a node.
func (f *hostNetwork) run(dir string, i int) {
	f.t.Helper()
	var peers []string
	for j, n := range f.nodes {
		peers = append(peers, fmt.Sprintf("n%d=%s:7379", j+1, n.Addr))
	}
	id := fmt.Sprintf("n%d", i+1)
	cmd := exec.Command(nodes.Binary(f.t), "serve", "--id", id, "--data", filepath.Join(dir, id), "--listen", f.addrs[i], "--http-listen", "",
		"--peer-listen", f.nodes[i].Addr.String()+":7379", "--peers", strings.Join(peers, ","), "--protected-mode", "no")
	cmd.Env = environ.Environ()
	if err := f.nodes[i].Do(cmd.Start); err != nil {
		f.t.Fatal(err)
	}
	f.runs[i] = cmd
}

// serves reports whether a node answers a host.
func (f *hostNetwork) serves(i int) bool {
	conn, err := f.hosts[0].Dial(f.addrs[i], time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := conn.Write([]byte("*2\r\n$6\r\nEXISTS\r\n$3\r\njob\r\n")); err != nil {
		return false
	}
	b := make([]byte, 1)
	_, err = conn.Read(b)
	return err == nil && b[0] == ':'
}

// disturb makes a fault, and ends it after more than a lease.
func (f *hostNetwork) disturb(rng *rand.Rand, holder *os.Process) {
	switch node := rng.IntN(len(f.nodes)); rng.IntN(4) {
	case 0:
		f.made["a host is cut off"]++
		f.cut(f.hosts[rng.IntN(len(f.hosts))])
	case 1:
		f.made["a node is cut off"]++
		f.cut(f.nodes[node])
	case 2:
		f.made["a node is frozen"]++
		_ = f.runs[node].Process.Signal(syscall.SIGSTOP)
		defer func() { _ = f.runs[node].Process.Signal(syscall.SIGCONT) }()
	case 3:
		f.made["lockstep lock is stopped"]++
		_ = holder.Signal(syscall.SIGSTOP) // an error means that it has ended
		defer func() { _ = holder.Signal(syscall.SIGCONT) }()
	}
	time.Sleep(beyondLease)
	f.net.Heal()
}

// cut cuts all links of a host.
func (f *hostNetwork) cut(h *chaosnet.Host) {
	for _, other := range append(f.nodes[:], f.hosts[:]...) {
		f.net.Set(h.Addr, other.Addr, chaosnet.Link{Cut: true})
		f.net.Set(other.Addr, h.Addr, chaosnet.Link{Cut: true})
	}
}

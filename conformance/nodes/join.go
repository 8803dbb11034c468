package nodes

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/environ"
	"github.com/lockstep-io/lockstep/conformance/ports"
)

// Newcomer returns the place of a node that will join a running cluster through some of its members. Run starts the node.
func Newcomer(t testing.TB, id string, members []*Node, flags ...string) *Node {
	t.Helper()
	addrs := ports.Addrs(t, 3)
	n := &Node{ID: id, Addr: addrs[0], PeerAddr: addrs[1], HTTPAddr: addrs[2], Data: filepath.Join(t.TempDir(), id), t: t}
	var through []string
	for _, m := range members {
		through = append(through, m.PeerAddr)
	}
	n.args = append([]string{"serve", "--id", n.ID, "--data", n.Data, "--listen", n.Addr, "--peer-listen", n.PeerAddr,
		"--http-listen", n.HTTPAddr, "--join", strings.Join(through, ",")}, flags...)
	return n
}

// Admin runs an administration command against the node. It returns the exit code and the output of the command.
func (n *Node) Admin(command string, args ...string) (int, string) {
	n.t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(Binary(n.t), append([]string{command, "--addr", n.Addr}, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &out, environ.Environ()
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		n.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// Wait waits until the process has ended by itself and returns its exit code.
func (n *Node) Wait() int {
	<-n.done
	return n.cmd.ProcessState.ExitCode()
}

// Replacement returns the place of a node that replaces this one. It has the same id, addresses and data directory, but joins the
// cluster through members.
func (n *Node) Replacement(members []*Node, flags ...string) *Node {
	var through []string
	for _, m := range members {
		through = append(through, m.PeerAddr)
	}
	return n.place(n.PeerAddr, append([]string{"--join", strings.Join(through, ",")}, flags...)...)
}

// Restarted returns a node that is this one with other flags. Run starts it.
func (n *Node) Restarted(flags ...string) *Node { return n.place(n.PeerAddr, flags...) }

// Moved returns a node that is this one with another peer address, which no other node knows.
func (n *Node) Moved(flags ...string) *Node {
	return n.place(ports.Addrs(n.t, 1)[0], flags...)
}

// place returns a node with the given peer address, and with the id, the other addresses and the data directory of this one.
func (n *Node) place(peerAddr string, flags ...string) *Node {
	p := &Node{ID: n.ID, Addr: n.Addr, PeerAddr: peerAddr, HTTPAddr: n.HTTPAddr, Data: n.Data, t: n.t}
	p.args = append([]string{"serve", "--id", n.ID, "--data", n.Data, "--listen", n.Addr, "--peer-listen", peerAddr,
		"--http-listen", n.HTTPAddr}, flags...)
	return p
}

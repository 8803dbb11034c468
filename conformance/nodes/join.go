package nodes

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Newcomer returns the place of a node that joins a running cluster through some
// of its members. Run starts it.
func Newcomer(t testing.TB, id string, members []*Node, flags ...string) *Node {
	t.Helper()
	addrs := FreeAddrs(t, 3)
	n := &Node{ID: id, Addr: addrs[0], PeerAddr: addrs[1], HTTPAddr: addrs[2], Data: filepath.Join(t.TempDir(), id), t: t}
	var through []string
	for _, m := range members {
		through = append(through, m.PeerAddr)
	}
	n.args = append([]string{"serve", "--id", n.ID, "--data", n.Data, "--listen", n.Addr, "--peer-listen", n.PeerAddr,
		"--http-listen", n.HTTPAddr, "--join", strings.Join(through, ",")}, flags...)
	return n
}

// Admin runs an administration command against the node and returns its exit
// code and what it prints.
func (n *Node) Admin(command string, args ...string) (int, string) {
	n.t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(Binary(n.t), append([]string{command, "--addr", n.Addr}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &out
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

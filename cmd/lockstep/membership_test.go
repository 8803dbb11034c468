package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/conformance/ports"
)

// administered runs an administration command on a node and returns its output. The command must succeed.
func administered(t *testing.T, n *nodes.Node, command string, args ...string) string {
	t.Helper()
	code, out := n.Admin(command, args...)
	if code != exitOK {
		t.Fatalf("lockstep %s %v on %s: exit code %d:\n%s", command, args, n.ID, code, out)
	}
	return out
}

// inState waits until a member has the given state in `lockstep members`.
func inState(t *testing.T, ask *nodes.Node, id, state string) {
	t.Helper()
	until(t, id+" "+state, func() bool {
		for _, line := range strings.Split(administered(t, ask, "members"), "\n") {
			if f := strings.Fields(line); len(f) > 0 && f[0] == id {
				return slices.Contains(f, state)
			}
		}
		return false
	})
}

func readyz(t *testing.T, n *nodes.Node) string {
	t.Helper()
	resp, err := http.Get("http://" + n.HTTPAddr + "/readyz")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// TestMembershipCommands does what an operator does: a node joins, a dead node is replaced while a lock is held, and the dead
// node is started again.
func TestMembershipCommands(t *testing.T) {
	list := nodes.Start(t, 3)
	if got, err := list[0].Do("SET", "lock", "me", "NX", "PX", "600000"); got != "OK" {
		t.Fatal(got, err)
	}
	n4 := nodes.Newcomer(t, "n4", list[:2])
	n4.Run()
	inState(t, list[0], "n4", "voter")
	for _, n := range append(list, n4) {
		until(t, n.ID+" counting a majority of four as three", func() bool {
			got, err := n.Do("INFO", "replication")
			return err == nil && strings.Contains(fmt.Sprint(got), "connected_slaves:2")
		})
	}
	// The same add command again changes nothing, even after a restart of the node.
	n4.Kill()
	n4.Run()
	n4.WaitReady()
	administered(t, list[1], "add", "n4", n4.PeerAddr)

	dead := list[2]
	if dead == nodes.Leader(list) {
		dead = list[1]
	}
	dead.Kill()
	administered(t, n4, "remove", dead.ID)
	if code, out := n4.Admin("remove", dead.ID); code != exitOK || !strings.Contains(out, dead.ID+" is no member") {
		t.Errorf("removed twice: exit code %d: %s", code, out)
	}
	if code, out := n4.Admin("add", "n5"); code != exitUsage || !strings.Contains(out, "PEER-ADDRESS") {
		t.Errorf("add without an address: exit code %d: %s", code, out)
	}
	if code, out := n4.Admin("add", "n1", n4.PeerAddr); code != exitRuntime || !strings.Contains(out, "there is n4, not n1") {
		t.Errorf("an address that is taken: exit code %d: %s", code, out)
	}
	same := nodes.Newcomer(t, dead.ID, []*nodes.Node{n4})
	same.Run()
	inState(t, n4, dead.ID, "voter")

	// The old node is started again, beside the new one with the same id.
	dead.Run()
	until(t, "that it says so", func() bool {
		return readyz(t, dead) == "removed from the cluster" && strings.Contains(dead.Log(), "has been removed from the cluster")
	})
	if st, err := dead.Status(); err != nil || st["membership"] != "removed" {
		t.Errorf("status: %v, %v", st, err)
	}
	if code, out := dead.Admin("members"); code != exitRuntime || !strings.Contains(out, "removed from the cluster") {
		t.Errorf("members: exit code %d: %s", code, out)
	}
	if got, err := dead.Do("GET", "lock"); err == nil || !strings.Contains(err.Error(), "removed from the cluster") {
		t.Errorf("it answers %v, %v", got, err)
	}
	dead.Kill()
	for _, n := range []*nodes.Node{n4, same, list[0]} {
		if got, err := n.Do("SET", "lock", "thief", "NX"); got != nil || err != nil {
			t.Errorf("%s grants a lock that is held: %v, %v", n.ID, got, err)
		}
	}
	waitEqual(t, []*nodes.Node{n4, same, list[0]})
}

// TestMovedNode: a node that restarts at another peer address logs that lockstep add must change the address, not that the node has
// been removed.
func TestMovedNode(t *testing.T) {
	list := nodes.Start(t, 3)
	old := list[2]
	if old == nodes.Leader(list) {
		old = list[1]
	}
	old.Kill()
	moved := old.Moved()
	moved.Run()
	until(t, "that it is looked for elsewhere", func() bool { return strings.Contains(readyz(t, moved), "look for this node at "+old.PeerAddr) })
	if want := "lockstep add " + moved.ID + " " + moved.PeerAddr; !strings.Contains(moved.Log(), want) {
		t.Errorf("the log does not say %q:\n%s", want, moved.Log())
	}
	administered(t, list[0], "add", moved.ID, moved.PeerAddr)
	moved.WaitReady()
	if strings.Contains(moved.Log(), "removed") {
		t.Errorf("nobody has removed it:\n%s", moved.Log())
	}
	list[slices.Index(list, old)] = moved
	waitEqual(t, list)
}

// TestPeersAfterTheFirstStart: --peers adds no members to an existing cluster. Neither the cluster's one node nor a new node starts
// with such --peers.
func TestPeersAfterTheFirstStart(t *testing.T) {
	alone := nodes.Start(t, 1)[0]
	alone.Kill()
	n2 := nodes.Newcomer(t, "n2", nil)
	peers := fmt.Sprintf("%s=%s,n2=%s", alone.ID, alone.PeerAddr, n2.PeerAddr)
	n1 := alone.Restarted("--peers", peers)
	n1.Run()
	if code := n1.Wait(); code != exitRuntime || !strings.Contains(n1.Log(), "start this node without --peers") {
		t.Errorf("a cluster of its own started with --peers: exit code %d:\n%s", code, n1.Log())
	}
	n1 = n1.Restarted()
	n1.Run()
	n1.WaitReady()
	n2 = n2.Restarted("--peers", peers)
	n2.Run()
	if code := n2.Wait(); code != exitRuntime || !strings.Contains(n2.Log(), "the node at "+n1.PeerAddr) || !strings.Contains(n2.Log(), "a cluster without this node") {
		t.Errorf("a founder beside a cluster: exit code %d:\n%s", code, n2.Log())
	}
}

// TestJoinRefused: if a new node can never join, it ends with one clear line.
func TestJoinRefused(t *testing.T) {
	n1 := nodes.Start(t, 1)[0]
	clash := nodes.Newcomer(t, "n1", []*nodes.Node{n1})
	clash.Run()
	if code := clash.Wait(); code != exitRuntime || !strings.Contains(clash.Log(), "lockstep remove n1") {
		t.Errorf("an id that is taken: exit code %d:\n%s", code, clash.Log())
	}
	lost := nodes.Newcomer(t, "n2", []*nodes.Node{n1}, "--peer-advertise", "127.0.0.1:1")
	lost.Run()
	// That address may lead to the new node later, so the new node goes on asking.
	until(t, "a word on the address", func() bool { return strings.Contains(lost.Log(), "--peer-advertise") })
	until(t, "its asking", func() bool { return readyz(t, lost) == "not a member yet" })
	lost.Kill()
	refused(t, exitUsage, []string{"--ephemeral", "--join"}, "--ephemeral", "--join", n1.PeerAddr)
	refused(t, exitUsage, []string{"--join", "--peers"}, "--join", n1.PeerAddr, "--peers", "n1=127.0.0.1:7379")
	refused(t, exitUsage, []string{"--peer-advertise"}, "--join", n1.PeerAddr, "--peer-listen", "0.0.0.0:7399")
	// A node has asked to join, but has never become a member. It does not begin a cluster of its own with its directory.
	waits := nodes.Newcomer(t, "n3", []*nodes.Node{{PeerAddr: ports.Addrs(t, 1)[0]}})
	waits.Run()
	until(t, "its asking", func() bool { return readyz(t, waits) == "not a member yet" })
	waits.Kill()
	free := ports.Addrs(t, 2)
	refused(t, exitRuntime, []string{"not become a member yet", "--join"},
		"--id", "n3", "--data", waits.Data, "--listen", free[0], "--peer-listen", free[1], "--http-listen", "")
}

// TestAdminNeedsThePassword: the administration commands need the password as all commands do.
func TestAdminNeedsThePassword(t *testing.T) {
	n := nodes.Start(t, 1, "--requirepass", "secret")[0]
	for _, args := range [][]string{{"add", "n2", "127.0.0.1:1"}, {"remove", "n2"}} {
		if code, out := n.Admin(args[0], args[1:]...); code != exitRuntime || !strings.Contains(out, "NOAUTH") || !strings.Contains(out, "--requirepass") {
			t.Errorf("%v without the password: exit code %d: %s", args, code, out)
		}
	}
	if code, out := n.Admin("remove", "--requirepass", "secret", "n2"); code != exitOK || !strings.Contains(out, "n2 is no member") {
		t.Errorf("with the password: exit code %d: %s", code, out)
	}
}

// TestFlagsBehindArguments: flags may stand behind the arguments, as in docs/operations.md. They override the environment, as flags
// before the arguments do.
func TestFlagsBehindArguments(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	t.Setenv("LOCKSTEP_ADDR", ports.Addrs(t, 1)[0])
	for _, args := range [][]string{
		{"remove", "n3", "--addr", n.Addr}, {"remove", "--addr", n.Addr, "n3"}, {"transfer", "n3", "--addr", n.Addr},
	} {
		out, err := exec.Command(nodes.Binary(t), args...).CombinedOutput()
		if said := string(out); (err != nil) != (args[0] == "transfer") || !strings.Contains(said, "n3 is no member") && !strings.Contains(said, "member has that id") {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
	file := filepath.Join(t.TempDir(), "locks.backup")
	for _, args := range [][]string{{"backup", "--addr", n.Addr, file}, {"backup", file + "2", "--addr", n.Addr}} {
		if out, err := exec.Command(nodes.Binary(t), args...).CombinedOutput(); err != nil || !strings.Contains(string(out), "is whole") {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
}

// handovers is how often TestTransferPause transfers the leadership.
const handovers = 6

// TestTransferPause: while leadership is transferred again and again, clients see a pause and no error, and no request is executed
// twice.
func TestTransferPause(t *testing.T) {
	list := nodes.Start(t, 3)
	var (
		stop    atomic.Bool
		clients sync.WaitGroup
		counts  [6]int64
		longest [6]time.Duration
	)
	for w := range 6 {
		c := list[w%3].Dial()
		clients.Go(func() {
			for !stop.Load() {
				began := time.Now()
				got, err := c.Do("INCR", fmt.Sprint("counter", w))
				if err != nil {
					t.Errorf("client %d: %v", w, err)
					return
				}
				if counts[w]++; got != counts[w] {
					t.Errorf("client %d: INCR number %d gave %v", w, counts[w], got)
					return
				}
				longest[w] = max(longest[w], time.Since(began))
			}
		})
	}
	for range handovers {
		time.Sleep(200 * time.Millisecond) // time for some load between two transfers
		leader := nodes.Leader(list)
		if leader == nil {
			continue
		}
		administered(t, leader, "transfer")
	}
	time.Sleep(200 * time.Millisecond)
	stop.Store(true)
	clients.Wait()
	var requests int64
	for _, c := range counts {
		requests += c
	}
	t.Logf("%d transfers, %d requests, longest wait of each client %v", handovers, requests, longest)
	waitEqual(t, list)
}

// TestJoinWithDataOfItsOwn: a node that has been a cluster by itself does not join another one, whose locks it would grant.
func TestJoinWithDataOfItsOwn(t *testing.T) {
	list := nodes.Start(t, 1)
	dir := t.TempDir()
	addrs := ports.Addrs(t, 2)
	start := func(id string, flags ...string) (string, error) {
		args := append([]string{"--id", id, "--data", dir, "--listen", addrs[0], "--peer-listen", addrs[1], "--http-listen", ""}, flags...)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, nodes.Binary(t), args...)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, id := range []string{"n2", "n1"} { // list[0] is n1, too
		dir = t.TempDir()
		if out, _ := start(id); !strings.Contains(out, "Ready to accept connections") {
			t.Fatalf("alone: %s", out)
		}
		if out, err := start(id, "--join", list[0].PeerAddr); err == nil || !strings.Contains(out, "empty directory to join") || strings.Contains(out, "Ready") {
			t.Errorf("%s with --join: %v, %s", id, err, out)
		}
		if out, _ := start(id, "--join", addrs[0]); !strings.Contains(out, "Ready to accept connections") {
			t.Errorf("%s with --join of nobody: %s", id, out)
		}
	}
}

// TestFoundersBesideACluster: nodes do not found a cluster if a node in their --peers already belongs to another one.
func TestFoundersBesideACluster(t *testing.T) {
	n1 := nodes.Start(t, 1)[0]
	addrs := ports.Addrs(t, 4)
	peers := fmt.Sprintf("n1=%s,n2=%s,n3=%s", n1.PeerAddr, addrs[0], addrs[1])
	for i, id := range []string{"n2", "n3"} {
		refused(t, exitRuntime, []string{n1.PeerAddr, "a cluster without this node", "--join"},
			"--id", id, "--data", t.TempDir(), "--listen", addrs[2+i], "--peer-listen", addrs[i], "--http-listen", "", "--peers", peers)
	}
}

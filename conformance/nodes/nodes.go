// Package nodes runs real lockstep processes for tests: it starts, kills, restarts and asks them.
package nodes

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/environ"
	"github.com/lockstep-io/lockstep/conformance/ports"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// readyTimeout is how long a node may take to become ready. It is far longer than a node needs, because a machine may be under
// load.
const readyTimeout = 30 * time.Second

var built struct {
	sync.Once
	path string
	err  error
}

var given = os.Getenv("LOCKSTEP_BINARY")

// Binary returns the path of the program under test: $LOCKSTEP_BINARY, or a program built from this tree.
func Binary(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		if built.path = given; built.path != "" {
			return
		}
		dir, err := os.MkdirTemp("", "lockstep-test")
		if err != nil {
			built.err = err
			return
		}
		built.path = filepath.Join(dir, "lockstep")
		// The caller may be the benchmark, a module whose dependencies may have other versions. So the program is built in
		// lockstep's own module.
		tree, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/lockstep-io/lockstep").Output()
		if err != nil {
			built.err = fmt.Errorf("where is the source? %w", err)
			return
		}
		build := exec.Command("go", "-C", strings.TrimSpace(string(tree)), "build", "-o", built.path, "./cmd/lockstep")
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // releases are built without cgo
		out, err := build.CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

// Node is a lockstep process, or the place for one that is not started yet.
type Node struct {
	ID       string
	Addr     string // RESP
	PeerAddr string
	HTTPAddr string
	Data     string
	Program  string // what Run starts; the program under test if this is empty

	// These are the listeners for Sentinel and Cluster clients. They are empty unless StartDiscoverable started the node.
	SentinelAddr, ClusterAddr string
	// These are the client ports that speak TLS. They are empty unless StartSecret started the node.
	TLSAddr, TLSSentinelAddr, TLSClusterAddr string

	t    testing.TB
	args []string
	// within is a program with its first arguments. The node's command follows these as further arguments, and the program runs it.
	within []string
	cmd    *exec.Cmd
	log    *os.File
	done   chan struct{}
}

// Setup says how nodes are started.
type Setup struct {
	Flags   []string // additional flags of all nodes
	Program string   // that of all nodes, as in Node
	// Front, unless nil, returns another address for a node's peer port, so that something can listen in between.
	Front func(id, peerAddr string) string
	// Within returns a program and its first arguments; the node's command follows as further arguments. It may be nil.
	Within func(id string) []string

	own int                            // how many more addresses each node has …
	of  func(*Node, []string) []string // … and the function that returns the flags for them
}

// Start starts n nodes with additional flags, and waits until all are ready. The nodes end with the test.
func Start(t testing.TB, n int, flags ...string) []*Node {
	t.Helper()
	return StartSetup(t, n, Setup{Flags: flags})
}

// StartSetup does what Start does, for nodes that need more than flags.
func StartSetup(t testing.TB, n int, setup Setup) []*Node {
	t.Helper()
	dir, addrs := t.TempDir(), ports.Addrs(t, (3+setup.own)*n)
	list := make([]*Node, n)
	var peers []string
	for i := range list {
		id := fmt.Sprintf("n%d", i+1)
		list[i] = &Node{ID: id, Addr: addrs[3*i], PeerAddr: addrs[3*i+1], HTTPAddr: addrs[3*i+2],
			Data: filepath.Join(dir, id), Program: setup.Program, t: t}
		if setup.Within != nil {
			list[i].within = setup.Within(id)
		}
		reached := list[i].PeerAddr
		if setup.Front != nil {
			reached = setup.Front(id, reached)
		}
		peers = append(peers, id+"="+reached)
	}
	for i, node := range list {
		node.args = append([]string{"serve", "--id", node.ID, "--data", node.Data, "--listen", node.Addr,
			"--peer-listen", node.PeerAddr, "--http-listen", node.HTTPAddr}, setup.Flags...)
		if setup.of != nil {
			node.args = append(node.args, setup.of(node, addrs[3*n+setup.own*i:])...)
		}
		if n > 1 {
			node.args = append(node.args, "--peers", strings.Join(peers, ","))
		}
		node.Run()
	}
	t.Cleanup(func() { // runs before the nodes are ended
		for _, node := range list {
			if t.Failed() {
				node.tellEnd()
			}
		}
	})
	for _, node := range list {
		node.WaitReady()
	}
	return list
}

// tellEnd writes the end of the node's log, and whether the process has ended, into the log of the test.
func (n *Node) tellEnd() {
	state := "runs"
	if n.Ended() {
		state = "has ended, " + n.HowEnded()
	}
	text := n.Log()
	n.t.Logf("%s %s; it says:\n%s", n.ID, state, text[max(0, len(text)-2000):])
}

// Run starts the process, with the same arguments every time.
func (n *Node) Run() {
	n.t.Helper()
	log, err := os.OpenFile(n.Data+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	program := n.Program
	if program == "" {
		program = Binary(n.t)
	}
	command := append(append(slices.Clone(n.within), program), n.args...)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, environ.Environ()
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		log.Close()
		close(done)
	}()
	n.cmd, n.log, n.done = cmd, log, done
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
	})
}

// Process returns the running process.
func (n *Node) Process() *os.Process { return n.cmd.Process }

// Ended reports whether the process has ended.
func (n *Node) Ended() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// HowEnded says how a process ended. The process must have ended.
func (n *Node) HowEnded() string {
	<-n.done
	return n.cmd.ProcessState.String()
}

// Kill ends the process as kill -9 does.
func (n *Node) Kill() {
	_ = n.cmd.Process.Kill() // an error means that it has ended already
	<-n.done
}

// Terminate ends the process by SIGINT, which a node handles as SIGTERM, and returns its exit code.
func (n *Node) Terminate() int {
	n.t.Helper()
	if err := n.cmd.Process.Signal(os.Interrupt); err != nil {
		n.t.Fatal(err)
	}
	<-n.done
	return n.cmd.ProcessState.ExitCode()
}

// anybody is an HTTP client that accepts whatever certificate a node shows.
var anybody = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

// WaitReady waits until the node says that it is ready.
func (n *Node) WaitReady() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	url := "http://" + n.HTTPAddr + "/readyz"
	if slices.Contains(n.args, "--http-tls") {
		url = "https://" + n.HTTPAddr + "/readyz"
	}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			n.t.Fatal(err)
		}
		if resp, err := anybody.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-ctx.Done():
			n.t.Fatalf("%s is not ready after %v:\n%s", n.ID, readyTimeout, n.Log())
		case <-n.done:
			n.t.Fatalf("%s has ended:\n%s", n.ID, n.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Log returns what the node has written to its log.
func (n *Node) Log() string {
	b, err := os.ReadFile(n.Data + ".log")
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Dial connects to the node.
func (n *Node) Dial() *respclient.Conn {
	n.t.Helper()
	c, err := respclient.Dial(n.Addr, 5*time.Second)
	if err != nil {
		n.t.Fatalf("%s: %v", n.ID, err)
	}
	n.t.Cleanup(func() { c.Close() })
	return c
}

// Do sends one command over a new connection.
func (n *Node) Do(args ...string) (any, error) {
	c, err := respclient.Dial(n.Addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(args...)
}

// SendRaw sends bytes over a new connection. It reads until the node closes the connection or sends nothing for a while.
func (n *Node) SendRaw(raw string) error {
	conn, err := net.DialTimeout("tcp", n.Addr, 5*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	silence := time.AfterFunc(500*time.Millisecond, func() { conn.Close() })
	defer silence.Stop()
	// A node may close the connection before it has read everything.
	if _, err := conn.Write([]byte(raw)); err != nil {
		return nil
	}
	_, _ = io.Copy(io.Discard, conn)
	return nil
}

// Status returns what `lockstep status` shows.
func (n *Node) Status() (map[string]string, error) {
	reply, err := n.Do("LOCKSTEP", "STATUS")
	if err != nil {
		return nil, err
	}
	return respclient.Pairs(reply)
}

// Leader returns the node that leads. If no node leads, it waits up to ten seconds for one, and then returns nil.
func Leader(list []*Node) *Node {
	for range 100 {
		for _, n := range list {
			if st, err := n.Status(); err == nil && st["role"] == "leader" {
				return n
			}
		}
		time.Sleep(100 * time.Millisecond) // between two leaders, no node leads for a moment
	}
	return nil
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/conformance/environ"
	"github.com/lockstep-io/lockstep/server/respclient"
)

const (
	dialTimeout  = 10 * time.Second
	readyTimeout = 2 * time.Minute
)

// cluster has the nodes under test.
type cluster struct {
	plan  *plan
	nodes []*node
}

// node is a node that runs as a process.
type node struct {
	id, addr, http, log string
	args                []string
	cmd                 *exec.Cmd
	bin                 string
}

func newCluster(p *plan) *cluster {
	c := &cluster{plan: p}
	var peers []string
	for i := range p.nodes {
		peers = append(peers, fmt.Sprintf("n%d=%s", i+1, p.peerAddr(i)))
	}
	for i := range p.nodes {
		c.nodes = append(c.nodes, p.node(i, "--peers", strings.Join(peers, ",")))
	}
	return c
}

func (p *plan) at(i int) string       { return fmt.Sprintf("127.0.0.1:%d", p.port+i) }
func (p *plan) peerAddr(i int) string { return p.at(3*i + 1) }

// node describes the i-th node. It does not start the node.
func (p *plan) node(i int, flags ...string) *node {
	n := &node{id: fmt.Sprintf("n%d", i+1), addr: p.at(3 * i), http: p.at(3*i + 2), bin: p.server}
	n.log = filepath.Join(p.dir, n.id+".log")
	n.args = append([]string{"--id", n.id, "--data", filepath.Join(p.dir, n.id), "--listen", n.addr, "--peer-listen", p.peerAddr(i),
		"--http-listen", n.http, "--log-level", "debug"}, flags...)
	return n
}

func (c *cluster) start() error {
	for _, n := range c.nodes {
		if err := n.start(); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := n.ready(); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) kill() {
	for _, n := range c.nodes {
		n.kill()
	}
}

func (n *node) start() error {
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	n.cmd = exec.Command(n.bin, n.args...)
	n.cmd.Stdout, n.cmd.Stderr, n.cmd.Env = log, log, environ.Environ()
	return n.cmd.Start()
}

// kill ends the process as kill -9 does.
func (n *node) kill() {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill() // fails if the process has ended already
	_ = n.cmd.Wait()         // the exit status says nothing
	n.cmd = nil
}

// ready waits until the node serves.
func (n *node) ready() error {
	for end := time.Now().Add(readyTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		resp, err := http.Get("http://" + n.http + "/readyz")
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
	}
	return fmt.Errorf("%s is not ready after %v; see %s", n.id, readyTimeout, n.log)
}

// installs counts the snapshots that the node has received.
func (n *node) installs() int {
	b, err := os.ReadFile(n.log)
	if err != nil {
		return 0
	}
	return bytes.Count(b, []byte("Installed remote snapshot"))
}

func (n *node) do(args ...string) (any, error) {
	c, err := respclient.Dial(n.addr, dialTimeout)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(args...)
}

func (n *node) ask(args ...string) error {
	_, err := n.do(args...)
	return err
}

// size returns the number of locks on the node.
func (n *node) size() (int64, error) {
	got, err := n.do("DBSIZE")
	size, _ := got.(int64)
	return size, err
}

// metric reads a figure of /metrics. Reading it takes next to no time from the node.
func (n *node) metric(name string) (value uint64, err error) {
	resp, err := http.Get("http://" + n.http + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		return 0, err
	}
	for line := range strings.Lines(b.String()) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			_, err := fmt.Sscan(rest, &value)
			return value, err
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}

func (c *cluster) leader() (*node, error) {
	for end := time.Now().Add(readyTimeout); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		for _, n := range c.nodes {
			if n.cmd == nil {
				continue
			}
			if leads, err := n.metric("lockstep_is_leader"); err == nil && leads == 1 {
				return n, nil
			}
		}
	}
	return nil, errors.New("there is no leader")
}

// caughtUp waits until a node has applied every entry that the leader has at the call.
func (c *cluster) caughtUp(n, leader *node) error {
	want, err := leader.metric("lockstep_applied_index")
	if err != nil {
		return err
	}
	for end := time.Now().Add(readyTimeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if got, err := n.metric("lockstep_applied_index"); err == nil && got >= want {
			return nil
		}
	}
	return fmt.Errorf("%s does not catch up", n.id)
}

// fill creates the locks, many of them in one write.
func (c *cluster) fill() error {
	const connections, batch = 4, 500
	leader, err := c.leader()
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	faults := make(chan error, connections)
	for w := range connections {
		work.Go(func() { faults <- fillPart(leader.addr, w, connections, c.plan.locks, batch) })
	}
	work.Wait()
	close(faults)
	for err := range faults {
		if err != nil {
			return err
		}
	}
	return nil
}

func fillPart(addr string, from, step, locks, batch int) error {
	conn, err := respclient.Dial(addr, dialTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	for i := from; i < locks; {
		sent := 0
		for ; sent < batch && i < locks; sent, i = sent+1, i+step {
			if err := conn.Send("SET", fmt.Sprintf("held:%d", i), fmt.Sprintf("owner-%d", i), "NX", "PX", "3600000"); err != nil {
				return err
			}
		}
		for range sent {
			if got, err := conn.Receive(); err != nil || got != "OK" {
				return fmt.Errorf("load: %v, %w", got, err)
			}
		}
	}
	return nil
}

// trailing is how many of the entries that a snapshot includes stay in a node's log.
const trailing = 10_000

// outgrow writes entries and makes snapshots until the log alone can no longer bring a member up to date.
func (c *cluster) outgrow(leader *node) error {
	for range 2 {
		if err := leader.grow(trailing/2 + 500); err != nil {
			return err
		}
		if err := leader.ask("LOCKSTEP", "SNAPSHOT"); err != nil {
			return err
		}
	}
	if err := leader.grow(trailing + 1000); err != nil {
		return err
	}
	return leader.ask("LOCKSTEP", "SNAPSHOT")
}

// grow writes a number of entries, one after the other.
func (n *node) grow(entries uint64) error {
	from, err := n.metric("lockstep_applied_index")
	if err != nil {
		return err
	}
	conn, err := respclient.Dial(n.addr, dialTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	for {
		for range 500 {
			if _, err := conn.Do("INCR", "entries"); err != nil {
				return err
			}
		}
		at, err := n.metric("lockstep_applied_index")
		if err != nil || at >= from+entries {
			return err
		}
	}
}

// Command record writes the answers of a real redis-sentinel and a real Redis Cluster into conformance/discovery/testdata.
// Run it from the module's root; redis-server 7.0.15 must be on PATH. It takes half a minute.
//
//	go run ./conformance/discovery/record
package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/conformance/discovery"
	"github.com/lockstep-io/lockstep/conformance/transcript"
	"github.com/lockstep-io/lockstep/conformance/transcript/redisd"
)

const testdata = "conformance/discovery/testdata"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func run() error {
	bin, version, err := redisd.Find()
	if err != nil {
		return err
	}
	if version != redisd.Version {
		return fmt.Errorf("answers are recorded from redis-server %s only, not from %s", redisd.Version, version)
	}
	dir, err := os.MkdirTemp("", "record")
	if err != nil {
		return err
	}
	r := &recorder{bin: bin, dir: dir}
	err = errors.Join(r.sentinel(), r.cluster())
	for _, stop := range slices.Backward(r.stops) {
		stop()
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// recorder holds the servers that have been started.
type recorder struct {
	bin, dir string
	stops    []func()
}

// node is the address of one server.
type node struct{ host, port string }

func (n node) dial() (net.Conn, error) { return net.Dial("tcp", net.JoinHostPort(n.host, n.port)) }

// ask sends one command and returns the answer. It turns an error reply into an error.
func (n node) ask(words ...string) (transcript.Value, error) {
	conn, err := n.dial()
	if err != nil {
		return transcript.Value{}, err
	}
	defer conn.Close()
	if _, err := conn.Write(transcript.AppendCommand(nil, words...)); err != nil {
		return transcript.Value{}, err
	}
	v, err := transcript.ReadValue(bufio.NewReader(conn))
	if err == nil && v.Type == '-' {
		err = fmt.Errorf("%s: %s", strings.Join(words, " "), v.Text)
	}
	return v, err
}

func (r *recorder) server(settings ...[2]string) (node, error) {
	s, err := redisd.Start(r.bin, settings...)
	if err != nil {
		return node{}, err
	}
	r.stops = append(r.stops, func() {
		if err := s.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "record:", err)
		}
	})
	conn, err := s.Dial()
	if err != nil {
		return node{}, err
	}
	defer conn.Close()
	host, port, err := net.SplitHostPort(conn.RemoteAddr().String())
	return node{host, port}, err
}

// patience is how long a cluster may take to come up.
const patience = 30 * time.Second

// until repeats a question to a node until the answer contains a word.
func until(what string, n node, word string, command ...string) error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		v, err := n.ask(command...)
		if err == nil && strings.Contains(strings.Join(v.Lines(), " "), word) {
			return nil
		}
	}
	return fmt.Errorf("%s did not come about", what)
}

// sentinel records the answers of a Sentinel, and what two Sentinels publish during a failover.
func (r *recorder) sentinel() error {
	var servers []node
	for i := range 3 {
		n, err := r.server()
		if err != nil {
			return err
		}
		servers = append(servers, n)
		if i > 0 {
			if _, err := n.ask("REPLICAOF", servers[0].host, servers[0].port); err != nil {
				return err
			}
		}
	}
	for _, n := range servers[1:] {
		if err := until("replication", n, "master_link_status:up", "INFO", "replication"); err != nil {
			return err
		}
	}
	var watchers []node
	for i := range 3 {
		n, err := r.watcher(i, servers[0])
		if err != nil {
			return err
		}
		watchers = append(watchers, n)
	}
	for _, n := range watchers {
		if err := until("a quorum of Sentinels", n, "slaves=2,sentinels=3", "INFO", "sentinel"); err != nil {
			return err
		}
	}
	if err := record("sentinel", watchers[0], discovery.Sentinel); err != nil {
		return err
	}
	return recordFailover(watchers)
}

func (r *recorder) watcher(i int, master node) (node, error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return node{}, err
	}
	port := strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
	if err := free.Close(); err != nil {
		return node{}, err
	}
	dir := filepath.Join(r.dir, "sentinel"+strconv.Itoa(i))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return node{}, err
	}
	conf := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("bind 127.0.0.1\nport %s\ndir %s\nsentinel monitor mymaster %s %s 2\nsentinel down-after-milliseconds mymaster 5000\n", port, dir, master.host, master.port)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return node{}, err
	}
	cmd := exec.Command(r.bin, conf, "--sentinel")
	if err := cmd.Start(); err != nil {
		return node{}, err
	}
	r.stops = append(r.stops, func() {
		if err := cmd.Process.Kill(); err != nil {
			fmt.Fprintln(os.Stderr, "record:", err)
		}
		_ = cmd.Wait() // the error says that the process was killed
	})
	return node{"127.0.0.1", port}, nil
}

// recordFailover records the events of two Sentinels: of the one that carries out a failover, and of one that learns of it.
func recordFailover(watchers []node) error {
	var files [][]string
	var conns []net.Conn
	for _, n := range watchers[:2] {
		conn, err := n.dial()
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write(transcript.AppendCommand(nil, "PSUBSCRIBE", "*")); err != nil {
			return err
		}
		conns = append(conns, conn)
	}
	if _, err := watchers[0].ask("SENTINEL", "FAILOVER", "mymaster"); err != nil {
		return err
	}
	for i, conn := range conns {
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			return err
		}
		in, slaves := bufio.NewReader(conn), 0
		files = append(files, nil)
		for slaves < 2 {
			v, err := transcript.ReadValue(in)
			if err != nil {
				return fmt.Errorf("events: %w", err)
			}
			if len(v.Elems) < 4 {
				continue // the confirmation of the subscription
			}
			files[i] = append(files[i], v.Elems[2].Text+" "+discovery.Plain(v.Elems[3].Text))
			if v.Elems[2].Text == "+slave" {
				slaves++
			}
		}
	}
	return errors.Join(write("events-promoting", files[0]), write("events-learning", files[1]))
}

// cluster records the answers of two nodes of a Redis Cluster: the one that has all slots, and a replica.
func (r *recorder) cluster() error {
	var nodes []node
	for range 3 {
		bus, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		port := strconv.Itoa(bus.Addr().(*net.TCPAddr).Port)
		if err := bus.Close(); err != nil {
			return err
		}
		n, err := r.server([2]string{"cluster-enabled", "yes"}, [2]string{"cluster-node-timeout", "2000"}, [2]string{"cluster-port", port})
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
		if len(nodes) > 1 {
			if _, err := n.ask("CLUSTER", "MEET", nodes[0].host, nodes[0].port, busOf(nodes[0])); err != nil {
				return err
			}
		}
	}
	owner := nodes[0]
	if _, err := owner.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383"); err != nil {
		return err
	}
	id, err := owner.ask("CLUSTER", "MYID")
	if err != nil {
		return err
	}
	for _, n := range nodes[1:] {
		if err := until("a meeting", n, id.Text, "CLUSTER", "NODES"); err != nil {
			return err
		}
		if _, err := n.ask("CLUSTER", "REPLICATE", id.Text); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		if err := until("a cluster", n, "cluster_state:ok", "CLUSTER", "INFO"); err != nil {
			return err
		}
	}
	for _, n := range nodes[1:] {
		if err := until("replication", n, "master_link_status:up", "INFO", "replication"); err != nil {
			return err
		}
	}
	// Only the next ping tells the owner of the slots that its replicas are online.
	for _, n := range nodes {
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
			v, err := n.ask("CLUSTER", "SLOTS")
			if err == nil && len(v.Elems) == 1 && len(v.Elems[0].Elems) == 5 {
				break
			}
		}
	}
	return errors.Join(record("cluster", owner, discovery.Cluster), record("replica", nodes[1], discovery.Replica))
}

// busOf asks a node for its cluster bus port.
func busOf(n node) string {
	v, err := n.ask("CONFIG", "GET", "cluster-port")
	if err != nil || len(v.Elems) != 2 {
		return "0"
	}
	return v.Elems[1].Text
}

// record asks the questions over both protocols and writes the answers.
func record(name string, n node, questions []string) error {
	for _, resp := range []string{"2", "3"} {
		conn, err := n.dial()
		if err != nil {
			return err
		}
		lines, err := discovery.Ask(conn, resp, questions)
		if err := errors.Join(err, conn.Close()); err != nil {
			return err
		}
		if err := write(name+"-resp"+resp, lines); err != nil {
			return err
		}
	}
	return nil
}

func write(name string, lines []string) error {
	return os.WriteFile(filepath.Join(testdata, name+".txt"), []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

package server

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/conformance/discovery"
	"github.com/lockstep-io/lockstep/conformance/transcript"
	"github.com/lockstep-io/lockstep/store"
)

// face serves another listener of a test server and returns its address.
func (ts *testServer) face(t testing.TB, srv *Server, face Face) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.ServeAs(ln, face, false) }()
	t.Cleanup(func() {
		if err := srv.Shutdown(t.Context()); err != nil && t.Context().Err() == nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return ln.Addr().String()
}

// sentinel starts a Sentinel beside a test server.
func (ts *testServer) sentinel(t testing.TB) string {
	t.Helper()
	return ts.face(t, NewSentinel(ts.cfg, ts.fake, "mymaster", false), FacePlain)
}

func dialTo(t *testing.T, addr string) *client {
	t.Helper()
	return (&testServer{t: t, addr: addr}).dial(t)
}

// golden reads a recording of the answers of a real server.
func golden(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "conformance", "discovery", "testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// exchanges splits a recording into questions with their answers.
func exchanges(lines []string) (list [][]string) {
	for _, line := range lines {
		if strings.HasPrefix(line, "> ") {
			list = append(list, nil)
		}
		list[len(list)-1] = append(list[len(list)-1], line)
	}
	return list
}

// TestAnswersOfRealServers asks the questions of recordings of real servers. The answers must have the same shape as the
// recorded ones, and errors the same text.
func TestAnswersOfRealServers(t *testing.T) {
	ts := newTestServer(t, nil)
	sentinel, node := ts.sentinel(t), ts.face(t, ts.Server, FaceCluster)
	for _, c := range []struct {
		name, addr, leader string
		questions          []string
	}{
		{"sentinel", sentinel, "n1", discovery.Sentinel},
		{"cluster", node, "n1", discovery.Cluster},
		{"replica", node, "n2", discovery.Replica},
	} {
		for _, resp := range []string{"2", "3"} {
			t.Run(c.name+"-resp"+resp, func(t *testing.T) {
				ts.fake.elect(c.leader, ts.fake.topology.Load().Node(c.leader).Plain)
				got, err := discovery.Ask(dialTo(t, c.addr).conn, resp, c.questions)
				if err != nil {
					t.Fatal(err)
				}
				want := exchanges(golden(t, c.name+"-resp"+resp))
				for i, g := range exchanges(got) {
					if !slices.Equal(g, want[i]) {
						t.Errorf("got\n%s\nwant\n%s", strings.Join(g, "\n"), strings.Join(want[i], "\n"))
					}
				}
			})
		}
	}
}

// events reads what a Sentinel publishes, up to the last +slave of a failover.
func (c *client) events(slaves int) (list []string) {
	c.t.Helper()
	deadline := time.AfterFunc(10*time.Second, func() { _ = c.conn.Close() })
	defer deadline.Stop()
	in := bufio.NewReader(c.conn)
	for slaves > 0 {
		v, err := transcript.ReadValue(in)
		if err != nil {
			c.t.Fatalf("%v after %q", err, list)
		}
		if len(v.Elems) < 4 {
			continue
		}
		list = append(list, v.Elems[2].Text+" "+v.Elems[3].Text)
		if v.Elems[2].Text == "+slave" {
			slaves--
		}
	}
	return list
}

// TestEventsOfFailover compares the events of a failover with those of two real Sentinels: one that
// carried it out, and one that learned of it.
func TestEventsOfFailover(t *testing.T) {
	for _, c := range []struct{ name, from, to string }{
		{"events-promoting", "n2", "n1"},
		{"events-learning", "n1", "n2"},
	} {
		for _, resp := range []string{"2", "3"} {
			t.Run(c.name+"-resp"+resp, func(t *testing.T) {
				ts := newTestServer(t, nil)
				ts.fake.become(fakeTopology(c.from))
				sub := dialTo(t, ts.sentinel(t))
				sub.ask("HELLO", resp)
				sub.ask("PSUBSCRIBE", "*")
				next := fakeTopology(c.to)
				next.Term++
				ts.fake.become(next)
				got := sub.events(2)
				want := slices.DeleteFunc(golden(t, c.name), func(e string) bool {
					// The promoted replica reports this event about itself. A Sentinel here asks no replica.
					return strings.HasPrefix(e, "-role-change")
				})
				for i := range got {
					if name, payload, _ := strings.Cut(got[i], " "); i >= len(want) || name+" "+discovery.Plain(payload) != want[i] {
						t.Errorf("event %d is %q, want the like of %q", i, got[i], want[min(i, len(want)-1)])
					}
				}
				if len(got) < len(want) {
					t.Errorf("got %q, want the like of %q", got, want)
				}
			})
		}
	}
}

// TestSwitchMaster checks the payload of +switch-master, by which clients find the new master.
func TestSwitchMaster(t *testing.T) {
	ts := newTestServer(t, nil)
	addr := ts.sentinel(t)
	sub, ask := dialTo(t, addr), dialTo(t, addr)
	ask.do("SENTINEL get-master-addr-by-name mymaster", "*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n")
	sub.ask("SUBSCRIBE", "+switch-master")
	// While nobody leads, the master is the last leader.
	nobody := fakeTopology("")
	nobody.Last = "n1"
	ts.fake.become(nobody)
	ask.do("SENTINEL get-master-addr-by-name mymaster", "*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n")
	// A Sentinel cannot name a leader whose address it does not know yet. It publishes the event when it knows the address.
	silent := fakeTopology("n3")
	silent.Nodes = silent.Nodes[:2]
	ts.fake.become(silent)
	ask.do("SENTINEL get-master-addr-by-name mymaster", "*-1\r\n")
	ts.fake.become(fakeTopology("n3"))
	payload := "mymaster 127.0.0.1 6379 127.0.0.1 6381"
	sub.expect("*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n" + bulk(payload))
	ask.do("SENTINEL get-master-addr-by-name mymaster", "*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6381\r\n")
}

// traitsOf returns the fields of a description in RESP2.
func traitsOf(v transcript.Value) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(v.Elems); i += 2 {
		m[v.Elems[i].Text] = v.Elems[i+1].Text
	}
	return m
}

// down marks some nodes of a cluster as silent for three seconds, and returns the cluster.
func down(t *cluster.Topology, ids ...string) *cluster.Topology {
	for _, id := range ids {
		n := t.Node(id)
		n.Up, n.Silence = false, 3*time.Second
	}
	return t
}

// TestNodesDown checks the flags and the events of nodes that are down.
func TestNodesDown(t *testing.T) {
	ts := newTestServer(t, nil)
	addr := ts.sentinel(t)
	sub, ask := dialTo(t, addr), dialTo(t, addr)
	sub.ask("PSUBSCRIBE", "[-+][so]down")
	said := func(channel, payload string) {
		t.Helper()
		sub.expect("*4\r\n$8\r\npmessage\r\n$12\r\n[-+][so]down\r\n" + bulk(channel) + bulk(payload))
	}
	ts.fake.become(down(fakeTopology("n1"), "n3"))
	said("+sdown", "slave 127.0.0.1:6381 127.0.0.1 6381 @ mymaster 127.0.0.1 6379")
	said("+sdown", "sentinel "+sentinelName("n3")+" 127.0.0.1 26381 @ mymaster 127.0.0.1 6379")
	list := ask.ask("SENTINEL", "REPLICAS", "mymaster").Elems
	if up, gone := traitsOf(list[0]), traitsOf(list[1]); up["flags"] != "slave" || up["s-down-time"] != "" ||
		gone["flags"] != "s_down,slave,disconnected" || gone["s-down-time"] != "2000" || gone["master-link-status"] != "err" {
		t.Errorf("replicas: %v, %v", up, gone)
	}
	peers := ask.ask("SENTINEL", "SENTINELS", "mymaster").Elems
	if flags := traitsOf(peers[1])["flags"]; flags != "s_down,sentinel,disconnected" {
		t.Errorf("a Sentinel that is down has the flags %q", flags)
	}
	ts.fake.become(fakeTopology("n1"))
	said("-sdown", "slave 127.0.0.1:6381 127.0.0.1 6381 @ mymaster 127.0.0.1 6379")
	said("-sdown", "sentinel "+sentinelName("n3")+" 127.0.0.1 26381 @ mymaster 127.0.0.1 6379")

	// The master goes down, and a majority sees this.
	gone := down(fakeTopology(""), "n2")
	gone.Last = "n2"
	before := fakeTopology("n2")
	ts.fake.become(before)
	ts.fake.become(gone)
	said("+sdown", "master mymaster 127.0.0.1 6380")
	said("+odown", "master mymaster 127.0.0.1 6380 #quorum 2/2")
	said("+sdown", "sentinel "+sentinelName("n2")+" 127.0.0.1 26380 @ mymaster 127.0.0.1 6380")
	if m := traitsOf(ask.ask("SENTINEL", "MASTER", "mymaster")); m["flags"] != "s_down,o_down,master,disconnected" || m["o-down-time"] != "2000" {
		t.Errorf("master: %v", m)
	}
	if text := ask.ask("INFO", "sentinel").Text; !strings.Contains(text, "status=odown") {
		t.Errorf("INFO sentinel: %s", text)
	}

	// A minority of the nodes cannot tell whether the master is down, or whether they themselves are cut off.
	alone := down(fakeTopology(""), "n2", "n3")
	alone.Last = "n2"
	ts.fake.become(alone)
	if m := traitsOf(ask.ask("SENTINEL", "MASTER", "mymaster")); m["flags"] != "s_down,master,disconnected" {
		t.Errorf("master: %v", m)
	}
	if v := ask.ask("SENTINEL", "CKQUORUM", "mymaster"); !strings.HasPrefix(v.Text, "NOQUORUM 1 usable Sentinels. ") {
		t.Errorf("CKQUORUM: %v", v)
	}
}

// TestClusterWithoutLeader: a node whose leader does not answer names itself as the owner or, if it may be cut off, the last leader.
func TestClusterWithoutLeader(t *testing.T) {
	ts := newTestServer(t, nil)
	c := dialTo(t, ts.face(t, ts.Server, FaceCluster))
	owner := func() string { return c.ask("CLUSTER", "SLOTS").Elems[0].Elems[2].Elems[1].Text }
	ts.fake.become(fakeTopology("n2"))
	c.do("SET foo 1", "-MOVED 12182 127.0.0.1:7002\r\n")
	if got := owner(); got != "7002" {
		t.Errorf("the slots are at %s", got)
	}
	// The connection to the leader is gone, and Raft has not noticed yet.
	ts.fake.unready.Store(true)
	c.do("SET foo 1", "+OK\r\n")
	if got := owner(); got != "7001" {
		t.Errorf("the slots are at %s", got)
	}
	if text := c.ask("CLUSTER", "NODES").Text; !strings.Contains(text, "myself,master") || !strings.Contains(text, "slave,fail") {
		t.Errorf("CLUSTER NODES: %s", text)
	}
	nobody := down(fakeTopology(""), "n2")
	nobody.Last = "n2"
	ts.fake.become(nobody)
	c.do("SET foo 1", "+OK\r\n")
	if text := c.ask("CLUSTER", "INFO").Text; !strings.Contains(text, "cluster_state:ok\r\n") {
		t.Errorf("CLUSTER INFO: %s", text)
	}
	cutOff := down(fakeTopology(""), "n2", "n3")
	cutOff.Last = "n2"
	ts.fake.become(cutOff)
	if got := owner(); got != "7002" {
		t.Errorf("a node that is cut off says that the slots are at %s", got)
	}
	if text := c.ask("CLUSTER", "INFO").Text; !strings.Contains(text, "cluster_state:fail\r\n") {
		t.Errorf("CLUSTER INFO: %s", text)
	}
	// A leader without a Cluster listener has no address to redirect to.
	plain := fakeTopology("n2")
	plain.Node("n2").Cluster = ""
	ts.fake.unready.Store(false)
	ts.fake.become(plain)
	c.do("SET foo 1", "+OK\r\n")
}

// TestPlainKnowsNoCluster: on the plain port the commands answer as a Redis
// without cluster support, so that clients go on in plain mode.
func TestPlainKnowsNoCluster(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	ts.fake.become(fakeTopology("n2"))
	for _, q := range []string{"CLUSTER SLOTS", "CLUSTER NODES", "CLUSTER MYID", "READONLY", "ASKING"} {
		c.do(q, "-ERR This instance has cluster support disabled\r\n")
	}
	c.do("SET foo 1", "+OK\r\n")
	c.do("SELECT 3", "+OK\r\n")
	if v := c.ask("SENTINEL", "MASTERS"); !strings.HasPrefix(v.Text, "ERR unknown command 'SENTINEL'") {
		t.Errorf("SENTINEL MASTERS: %v", v)
	}
}

// TestSlots compares the results of slotOf with slots that Redis has computed (CLUSTER KEYSLOT).
func TestSlots(t *testing.T) {
	for key, want := range map[string]int{"foo": 12182, "foo{bar}": 5061, "bar": 5061, "": 0, "{}foo": 9500, "foo{}{bar}": 8363, "{foo}{bar}": 12182, "a{": 14311, "123456789": 12739} {
		if got := slotOf([]byte(key)); got != want {
			t.Errorf("slot of %q is %d, want %d", key, got, want)
		}
	}
}

// TestAdvertisedEverywhere: for a node that listens on every address, a client
// gets the address at which it has found the node.
func TestAdvertisedEverywhere(t *testing.T) {
	ts := newTestServer(t, nil)
	addr := ts.sentinel(t)
	topology := fakeTopology("n1")
	topology.Node("n1").Plain = "0.0.0.0:6379"
	topology.Node("n2").Plain = "redis-2.example:6379"
	ts.fake.become(topology)
	c := dialTo(t, addr)
	c.do("SENTINEL get-master-addr-by-name mymaster", "*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n")
	if m := traitsOf(c.ask("SENTINEL", "REPLICAS", "mymaster").Elems[0]); m["name"] != "redis-2.example:6379" || m["ip"] != "redis-2.example" {
		t.Errorf("replica: %v", m)
	}
}

// TestMembersCome checks the events for members that join, and for processes that start again.
func TestMembersCome(t *testing.T) {
	ts := newTestServer(t, nil)
	two := fakeTopology("n1")
	two.Nodes = two.Nodes[:2]
	ts.fake.become(two)
	sub := dialTo(t, ts.sentinel(t))
	sub.ask("PSUBSCRIBE", "*")
	said := func(channel, payload string) {
		t.Helper()
		sub.expect("*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n" + bulk(channel) + bulk(payload))
	}
	ts.fake.become(fakeTopology("n1"))
	said("+slave", "slave 127.0.0.1:6381 127.0.0.1 6381 @ mymaster 127.0.0.1 6379")
	said("+sentinel", "sentinel "+sentinelName("n3")+" 127.0.0.1 26381 @ mymaster 127.0.0.1 6379")
	again := fakeTopology("n1")
	again.Node("n2").RunID = strings.Repeat("f", 40)
	ts.fake.become(again)
	said("+reboot", "slave 127.0.0.1:6380 127.0.0.1 6380 @ mymaster 127.0.0.1 6379")
	// The same node leads again, in a later term.
	term := fakeTopology("n1")
	term.Node("n2").RunID = strings.Repeat("f", 40)
	term.Term = 9
	ts.fake.become(term)
	said("+new-epoch", "9")
}

// TestClusterWithoutLoops: a listener decides the mode of Redis that its clients see (Face), also if goroutines serve its
// connections.
func TestClusterWithoutLoops(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.Loops = -1 })
	ts.fake.become(fakeTopology("n2"))
	c := dialTo(t, ts.face(t, ts.Server, FaceCluster))
	c.do("SET foo 1", "-MOVED 12182 127.0.0.1:7002\r\n")
	c.do("READONLY", "+OK\r\n")
	c.do("GET foo", "$-1\r\n")
	c.do("SET foo 1", "-MOVED 12182 127.0.0.1:7002\r\n")
	c.do("RESET", "+RESET\r\n")
	c.do("GET foo", "-MOVED 12182 127.0.0.1:7002\r\n")
	ts.dial(t).do("SET foo 1", "+OK\r\n")
}

// TestFailoversAreFew: a Sentinel begins only one failover at a time, and none within failoverPause after the end of any failover.
func TestFailoversAreFew(t *testing.T) {
	ts := newTestServer(t, nil)
	srv := NewSentinel(ts.cfg, ts.fake, "mymaster", false)
	c, f := dialTo(t, ts.face(t, srv, FacePlain)), &srv.watch.failovers
	reads := func(is func() bool) func() bool {
		return func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return is()
		}
	}
	mayNot := func() {
		t.Helper()
		for range 20 {
			c.do("SENTINEL FAILOVER mymaster", "-"+string(errFailoverBusy)+"\r\n")
		}
	}
	for range 2 {
		c.do("SENTINEL FAILOVER mymaster", "+OK\r\n")
		until(t, "its end", reads(func() bool { return !f.runs }))
		mayNot()
		ts.fake.advance(failoverPause)
	}
	next := fakeTopology("n2")
	next.Term++
	ts.fake.become(next)
	until(t, "the new master", reads(func() bool { return f.ended.Equal(ts.cfg.Clock()) }))
	mayNot()
	ts.fake.advance(failoverPause)
	c.do("SENTINEL FAILOVER mymaster", "+OK\r\n")
}

// TestWhoIsNoMemberNamesNobody: a node that is not a member yet, or that has been removed, names neither itself nor an
// old leader. So clients ask another node.
func TestWhoIsNoMemberNamesNobody(t *testing.T) {
	ts := newTestServer(t, nil)
	sentinel, node := dialTo(t, ts.sentinel(t)), dialTo(t, ts.face(t, ts.Server, FaceCluster))
	questions := []string{"SLOTS", "SHARDS", "NODES", "LINKS", "REPLICAS " + nodeName("n1"), "COUNT-FAILURE-REPORTS " + nodeName("n1")}
	refused := func(why store.Error) {
		t.Helper()
		for _, question := range questions {
			node.do("CLUSTER "+question, "-"+string(why)+"\r\n")
		}
		if info := node.ask("CLUSTER", "INFO").Text; !strings.Contains(info, "cluster_state:fail\r\n") {
			t.Error(info)
		}
		sentinel.do("SENTINEL GET-MASTER-ADDR-BY-NAME mymaster", "*-1\r\n")
		sentinel.do("SENTINEL MASTERS", "*0\r\n")
		for _, question := range []string{"CKQUORUM", "MASTER", "REPLICAS", "SENTINELS", "FAILOVER"} {
			sentinel.do("SENTINEL "+question+" mymaster", "-"+string(errNoMaster)+"\r\n")
		}
		if info := sentinel.ask("INFO", "sentinel").Text; !strings.Contains(info, "sentinel_masters:0\r\n") {
			t.Error(info)
		}
	}
	sentinel.do("SENTINEL CKQUORUM mymaster", "+OK 3 usable Sentinels. Quorum and failover authorization can be reached\r\n")
	ts.fake.removed.Store(true)
	refused(cluster.ErrRemoved)
	ts.fake.removed.Store(false)
	joins := fakeTopology("")
	joins.Members, joins.Nodes = 0, slices.Clone(joins.Nodes[:1])
	joins.Nodes[0].NoVote = true
	ts.fake.become(joins)
	refused(cluster.ErrClusterDown)
}

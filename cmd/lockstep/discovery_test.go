package main

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/conformance/ports"
	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// member is one of three complete nodes that run inside the test, with every kind of listener.
type member struct {
	o     options
	parts *parts
}

func (m *member) stop(t *testing.T) {
	if m.parts == nil {
		return
	}
	p := m.parts
	m.parts = nil
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := p.server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := p.sentinel.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := p.node.Close(); err != nil {
		t.Error(err)
	}
}

// startMembers starts three nodes and waits until each knows all of them.
func startMembers(t *testing.T) []*member {
	t.Helper()
	return startMembersWith(t, 20*time.Second)
}

func startMembersWith(t *testing.T, failoverWait time.Duration, change ...func(*cluster.Config)) []*member {
	t.Helper()
	addrs := ports.Addrs(t, 12)
	peers := fmt.Sprintf("n1=%s,n2=%s,n3=%s", addrs[0], addrs[1], addrs[2])
	dir := t.TempDir()
	var list []*member
	for i := range 3 {
		own := addrs[3+3*i:]
		m := &member{o: options{id: fmt.Sprintf("n%d", i+1), listen: own[0], peerListen: addrs[i], peers: peers,
			sentinelListen: own[1], sentinelAuth: "yes", masterName: "mymaster", clusterListen: own[2],
			data: filepath.Join(dir, fmt.Sprint(i)), protected: "yes", voter: "yes", failoverWait: failoverWait, scriptLimit: 5 * time.Second}}
		cfg, err := m.o.clusterConfig()
		if err != nil {
			t.Fatal(err)
		}
		for _, fn := range change {
			fn(&cfg)
		}
		if m.parts, err = assemble(m.o, cfg, memoryPlan{}, cluster.NewSystemTime(), slog.New(slog.DiscardHandler), func() {}); err != nil {
			t.Fatal(err)
		}
		ended := m.parts.serve()
		t.Cleanup(func() {
			m.stop(t)
			for range 3 {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		})
		list = append(list, m)
	}
	for _, m := range list {
		until(t, "all members", func() bool {
			top := m.parts.node.Topology()
			return len(top.Nodes) == 3 && top.Leader != "" && m.parts.node.Ready()
		})
	}
	return list
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come about", what)
		}
	}
}

// speaker is a connection by which a test sends commands and reads replies in RESP.
type speaker struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func speak(t *testing.T, addr string) *speaker {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &speaker{t, conn, bufio.NewReader(conn)}
}

func (s *speaker) next() transcript.Value {
	s.t.Helper()
	if err := s.conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		s.t.Fatal(err)
	}
	v, err := transcript.ReadValue(s.in)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

func (s *speaker) ask(line string) string {
	s.t.Helper()
	return strings.Join(s.value(line).Lines(), " ")
}

func (s *speaker) value(line string) transcript.Value {
	s.t.Helper()
	s.send(line)
	return s.next()
}

func (s *speaker) send(line string) {
	s.t.Helper()
	if _, err := s.conn.Write(transcript.AppendCommand(nil, strings.Fields(line)...)); err != nil {
		s.t.Fatal(err)
	}
}

// TestDiscoveryThroughTransfer: leadership moves to another node. Every way to find the leader then names the new one, on
// connections that stay open.
func TestDiscoveryThroughTransfer(t *testing.T) {
	list := startMembers(t)
	leader := func() *member {
		id := list[0].parts.node.Topology().Last
		return list[id[1]-'1']
	}
	old := leader()
	var subs []*speaker
	for _, m := range list {
		s := speak(t, m.o.sentinelListen)
		s.ask("SUBSCRIBE +switch-master")
		subs = append(subs, s)
	}
	atOld := speak(t, old.o.clusterListen)
	if got := atOld.ask("SET foo 1"); got != "+OK" {
		t.Fatalf("at the leader: %s", got)
	}
	plain := speak(t, old.o.listen)
	if got := plain.ask("INFO replication"); !strings.Contains(got, `role:master\r\n`) {
		t.Errorf("INFO at the leader: %s", got)
	}
	shard := speak(t, old.o.clusterListen)
	shard.ask("SSUBSCRIBE news")

	// SENTINEL FAILOVER is refused while a failover is in progress, such as a second election at the start.
	until(t, "a failover", func() bool { return speak(t, list[0].o.sentinelListen).ask("SENTINEL FAILOVER mymaster") == "+OK" })
	var event string
	for i, s := range subs {
		v := s.next()
		if payload := v.Elems[2].Text; i > 0 && payload != event {
			t.Errorf("%q and %q: two Sentinels saw different changes", event, payload)
		} else {
			event = payload
		}
	}
	words := strings.Fields(event)
	if was := net.JoinHostPort(words[1], words[2]); words[0] != "mymaster" || was != old.o.listen {
		t.Errorf("+switch-master %q; the leader was at %s", event, old.o.listen)
	}
	now := leader()
	if is := net.JoinHostPort(words[3], words[4]); is != now.o.listen {
		t.Errorf("+switch-master %q; the leader is at %s", event, now.o.listen)
	}
	for _, m := range list {
		host, port, _ := net.SplitHostPort(now.o.listen)
		s := speak(t, m.o.sentinelListen)
		if got, want := s.ask("SENTINEL GET-MASTER-ADDR-BY-NAME mymaster"), fmt.Sprintf(`*2   $"%s"   $"%s"`, host, port); got != want {
			t.Errorf("%s: the master is %s, want %s", m.o.id, got, want)
		}
		if got := s.ask("SENTINEL CKQUORUM mymaster"); got != "+OK 3 usable Sentinels. Quorum and failover authorization can be reached" {
			t.Errorf("%s: %s", m.o.id, got)
		}
	}
	until(t, "the link to the leader", old.parts.node.Ready)
	if got, want := atOld.ask("SET foo 2"), "-MOVED 12182 "+now.o.clusterListen; got != want {
		t.Errorf("at the former leader: %s, want %s", got, want)
	}
	if got := speak(t, now.o.clusterListen).ask("GET foo"); got != `$"1"` {
		t.Errorf("at the leader: %s", got)
	}
	if got := plain.ask("INFO replication"); !strings.Contains(got, `role:slave\r\n`) {
		t.Errorf("INFO at the former leader: %s", got)
	}
	// On its plain port the former leader still serves clients, and its subscribers stay connected.
	if got := plain.ask("SET foo 3"); got != "+OK" {
		t.Errorf("SET at the former leader: %s", got)
	}
	speak(t, now.o.clusterListen).ask("SPUBLISH news moved")
	if v := shard.next(); len(v.Elems) != 3 || v.Elems[2].Text != "moved" {
		t.Errorf("the subscriber got %v", v)
	}
}

// TestWaitAgreesWithInfo: WAIT for the number of replicas in INFO, as Redisson sends it, returns that number, even while a node is
// dead.
func TestWaitAgreesWithInfo(t *testing.T) {
	list := startMembers(t)
	id := list[0].parts.node.Topology().Leader
	for _, m := range list {
		if m.o.id != id {
			m.stop(t)
			break
		}
	}
	for _, m := range list {
		if m.parts == nil {
			continue
		}
		for _, addr := range []string{m.o.listen, m.o.clusterListen} {
			s := speak(t, addr)
			if got := s.ask("INFO replication"); !strings.Contains(got, `connected_slaves:1\r\n`) {
				t.Errorf("%s at %s: %s", m.o.id, addr, got)
			}
			if got := s.ask("WAIT 1 0"); got != ":1" {
				t.Errorf("%s at %s: WAIT 1 0 answers %s", m.o.id, addr, got)
			}
		}
	}
}

// TestClusterThroughCrash: the leader dies. A client of another node's Cluster listener waits for the next leader and then gets
// its answer.
func TestClusterThroughCrash(t *testing.T) {
	list := startMembers(t)
	id := list[0].parts.node.Topology().Leader
	dead := list[id[1]-'1']
	other := list[(id[1]-'1'+1)%3]
	s := speak(t, other.o.clusterListen)
	if got := s.ask("SET foo 1"); !strings.HasPrefix(got, "-MOVED 12182 ") {
		t.Fatalf("at a follower: %s", got)
	}
	dead.stop(t)
	until(t, "the end of the link", func() bool { return !other.parts.node.Ready() || other.parts.node.Topology().Leader != id })
	got := s.ask("SET foo 1")
	if moved := "-MOVED 12182 "; got != "+OK" && (!strings.HasPrefix(got, moved) || strings.HasSuffix(got, dead.o.clusterListen)) {
		t.Errorf("after the death of the leader: %s", got)
	}
}

func TestAdvertised(t *testing.T) {
	for _, c := range []struct {
		given, listen, peers, want string
	}{
		{"", "127.0.0.1:6379", "", "127.0.0.1:6379"},
		{"a:1", "127.0.0.1:6379", "", "a:1"},
		{"a:1", "", "", ""},
		{"", "0.0.0.0:6379", "n1=host-1:7379,n2=host-2:7379", "host-1:6379"},
		{"", ":6379", "n2=host-2:7379,n1=10.0.0.1:7379", "10.0.0.1:6379"},
		{"", "[::]:6379", "n1=[fd00::1]:7379", "[fd00::1]:6379"},
		{"", "0.0.0.0:6379", "", "0.0.0.0:6379"},
	} {
		o := options{id: "n1", peers: c.peers}
		if got := o.advertised(c.given, c.listen); got != c.want {
			t.Errorf("listening on %q, given %q, among %q: %q, want %q", c.listen, c.given, c.peers, got, c.want)
		}
	}
}

func TestDiscoveryFlags(t *testing.T) {
	for _, c := range []struct{ args, words []string }{
		{[]string{"--sentinel-listen", "nonsense"}, []string{"--sentinel-listen", "nonsense"}},
		{[]string{"--cluster-listen", "0.0.0.0:0"}, []string{"--cluster-listen", "--requirepass"}},
		{[]string{"--cluster-advertise", "a:1"}, []string{"--cluster-advertise", "--cluster-listen"}},
		{[]string{"--sentinel-listen", "127.0.0.1:0", "--sentinel-advertise", "a"}, []string{"--sentinel-advertise"}},
		{[]string{"--sentinel-auth", "maybe"}, []string{"--sentinel-auth"}},
		{[]string{"--sentinel-listen", "127.0.0.1:0", "--sentinel-master-name", "a b"}, []string{"--sentinel-master-name"}},
	} {
		refused(t, exitUsage, c.words, c.args...)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	free := ports.Addrs(t, 1)
	refused(t, exitRuntime, []string{"--cluster-listen", ln.Addr().String()}, "--listen", free[0], "--cluster-listen", ln.Addr().String())
}

// TestSentinelAuth: the Sentinel listener asks for the password of the port for data, unless --sentinel-auth is no.
func TestSentinelAuth(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(file, []byte("user default on >secret ~* &* +@read +config\nuser few on >p -@all\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for auth, want := range map[string]string{"yes": "-NOAUTH Authentication required.", "no": "*2 "} {
		addrs := ports.Addrs(t, 2)
		o := options{id: "n1", listen: addrs[0], sentinelListen: addrs[1], sentinelAuth: auth, masterName: "mymaster", password: "secret",
			protected: "yes", voter: "yes", ephemeral: true, failoverWait: time.Second, scriptLimit: time.Second, aclFile: file}
		cfg, err := o.clusterConfig()
		if err != nil {
			t.Fatal(err)
		}
		stopped := false
		p, err := assemble(o, cfg, memoryPlan{}, cluster.NewSystemTime(), slog.New(slog.DiscardHandler), func() { stopped = true })
		if err != nil {
			t.Fatal(err)
		}
		ended := p.serve()
		s := speak(t, o.sentinelListen)
		if got := s.ask("SENTINEL GET-MASTER-ADDR-BY-NAME mymaster"); !strings.HasPrefix(got, want) {
			t.Errorf("--sentinel-auth %s: %s", auth, got)
		}
		if auth == "yes" {
			if got := s.ask("AUTH secret"); got != "+OK" {
				t.Errorf("AUTH: %s", got)
			}
			if got := s.ask("SENTINEL GET-MASTER-ADDR-BY-NAME mymaster"); !strings.HasPrefix(got, "*2 ") {
				t.Errorf("with the password: %s", got)
			}
		}
		if got := s.ask("SHUTDOWN"); !strings.HasPrefix(got, "-") {
			t.Errorf("--sentinel-auth %s: SHUTDOWN: %s", auth, got)
		}
		if got := speak(t, o.listen).ask("GET x"); got != "-NOAUTH Authentication required." {
			t.Errorf("--sentinel-auth %s: GET: %s", auth, got)
		}
		m := &member{parts: p}
		m.stop(t)
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if stopped {
			t.Errorf("--sentinel-auth %s: a stranger has stopped the node", auth)
		}
	}
}

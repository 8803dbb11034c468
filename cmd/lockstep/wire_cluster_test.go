package main

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// clusterRow has the commands that one kind of client sends to each node of a cluster.
type clusterRow struct {
	name  string
	hello string
	ask   []string
}

var clusterRows = []clusterRow{
	{"row-4-01-redis-py", "HELLO 3", []string{"CLUSTER SLOTS", "COMMAND", "READONLY", "READWRITE"}},
	{"row-4-02-jedis", "HELLO 3", []string{"CLUSTER SLOTS"}},
	{"row-4-03-lettuce", "HELLO 3", []string{"CLIENT SETNAME lettuce#ClusterTopologyRefresh", "CLUSTER NODES", "INFO"}},
	{"row-4-04-go-redis", "HELLO 3", []string{"cluster slots", "command", "asking", "readonly", "ping", "readwrite"}},
	{"row-4-05-ioredis", "PING", []string{"cluster SLOTS", "cluster INFO", "INFO"}},
	{"row-4-06-stackexchange-redis", "PING", []string{"CONFIG GET databases", "CONFIG GET cluster-enabled", "CLUSTER NODES", "ASKING"}},
	{"row-4-07-node-redis", "HELLO 3", []string{"CLUSTER SLOTS"}},
	{"row-4-08-rueidis", "HELLO 3", []string{"CLUSTER SLOTS", "CLUSTER SHARDS"}},
	{"row-4-09-redis-rs", "PING", []string{"CLUSTER SLOTS"}},
}

func (row clusterRow) check(t *testing.T, s *scene) {
	for _, m := range s.members {
		c := speak(t, m.o.clusterListen)
		greet(t, c, row.hello, "cluster")
		for _, q := range row.ask {
			v := c.value(q)
			switch strings.ToUpper(q) {
			case "CLUSTER SLOTS":
				s.checkSlots(t, v)
			case "CLUSTER SHARDS":
				s.checkShards(t, v)
			case "CLUSTER NODES":
				s.checkNodeLines(t, m, v.Text)
			case "CLUSTER INFO":
				if !strings.Contains(v.Text, "cluster_state:ok\r\n") || !strings.Contains(v.Text, "cluster_slots_ok:16384\r\n") {
					t.Errorf("%s: %v", q, v.Lines())
				}
			case "COMMAND":
				checkCommands(t, v)
			case "INFO":
				if !strings.Contains(v.Text, "cluster_enabled:1\r\n") || !strings.Contains(v.Text, "connected_clients:") || !strings.Contains(v.Text, "loading:0\r\n") {
					t.Errorf("%s of %s: %v", q, m.o.id, v.Lines())
				}
			case "CONFIG GET DATABASES":
				// A node of a Redis Cluster gives this answer, too, although it refuses SELECT.
				has(t, q, v, "databases", "16")
			case "CONFIG GET CLUSTER-ENABLED":
				has(t, q, v, "cluster-enabled", "yes")
			default:
				if v.Type != '+' {
					t.Errorf("%s: %v", q, v.Lines())
				}
			}
		}
		s.checkRedirection(t, m, c, row.name)
	}
}

// checkRedirection: only the leader grants a lock, and a follower redirects the command to the leader.
func (s *scene) checkRedirection(t *testing.T, m *member, c *speaker, key string) {
	t.Helper()
	slot := c.value("CLUSTER KEYSLOT {" + key + "}:b").Text
	if other := c.value("CLUSTER KEYSLOT " + key).Text; other != slot {
		t.Errorf("%s is in slot %s, {%s}:b in %s", key, other, key, slot)
	}
	want := "+OK"
	if m != s.leader() {
		want = "-MOVED " + slot + " " + s.leader().o.clusterListen
	}
	if got := c.ask("SET " + key + " v PX 60000"); got != want {
		t.Errorf("SET at %s: %s, want %s", m.o.id, got, want)
	}
	if got := c.ask("EVAL return(1) 2 " + key + " {" + key + "}:b"); m == s.leader() && got != ":1" || m != s.leader() && got != want {
		t.Errorf("EVAL at %s: %s", m.o.id, got)
	}
	if got := c.ask("SCRIPT LOAD return(2)"); !strings.HasPrefix(got, `$"`) {
		t.Errorf("SCRIPT LOAD at %s: %s", m.o.id, got)
	}
	if got := c.ask("EVAL return(1) 2 a b"); got != "-CROSSSLOT Keys in request don't hash to the same slot" {
		t.Errorf("EVAL of two slots: %s", got)
	}
}

// checkSlots: an answer to CLUSTER SLOTS covers all slots, and each range names the leader first.
func (s *scene) checkSlots(t *testing.T, v transcript.Value) {
	t.Helper()
	next := 0
	for _, r := range v.Elems {
		if r.Elems[0].Text != fmt.Sprint(next) || len(r.Elems) != 5 {
			t.Fatalf("slots %v", r.Lines())
		}
		last, err := strconv.Atoi(r.Elems[1].Text)
		if err != nil {
			t.Fatal(err)
		}
		next = last + 1
		addrs := map[string]bool{}
		for _, n := range r.Elems[2:] {
			if len(n.Elems) != 4 || n.Elems[0].Type != '$' || n.Elems[1].Type != ':' || len(n.Elems[2].Text) != 40 {
				t.Errorf("a node is %v", n.Lines())
			}
			addrs[net.JoinHostPort(n.Elems[0].Text, n.Elems[1].Text)] = true
		}
		first := r.Elems[2].Elems
		if got := net.JoinHostPort(first[0].Text, first[1].Text); got != s.leader().o.clusterListen || len(addrs) != 3 {
			t.Errorf("the master of the slots is %s of %v, want %s", got, addrs, s.leader().o.clusterListen)
		}
	}
	if next != 16384 {
		t.Errorf("%d slots are served", next)
	}
}

func (s *scene) checkShards(t *testing.T, v transcript.Value) {
	t.Helper()
	shard := fieldsOf(t, v.Elems[0])
	has(t, "slots", shard["slots"], "0", "16383")
	masters := 0
	for _, n := range shard["nodes"].Elems {
		f := fieldsOf(t, n)
		if f["health"].Text != "online" {
			t.Errorf("a node is %v", n.Lines())
		}
		if f["role"].Text == "master" {
			masters++
			if got := net.JoinHostPort(f["ip"].Text, f["port"].Text); got != s.leader().o.clusterListen {
				t.Errorf("the master is %s", got)
			}
		}
	}
	if len(v.Elems) != 1 || masters != 1 || len(shard["nodes"].Elems) != 3 {
		t.Errorf("shards: %v", v.Lines())
	}
}

var nodeLine = regexp.MustCompile(`^[0-9a-f]{40} ([0-9.]+:\d+)@\d+(?:,\S*)? (myself,)?(master|slave) (-|[0-9a-f]{40}) \d+ \d+ \d+ connected( 0-16383)?$`)

// checkNodeLines: in m's answer to CLUSTER NODES, m's line is marked as its own, and only the leader's line has slots.
func (s *scene) checkNodeLines(t *testing.T, m *member, text string) {
	t.Helper()
	// In RESP3 the answer is a verbatim string, which begins with its format.
	lines := strings.Split(strings.TrimSuffix(strings.TrimPrefix(text, "txt:"), "\n"), "\n")
	if len(lines) != 3 {
		t.Errorf("%d lines in %q", len(lines), text)
	}
	for _, line := range lines {
		p := nodeLine.FindStringSubmatch(line)
		if p == nil {
			t.Errorf("line %q", line)
			continue
		}
		if (p[2] != "") != (p[1] == m.o.clusterListen) || (p[3] == "master") != (p[1] == s.leader().o.clusterListen) || (p[5] != "") != (p[3] == "master") || (p[4] == "-") != (p[3] == "master") {
			t.Errorf("line %q; %s answers and %s leads", line, m.o.clusterListen, s.leader().o.clusterListen)
		}
	}
}

// checkCommands checks an answer to COMMAND: each entry has ten fields, and the commands that locks use have their keys at the
// right places.
func checkCommands(t *testing.T, v transcript.Value) {
	t.Helper()
	want := map[string]string{"get": "1 1 1", "set": "1 1 1", "del": "1 -1 1", "evalsha": "0 0 0", "eval": "0 0 0", "blpop": "1 -2 1", "mset": "1 -1 2",
		"pexpire": "1 1 1", "hincrby": "1 1 1", "zadd": "1 1 1", "publish": "0 0 0", "script": "0 0 0"}
	for _, c := range v.Elems {
		if len(c.Elems) != 10 || c.Elems[2].Type != '*' && c.Elems[2].Type != '~' {
			t.Errorf("command %v", c.Lines())
			continue
		}
		keys, name := fmt.Sprint(c.Elems[3].Text, " ", c.Elems[4].Text, " ", c.Elems[5].Text), c.Elems[0].Text
		if w, ok := want[name]; ok && keys != w {
			t.Errorf("the keys of %s are %s, want %s", name, keys, w)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("COMMAND leaves out %v", want)
	}
}

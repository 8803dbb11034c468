package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// sentinelRow has the commands that one kind of client sends to a Sentinel, and then to the server that the Sentinel names.
type sentinelRow struct {
	name    string
	hello   string   // the first command to both
	ask     []string // commands to each Sentinel
	target  []string // commands to the leader
	listens string   // its subscription; sentinelSubscribers checks that it is told of a failover
}

var sentinelRows = []sentinelRow{
	{"row-3-01-redis-py", "HELLO 3", []string{"SENTINEL MASTERS", "SENTINEL SLAVES mymaster", "PING"}, nil, ""},
	{"row-3-02-jedis", "PING", []string{"SENTINEL GET-MASTER-ADDR-BY-NAME mymaster"}, nil, "SUBSCRIBE +switch-master"},
	{"row-3-03-lettuce", "HELLO 3", []string{"SENTINEL get-master-addr-by-name mymaster"}, nil, ""},
	{"row-3-04-lettuce-master-replica", "HELLO 3", []string{"CLIENT SETNAME lettuce#MasterReplicaTopologyRefresh", "SENTINEL MASTER mymaster", "SENTINEL REPLICAS mymaster"},
		nil, "PSUBSCRIBE *"},
	{"row-3-05-go-redis", "HELLO 3", []string{"sentinel get-master-addr-by-name mymaster", "sentinel sentinels mymaster", "sentinel replicas mymaster"},
		nil, "SUBSCRIBE +switch-master +replica-reconf-done"},
	{"row-3-06-ioredis", "HELLO 3", []string{"sentinel get-master-addr-by-name mymaster", "sentinel sentinels mymaster", "sentinel slaves mymaster"},
		[]string{"INFO"}, "SUBSCRIBE +switch-master"},
	{"row-3-07-stackexchange-redis", "PING", []string{"INFO server", "SENTINEL get-master-addr-by-name mymaster", "SENTINEL REPLICAS mymaster", "SENTINEL SENTINELS mymaster"},
		[]string{"ROLE", "INFO replication"}, "SUBSCRIBE +switch-master +sentinel"},
	{"row-3-08-redis-client-of-ruby", "HELLO 3", []string{"SENTINEL get-master-addr-by-name mymaster", "SENTINEL sentinels mymaster", "SENTINEL replicas mymaster"},
		[]string{"ROLE"}, ""},
	{"row-3-09-node-redis", "HELLO 3", []string{"SENTINEL SENTINELS mymaster", "SENTINEL MASTER mymaster", "SENTINEL REPLICAS mymaster"},
		nil, "PSUBSCRIBE switch-master [-+]sdown +slave +sentinel [-+]odown +slave-reconf-done"},
	{"row-3-10-rueidis", "HELLO 3", []string{"SENTINEL SENTINELS mymaster", "SENTINEL GET-MASTER-ADDR-BY-NAME mymaster", "SENTINEL REPLICAS mymaster"},
		[]string{"ROLE"}, "SUBSCRIBE +sentinel +slave -sdown +sdown +switch-master +reboot"},
	{"row-3-11-redis-rs", "PING", []string{"SENTINEL MASTERS", "SENTINEL SLAVES mymaster"}, []string{"ROLE"}, ""},
	{"row-3-13-dapr", "HELLO 3", []string{"sentinel get-master-addr-by-name mymaster", "sentinel sentinels mymaster", "sentinel replicas mymaster"},
		[]string{"INFO replication"}, "SUBSCRIBE +switch-master +replica-reconf-done"},
	{"row-3-12-union", "HELLO 3", []string{"SENTINEL MASTERS", "SENTINEL MASTER mymaster", "SENTINEL GET-MASTER-ADDR-BY-NAME mymaster", "SENTINEL REPLICAS mymaster",
		"SENTINEL SLAVES mymaster", "SENTINEL SENTINELS mymaster", "SENTINEL CKQUORUM mymaster", "SENTINEL MYID", "PING", "INFO server", "ROLE", "CLIENT ID",
		"CLIENT SETNAME union", "CLIENT SETINFO LIB-NAME union", "SENTINEL GET-MASTER-ADDR-BY-NAME nobody", "SENTINEL REPLICAS nobody", "SENTINEL MASTER nobody"}, nil, ""},
}

func (row sentinelRow) check(t *testing.T, s *scene) {
	for _, m := range s.members {
		c := speak(t, m.o.sentinelListen)
		greet(t, c, row.hello, "sentinel")
		for _, q := range row.ask {
			s.checkSentinel(t, q, c.value(q))
		}
	}
	// The client connects to the address that the Sentinel has given.
	c := speak(t, s.leader().o.listen)
	greet(t, c, row.hello, "standalone")
	for _, q := range row.target {
		v := c.value(q)
		switch {
		case q == "ROLE" && v.Elems[0].Text != "master":
			t.Errorf("ROLE: %v", v.Lines())
		case q != "ROLE" && !strings.Contains(v.Text, "role:master\r\n"):
			t.Errorf("%s: %v", q, v.Lines())
		}
	}
	if got := c.ask("SET " + row.name + " v PX 60000"); got != "+OK" {
		t.Errorf("SET: %s", got)
	}
}

func greet(t *testing.T, c *speaker, hello, mode string) {
	t.Helper()
	v := c.value(hello)
	if hello == "PING" {
		if v.Text != "PONG" {
			t.Fatalf("PING: %v", v.Lines())
		}
		return
	}
	f := fieldsOf(t, v)
	if f["proto"].Text != "3" || f["proto"].Type != ':' || f["id"].Type != ':' || f["mode"].Text != mode || f["version"].Text == "" {
		t.Fatalf("%s: %v", hello, v.Lines())
	}
}

// checkSentinel compares the answer to a question with the present roles and addresses of the nodes.
func (s *scene) checkSentinel(t *testing.T, question string, v transcript.Value) {
	t.Helper()
	words := strings.Fields(strings.ToUpper(question))
	host, port := hostPort(t, s.leader().o.listen)
	if words[len(words)-1] == "NOBODY" {
		switch {
		case words[1] == "GET-MASTER-ADDR-BY-NAME" && v.Null, words[1] == "GET-MASTER-ADDR-BY-NAME" && v.Type == '_':
		case v.Type == '-' && v.Text == "ERR No such master with that name":
		default:
			t.Errorf("%s: %v", question, v.Lines())
		}
		return
	}
	switch words[0] + " " + words[min(1, len(words)-1)] {
	case "SENTINEL GET-MASTER-ADDR-BY-NAME":
		has(t, question, v, host, port)
	case "SENTINEL MASTERS":
		if len(v.Elems) != 1 {
			t.Fatalf("%s: %v", question, v.Lines())
		}
		checkMaster(t, v.Elems[0], host, port)
	case "SENTINEL MASTER":
		checkMaster(t, v, host, port)
	case "SENTINEL REPLICAS", "SENTINEL SLAVES":
		var want []string
		for _, m := range s.followers() {
			want = append(want, m.o.listen)
		}
		checkNodes(t, v, "slave", want)
	case "SENTINEL SENTINELS":
		checkNodes(t, v, "sentinel", nil)
	case "SENTINEL CKQUORUM":
		if v.Type != '+' || !strings.HasPrefix(v.Text, "OK 3 usable Sentinels") {
			t.Errorf("%s: %v", question, v.Lines())
		}
	case "INFO SERVER":
		if !strings.Contains(v.Text, "redis_mode:sentinel\r\n") {
			t.Errorf("%s: %v", question, v.Lines())
		}
	case "ROLE ROLE":
		if v.Elems[0].Text != "sentinel" || v.Elems[1].Elems[0].Text != "mymaster" {
			t.Errorf("%s: %v", question, v.Lines())
		}
	default:
		if v.Type == '-' {
			t.Errorf("%s: %v", question, v.Lines())
		}
	}
}

func checkMaster(t *testing.T, v transcript.Value, host, port string) {
	t.Helper()
	f := fieldsOf(t, v)
	if f["name"].Text != "mymaster" || f["ip"].Text != host || f["port"].Text != port || f["flags"].Text != "master" || f["num-other-sentinels"].Text != "2" {
		t.Errorf("the master is %v", v.Lines())
	}
}

// checkNodes checks a list of nodes in a reply. want has their addresses, if they are known.
func checkNodes(t *testing.T, v transcript.Value, flags string, want []string) {
	t.Helper()
	var got []string
	for _, e := range v.Elems {
		f := fieldsOf(t, e)
		if n, err := strconv.Atoi(f["port"].Text); err != nil || n == 0 || f["flags"].Text != flags {
			t.Errorf("a node is %v", e.Lines())
		}
		got = append(got, f["ip"].Text+":"+f["port"].Text)
	}
	slices.Sort(got)
	slices.Sort(want)
	if len(got) != 2 || want != nil && !slices.Equal(got, want) {
		t.Errorf("the nodes are %v, want %v", got, want)
	}
}

// hearer is one client's subscription at one Sentinel.
type hearer struct {
	name    string
	pattern bool
	on      *speaker
}

// sentinelSubscribers subscribes at every Sentinel in the way of each kind of client.
func (s *scene) sentinelSubscribers(t *testing.T) (list []hearer) {
	for _, row := range sentinelRows {
		words := strings.Fields(row.listens)
		for i, m := range s.members {
			if len(words) == 0 {
				continue
			}
			c := speak(t, m.o.sentinelListen)
			greet(t, c, row.hello, "sentinel")
			v := c.value(row.listens)
			for n, channel := range words[1:] {
				if n > 0 {
					v = c.next()
				}
				has(t, row.listens, v, strings.ToLower(words[0]), channel, fmt.Sprint(n+1))
			}
			// No Sentinel publishes on the channels of node-redis, because a failover of lockstep has only one step.
			if !strings.Contains(row.listens, " switch-master") {
				list = append(list, hearer{fmt.Sprintf("%s-at-n%d", row.name, i+1), words[0] == "PSUBSCRIBE", c})
			}
		}
	}
	return list
}

// expect reads messages until one tells of the change of leader.
func (h hearer) expect(t *testing.T, from, to string) {
	fromHost, fromPort := hostPort(t, from)
	toHost, toPort := hostPort(t, to)
	want := strings.Join([]string{"mymaster", fromHost, fromPort, toHost, toPort}, " ")
	for range 100 {
		v := h.on.next()
		kind, last := v.Elems[0].Text, v.Elems[len(v.Elems)-1].Text
		if pattern := kind == "pmessage"; pattern != h.pattern || !pattern && kind != "message" {
			t.Fatalf("got %v", v.Lines())
		}
		if v.Elems[len(v.Elems)-2].Text == "+switch-master" {
			if last != want {
				t.Errorf("got %q, want %q", last, want)
			}
			return
		}
	}
	t.Error("a hundred messages and no +switch-master")
}

package main

import (
	"net"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// The tests of this file and of wire_*_test.go are named after the rows of conformance/WIRE.md whose answers need several nodes, or the
// Sentinel or Cluster listener.

// scene has three nodes, as a client that looks for the leader sees them.
type scene struct {
	members []*member
}

func (s *scene) leader() *member {
	return s.members[s.members[0].parts.node.Topology().Last[1]-'1']
}

func (s *scene) followers() (list []*member) {
	for _, m := range s.members {
		if m != s.leader() {
			list = append(list, m)
		}
	}
	return list
}

// fieldsOf returns the fields of a map. In RESP2 the map is a flat array.
func fieldsOf(t *testing.T, v transcript.Value) map[string]transcript.Value {
	t.Helper()
	if v.Type != '%' && v.Type != '*' || len(v.Elems)%2 != 0 {
		t.Fatalf("%v is no map", v)
	}
	m := map[string]transcript.Value{}
	for i := 0; i < len(v.Elems); i += 2 {
		m[v.Elems[i].Text] = v.Elems[i+1]
	}
	return m
}

// has fails unless the top level of a reply consists of the given texts, in this order.
func has(t *testing.T, question string, v transcript.Value, texts ...string) {
	t.Helper()
	var got []string
	for _, e := range v.Elems {
		got = append(got, e.Text)
	}
	if strings.Join(got, " ") != strings.Join(texts, " ") {
		t.Errorf("%s: %v, want %v", question, v.Lines(), texts)
	}
}

func hostPort(t *testing.T, addr string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}

// TestWireRows sends three nodes the commands of clients in Sentinel mode and in Cluster mode. Then it moves the leadership,
// and sends them again.
func TestWireRows(t *testing.T) {
	s := &scene{startMembers(t)}
	hears := s.sentinelSubscribers(t)
	for _, when := range []string{"before a failover", "after it"} {
		t.Run(when, func(t *testing.T) {
			for _, row := range sentinelRows {
				t.Run(row.name, func(t *testing.T) { row.check(t, s) })
			}
			for _, row := range clusterRows {
				t.Run(row.name, func(t *testing.T) { row.check(t, s) })
			}
			t.Run("redisson-surprise-03-no-redirection", func(t *testing.T) { noRedirection(t, s) })
			t.Run("redisson-surprise-06-noscript-is-repaired-once", func(t *testing.T) { scriptsEverywhere(t, s) })
			t.Run("redisson-surprise-13-polling", func(t *testing.T) { polling(t, s) })
		})
		if when == "before a failover" {
			old := s.leader()
			// A second election at the start of the nodes counts as a failover, during which SENTINEL FAILOVER is refused.
			until(t, "a failover", func() bool { return speak(t, old.o.sentinelListen).ask("SENTINEL FAILOVER mymaster") == "+OK" })
			until(t, "another leader", func() bool {
				for _, m := range s.members {
					if top := m.parts.node.Topology(); top.Leader == "" || top.Leader == old.o.id || !m.parts.node.Ready() {
						return false
					}
				}
				return true
			})
			for _, h := range hears {
				t.Run(h.name, func(t *testing.T) { h.expect(t, old.o.listen, s.leader().o.listen) })
			}
		}
	}
}

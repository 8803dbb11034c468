package main

import (
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/cluster"
)

// noRedirection checks that all nodes serve every command on their plain ports. A redirection would send Redisson in circles.
func noRedirection(t *testing.T, s *scene) {
	for _, m := range s.members {
		c := speak(t, m.o.listen)
		for _, q := range []string{"MSET a 1 b 2", "EVAL return(redis.call('set',KEYS[1],1)and(redis.call('get',KEYS[2]))) 2 a b", "DEL a b", "SPUBLISH c m", "LPUSH l 1", "BLPOP l 1"} {
			if v := c.value(q); v.Type == '-' {
				t.Errorf("%s at %s: %v", q, m.o.id, v.Lines())
			}
		}
	}
}

// scriptsEverywhere checks that a script that was loaded through one node can be run through the others at once.
func scriptsEverywhere(t *testing.T, s *scene) {
	for i, m := range s.members {
		body := "return('" + t.Name() + m.o.id + "')"
		sha := s.load(t, m, body)
		for _, other := range append(s.members[i:], s.members[:i]...) {
			if got := speak(t, other.o.listen).value("EVALSHA " + sha + " 0"); got.Type != '$' {
				t.Errorf("loaded at %s, at %s: %v", m.o.id, other.o.id, got.Lines())
			}
		}
	}
}

func (s *scene) load(t *testing.T, m *member, body string) string {
	t.Helper()
	c := speak(t, m.o.listen)
	body = strings.ReplaceAll(body, " ", "_")
	v := c.value("SCRIPT LOAD " + body)
	if v.Type != '$' || len(v.Text) != 40 {
		t.Fatalf("SCRIPT LOAD: %v", v.Lines())
	}
	return v.Text
}

// polling: Redisson learns of a new leader by asking again and again, never by an error. All commands with which it asks name the
// same leader.
func polling(t *testing.T, s *scene) {
	for _, m := range s.members {
		role := "role:slave\r\n"
		if m == s.leader() {
			role = "role:master\r\n"
		}
		if got := speak(t, m.o.listen).value("INFO REPLICATION").Text; strings.Count(got, "role:") != 1 || !strings.Contains(got, role) {
			t.Errorf("INFO REPLICATION at %s: %q, want %q", m.o.id, got, role)
		}
		c := speak(t, m.o.sentinelListen)
		for _, q := range []string{"SENTINEL GET-MASTER-ADDR-BY-NAME mymaster", "SENTINEL SLAVES mymaster", "SENTINEL SENTINELS mymaster"} {
			s.checkSentinel(t, q, c.value(q))
		}
		for _, v := range c.value("SENTINEL SLAVES mymaster").Elems {
			f := fieldsOf(t, v)
			host, port := hostPort(t, s.leader().o.listen)
			if f["master-link-status"].Text != "ok" || f["master-host"].Text != host || f["master-port"].Text != port {
				t.Errorf("a replica is %v", v.Lines())
			}
		}
		at := speak(t, m.o.clusterListen)
		for _, q := range []string{"PUBSUB SHARDNUMSUB 0", "PUBSUB NUMPAT"} {
			if v := at.value(q); v.Type == '-' {
				t.Errorf("%s: %v", q, v.Lines())
			}
		}
		s.checkNodeLines(t, m, at.value("CLUSTER NODES").Text)
	}
}

// redissonRetries are the codes on which Redisson sends a lock script again.
var redissonRetries = []string{"LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "BUSY ", "NOREPLICAS", "WAIT", "ERR WAIT", "READONLY", "MOVED", "ASK", "REDIRECT", "NOSCRIPT"}

// TestRedissonSurprise04RetriedErrors: Redisson must repeat a request on CLUSTERDOWN (not executed), but not on INDETERMINATE (perhaps
// executed).
func TestRedissonSurprise04RetriedErrors(t *testing.T) {
	retried := func(text string) bool {
		for _, code := range redissonRetries {
			if strings.HasPrefix(text, code) {
				return true
			}
		}
		return false
	}
	if text := string(cluster.ErrIndeterminate); retried(text) {
		t.Errorf("%q is sent again", text)
	}
	if text := string(cluster.ErrClusterDown); !retried(text) {
		t.Errorf("%q is not sent again", text)
	}
}

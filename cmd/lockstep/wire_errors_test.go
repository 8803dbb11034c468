package main

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// codesNeverSent are error codes on which clients would do something useless or harmful.
var codesNeverSent = []string{"-LOADING", "-READONLY", "-ASK", "-TRYAGAIN", "-MASTERDOWN", "-NOREPLICAS", "-UNAVAILABLE", "-REDIRECT"}

// TestErrorRows: a node without a majority answers CLUSTERDOWN to requests that need a leader, and other requests at once.
func TestErrorRows(t *testing.T) {
	list := startMembersWith(t, time.Second)
	left := list[0]
	plain, node, sentinel := speak(t, left.o.listen), speak(t, left.o.clusterListen), speak(t, left.o.sentinelListen)
	if got := plain.ask("SET held v PX 600000"); got != "+OK" {
		t.Fatal(got)
	}
	// This command makes the test wait: a node that has just started first has to learn which users may send such commands.
	if got := plain.ask("CONFIG GET databases"); !strings.HasPrefix(got, "*2 ") {
		t.Fatal(got)
	}
	follower := list[1]
	t.Run("row-5-02-readonly", func(t *testing.T) {
		for _, m := range list {
			c := speak(t, m.o.listen)
			for _, q := range []string{"SET k v PX 60000", "EVAL return(redis.call('set',KEYS[1],1)) 1 k"} {
				if got := c.ask(q); got != "+OK" {
					t.Errorf("%s at %s: %s", q, m.o.id, got)
				}
			}
		}
	})
	t.Run("row-5-03-moved", func(t *testing.T) { movedToTheLeader(t, &scene{list}) })
	t.Run("row-5-04-ask", func(t *testing.T) {
		if got := node.ask("ASKING"); got != "+OK" {
			t.Errorf("ASKING: %s", got)
		}
	})
	t.Run("row-5-11-errors-in-scripts", func(t *testing.T) { codeFirst(t, plain) })
	connected := speak(t, follower.o.listen)
	list[1].stop(t)
	list[2].stop(t)
	t.Run("row-5-09-closed", func(t *testing.T) {
		if err := connected.conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(connected.conn); len(rest) != 0 || err != nil {
			t.Errorf("a client of a node that stopped reads %q, %v", rest, err)
		}
	})
	t.Run("row-5-10-refused", func(t *testing.T) {
		if c, err := net.Dial("tcp", follower.o.listen); err == nil {
			c.Close()
			t.Error("a node that has stopped takes connections")
		}
	})
	t.Run("row-5-05-clusterdown", func(t *testing.T) {
		until(t, "the loss of the majority", func() bool { return left.parts.node.Topology().Leader == "" })
		for _, addr := range []string{left.o.listen, left.o.clusterListen} {
			// All questions are sent at once, each on a connection of its own, because each waits for a leader.
			questions := []string{"SET lost v NX PX 60000", "GET held", "EVAL return(1) 0", "MSET {a}1 b {a}2 b", "EXEC"}
			var waiting []*speaker
			for _, q := range questions {
				c := speak(t, addr)
				if q == "EXEC" {
					c.ask("MULTI")
					c.ask("SET lost v")
				}
				c.send(q)
				waiting = append(waiting, c)
			}
			for i, c := range waiting {
				notServed(t, questions[i], strings.Join(c.next().Lines(), " "))
			}
		}
	})
	// Rows 1, 6, 7 and 8: a node without a leader still answers what it can answer by itself.
	t.Run("row-5-01-loading", func(t *testing.T) {
		for _, q := range []string{"PING", "HELLO 3", "INFO", "CLIENT SETNAME c", "SELECT 3", "CLUSTER NODES", "SUBSCRIBE c", "UNSUBSCRIBE c", "COMMAND COUNT", "CONFIG GET databases"} {
			v := plain.value(q)
			if v.Type == '-' && q != "CLUSTER NODES" || q == "INFO" && !strings.Contains(v.Text, "loading:0\r\n") {
				t.Errorf("%s: %v", q, v.Lines())
			}
		}
		for _, q := range []string{"PING", "CLUSTER NODES", "CLUSTER SLOTS", "INFO", "READONLY"} {
			if got := node.ask(q); strings.HasPrefix(got, "-") {
				t.Errorf("%s: %s", q, got)
			}
		}
		for _, q := range []string{"PING", "SENTINEL MASTERS", "SENTINEL GET-MASTER-ADDR-BY-NAME mymaster", "SUBSCRIBE +switch-master"} {
			if got := sentinel.ask(q); strings.HasPrefix(got, "-") {
				t.Errorf("%s: %s", q, got)
			}
		}
	})
}

// notServed checks that a reply is CLUSTERDOWN, the only code on which all cluster clients and Redisson wait and try again.
func notServed(t *testing.T, question, reply string) {
	t.Helper()
	for _, code := range codesNeverSent {
		if strings.HasPrefix(reply, code) {
			t.Errorf("%s: %s", question, reply)
		}
	}
	if !strings.HasPrefix(reply, "-CLUSTERDOWN ") {
		t.Errorf("%s: %s", question, reply)
	}
}

// movedToTheLeader checks that a follower answers with MOVED, the slot of the key and the address of the leader.
func movedToTheLeader(t *testing.T, s *scene) {
	for key, slot := range map[string]string{"foo": "12182", "{foo}bar": "12182", "": "0", "123456789": "12739"} {
		for _, m := range s.followers() {
			if key == "" {
				continue
			}
			if got, want := speak(t, m.o.clusterListen).ask("GET "+key), "-MOVED "+slot+" "+s.leader().o.clusterListen; got != want {
				t.Errorf("%q at %s: %s, want %s", key, m.o.id, got, want)
			}
		}
	}
}

// codeFirst checks that an error begins with its code, even through a script: clients look only at the first word.
func codeFirst(t *testing.T, c *speaker) {
	c.ask("RPUSH list 1")
	for body, code := range map[string]string{
		"return(redis.call('get','list'))":                            "-WRONGTYPE Operation against a key holding the wrong kind of value script: ",
		"return(redis.error_reply('READONLY'..string.char(32)..'x'))": "-READONLY x",
		"return({err='READONLY'..string.char(32)..'x'})":              "-READONLY x",
	} {
		if got := c.value("EVAL " + body + " 0"); !strings.HasPrefix("-"+got.Text, code) || got.Type != '-' {
			t.Errorf("%s: %v, want %s", body, got.Lines(), code)
		}
	}
}

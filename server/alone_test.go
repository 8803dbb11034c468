package server

import (
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/cluster"
)

// A node runs only one ACL LOAD or ACL SAVE at a time, and the waiting ones take no memory for a file.
func TestOneACLFileAtATime(t *testing.T) {
	for _, verb := range []string{"LOAD", "SAVE"} {
		t.Run(verb, func(t *testing.T) {
			ts, c, _, _ := fileServer(t, "user default on nopass ~* &* +@all\n")
			const clients = 20
			release := ts.fake.holdBack()
			list := []*client{c}
			for len(list) < clients {
				list = append(list, ts.dial(t))
			}
			for _, c := range list {
				c.send("ACL " + verb + "\r\n")
			}
			until(t, "all to have begun or to wait", func() bool {
				held := ts.fake.held.Load()
				return held > 0 && held+ts.fake.asked.Load() >= clients
			})
			if n := ts.fake.held.Load(); n > 2 { // one of these calls may be the node's own, which asks for the users
				t.Errorf("%d at once", n)
			}
			release()
			for _, c := range list {
				c.expect("+OK\r\n")
			}
			if n := ts.fake.paced.Load(); n != clients {
				t.Errorf("%d of %d have given way before", n, clients)
			}
		})
	}
}

// A heavy command waits for others of its kind and, after much work of the node, for its client's turn. Locks do not wait.
func TestHeavyCommandsRunOneAtATime(t *testing.T) {
	for line, kind := range map[string]cluster.OwnKind{
		"COMMAND DOCS get": cluster.OwnList, "COMMAND INFO get": cluster.OwnList, "COMMAND LIST": cluster.OwnList, "COMMAND": cluster.OwnList,
		"CLIENT LIST": cluster.OwnList, "CLIENT KILL ID 99": cluster.OwnList, "PUBSUB CHANNELS": cluster.OwnList, "PUBSUB NUMSUB c": cluster.OwnList,
		"SLOWLOG GET": cluster.OwnList, "LATENCY HISTOGRAM get": cluster.OwnList, "ACL LOG": cluster.OwnList, "ACL CAT": cluster.OwnList,
		"INFO": cluster.OwnFacts, "CONFIG GET maxmemory": cluster.OwnFacts, "MEMORY STATS": cluster.OwnFacts,
		"DEBUG DIGEST": cluster.OwnDigest, "DEBUG DIGEST-VALUE k": cluster.OwnDigest,
		"MULTI\r\nCLIENT LIST\r\nEXEC": cluster.OwnList,
	} {
		t.Run(line, func(t *testing.T) {
			eachPath(t, func(t *testing.T, loops int) {
				ts := newTestServer(t, func(c *Config) { c.Loops, c.EnableDebugCommand = loops, "yes" })
				locks, c := ts.dial(t), ts.dial(t)
				leave, _ := ts.fake.Alone(nil, kind)
				skip := strings.Count(line, "\r\n")
				c.send(line + "\r\n")
				c.expect([]string{"", "", "+OK\r\n+QUEUED\r\n"}[skip])
				until(t, "it to wait", func() bool { return ts.fake.asked.Load() == 2 })
				locks.do("SET lock me NX", "+OK\r\n")
				other := "CONFIG GET nothing"
				if kind == cluster.OwnFacts {
					other = "PUBSUB CHANNELS"
				}
				locks.do(other, "*0\r\n")
				leave()
				until(t, "it to be run", func() bool { return ts.fake.asked.Load() == 0 })
				if n := ts.fake.paced.Load(); n != 0 {
					t.Errorf("it gave way %d times, and the node had done nothing", n)
				}
			})
		})
	}
	t.Run("much work", func(t *testing.T) {
		bothPaths(t, func(t *testing.T, ts *testServer) {
			ts.ownWork.add(ts.fake.clock(), 2*ownAtOnce)
			ts.dial(t).do("PUBSUB CHANNELS", "*0\r\n")
			if n := ts.fake.paced.Load(); n != 1 {
				t.Errorf("the first command of a client gave way %d times", n)
			}
		})
	})
}

// A heavy command that waits for its turn is not run if its client has been cut off.
func TestNothingHeavyIsRunForWhoHasLeft(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		for _, line := range []string{"CLIENT LIST", "INFO", "ACL LOAD", "ACL SAVE"} {
			c := ts.dial(t)
			c.do("PING", "+PONG\r\n")
			ran := ts.stats.commands.Load()
			ts.fake.leaves.Store(true)
			c.send(line + "\r\nSET k v\r\n")
			c.expectClosed()
			ts.fake.leaves.Store(false)
			if n := ts.stats.commands.Load(); n != ran {
				t.Errorf("%s: %d commands were run", line, n-ran)
			}
		}
	})
}

// All clients that wait for the hash of the state share it, so the time for it does not count as any client's own work.
func TestSharedHashIsNobodysWork(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		ts.fake.hashTakes.Store(int64(10 * ownSlice))
		c := ts.dial(t)
		for range 3 {
			c.ask("LOCKSTEP", "STATUS")
		}
		if n := ts.fake.rested.Load(); n != 0 {
			t.Errorf("a client that asked for the hash has given way for %d ns more", n)
		}
	})
}

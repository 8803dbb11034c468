package server

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// TestWaitsAreNoWork: the time in which a command waits for the leader or the replicas is no work of the node.
func TestWaitsAreNoWork(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, func(c *Config) { c.Loops, c.Durable = loops, true })
		c := ts.dial(t)
		c.do("ACL SETUSER other on", "+OK\r\n") // from now on the node asks the leader for the users before some commands
		ts.fake.mu.Lock()
		ts.fake.watch = func(store.Reply) { ts.fake.advance(time.Second) }
		ts.fake.mu.Unlock()
		for _, line := range []string{"WAIT 1 1", "WAITAOF 0 1 1", "FUNCTION STATS", "SCRIPT KILL", "ACL SETUSER u on", "ACL DELUSER u",
			"CONFIG SET busy-reply-threshold 6000", "CONFIG GET maxmemory", "CLIENT LIST", "CLIENT KILL ID 99", "SLOWLOG GET", "LATENCY LATEST",
			"LOCKSTEP STATUS", "INFO server", "CLIENT UNBLOCK 99", "DEBUG DIGEST-VALUE k"} {
			before := ts.ownWork.took.Load()
			c.ask(strings.Fields(line)...)
			c.do("PING", "+PONG\r\n") // the node counts the work of a command only after the reply, so this PING waits for the count
			if took := time.Duration(ts.ownWork.took.Load() - before); took > 100*time.Millisecond {
				t.Errorf("%s counts as work of %v", line, took)
			}
		}
	})
}

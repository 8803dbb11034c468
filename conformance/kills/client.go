package kills

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/conformance/judge"
	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// place is a node. It says whether the node's process can be expected to answer.
type place struct {
	*nodes.Node
	// epoch is odd while the process may be down: from before the kill until after the process is ready again.
	epoch atomic.Int64
}

func (p *place) down(epoch int64) bool { return epoch%2 == 1 }

// patience is how long a client waits for one reply.
const patience = 10 * time.Second

// redial is the pause between two attempts to connect.
const redial = 20 * time.Millisecond

// client is one connection and the commands that go over it.
type client struct {
	id    int
	name  string
	place *place
	run   *run
	rng   *rand.Rand

	conn   *respclient.Conn
	dialed int64 // epoch of the place when conn was dialed

	counter judge.Counter
	serial  int
}

func newClient(r *run, id int, at *place) *client {
	name := fmt.Sprintf("c%d", id)
	return &client{id: id, name: name, place: at, run: r, rng: rand.New(rand.NewPCG(r.seed, uint64(id))),
		counter: judge.Counter{Name: "counter:" + name}}
}

// do sends a command. The outcome is unknown if the node was killed meanwhile. An error reply, or a living node's silence, is a fault.
func (c *client) do(args ...string) (reply any, known bool) {
	if c.conn == nil && !c.connect() {
		return nil, false
	}
	c.run.gate.RLock()
	defer c.run.gate.RUnlock()
	conn := c.conn
	timer := time.AfterFunc(patience, func() { conn.Close() })
	sent := time.Now()
	reply, err := conn.Do(args...)
	inTime := timer.Stop()
	var refused respclient.ServerError
	switch {
	case err == nil:
		c.run.waited(c.place, sent)
		c.run.judge.Count("commands acknowledged", 1)
		return reply, true
	case errors.As(err, &refused):
		c.run.judge.Fault(judge.ClientError, "%s on %s: %s: %v", c.name, c.place.ID, args[0], err)
		return nil, false
	}
	now := c.place.epoch.Load()
	if !inTime || now == c.dialed && !c.place.down(now) {
		c.run.judge.Fault(judge.ClientError, "%s on %s, which lives: %s: %v", c.name, c.place.ID, args[0], err)
	}
	c.run.judge.Count("commands of unknown fate, their node killed", 1)
	c.drop()
	return nil, false
}

// drop ends the connection; the next command makes another.
func (c *client) drop() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// connect opens a connection. If the node is down, it waits until the node is back. It returns false if the run has failed.
func (c *client) connect() bool {
	for !c.run.failed.Load() {
		before := c.place.epoch.Load()
		conn, err := respclient.Dial(c.place.Addr, patience)
		if err == nil {
			c.conn, c.dialed = conn, before
			return true
		}
		if after := c.place.epoch.Load(); before == after && !c.place.down(after) {
			c.run.judge.Fault(judge.ClientError, "%s on %s, which lives: %v", c.name, c.place.ID, err)
		}
		time.Sleep(redial)
	}
	return false
}

// transaction carries out commands in one transaction. It returns nil if the outcome is unknown.
func (c *client) transaction(list ...[]string) []any {
	for _, args := range slices.Concat([][]string{{"MULTI"}}, list) {
		if _, known := c.do(args...); !known {
			c.drop() // nothing stays queued
			return nil
		}
	}
	got, _ := c.do("EXEC")
	replies, _ := got.([]any)
	return replies
}

// insist repeats a command until its reply is known or the run has failed. The command must be one that may be executed twice.
func (c *client) insist(args ...string) (reply any, known bool) {
	for {
		if reply, known = c.do(args...); known || c.run.failed.Load() {
			return reply, known
		}
	}
}

// pause waits for a random time of up to twice the mean.
func (c *client) pause(mean time.Duration) {
	time.Sleep(time.Duration(c.rng.Int64N(2*int64(mean) + 1)))
}

// unique returns a word that occurs nowhere else in the run.
func (c *client) unique() string {
	c.serial++
	return fmt.Sprintf("%s-%d", c.name, c.serial)
}

//go:build linux

package main

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"lockstep/bench"
)

// trio starts three nodes and returns the suite and who leads.
func trio(t *testing.T) (*suite, *node) {
	t.Helper()
	s := testSuite(t, 1, "")
	if err := s.f.startAll(); err != nil {
		t.Fatal(err)
	}
	if err := s.f.waitReady(readyLimit); err != nil {
		t.Fatal(err)
	}
	return s, s.leads(t, nil)
}

// leads waits until a node other than old leads.
func (s *suite) leads(t *testing.T, old *node) *node {
	t.Helper()
	for deadline := time.Now().Add(readyLimit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) { // polls processes
		if n := s.f.leader(); n != nil && n != old {
			return n
		}
	}
	t.Fatal("no other leader")
	return nil
}

// speaker is a connection to one node for a test.
type speaker struct {
	t    *testing.T
	n    *node
	resp *bench.Conn
}

func (n *node) speak(t *testing.T) *speaker {
	t.Helper()
	conn, err := n.f.clients.Dial(n.at(plainPort), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &speaker{t, n, bench.NewConn(conn)}
}

// wants sends a command and checks its reply.
func (c *speaker) wants(want string, args ...string) {
	c.t.Helper()
	reply, err := c.resp.Do(args...)
	if err != nil || flat(reply) != want {
		c.t.Errorf("%s: %q: %v, %v; want %q", c.n.id, args, reply, err, want)
	}
}

// readsAfterPause pauses the leader until another has been elected and the lock
// has got a new owner, and reads what the old leader says when it wakes up:
// ask has been sent while it slept, so it is the first thing that it looks at.
func readsAfterPause(t *testing.T, ask ...string) {
	s, old := trio(t)
	for round := range 3 {
		key := fmt.Sprintf("lock:%d", round)
		owner := old.speak(t)
		owner.wants("OK", "SET", key, "first", "NX", "PX", "60000")
		var asking []*speaker
		for range 8 {
			asking = append(asking, old.speak(t))
		}
		old.pause()
		for _, c := range asking {
			if err := c.resp.Send(append(ask, key)...); err != nil {
				t.Fatal(err)
			}
		}
		next := s.leads(t, old)
		c := next.speak(t)
		c.wants("1", "EVAL", releaseScript, "1", key, "first")
		c.wants("OK", "SET", key, "second", "NX", "PX", "60000")
		old.resume()
		for _, c := range asking {
			if reply, err := c.resp.Receive(); err != nil || flat(reply) != "second" {
				t.Errorf("round %d: %s, paused through an election: %v, %v; want the new owner", round, old.id, reply, err)
			}
		}
		old = next
	}
}

// TestJ5StaleReadPausedLeader: a leader that slept through its deposition does
// not answer from the state that it had.
func TestJ5StaleReadPausedLeader(t *testing.T) { readsAfterPause(t, "GET") }

// TestJ16StaleReadInScriptAfterPause: neither does a script.
func TestJ16StaleReadInScriptAfterPause(t *testing.T) {
	readsAfterPause(t, "EVAL", `return redis.call('GET', KEYS[1])`, "1")
}

// TestJ14StalledLeaderRevokesNothing: the leader's disk stalls, its owners renew
// with the next leader, and what the old one thinks of their leases when its disk
// goes on means nothing.
func TestJ14StalledLeaderRevokesNothing(t *testing.T) {
	s, old := trio(t)
	if old.disk == nil {
		t.Skipf("skipping: %v", s.f.noDisks)
	}
	var others []*speaker
	for _, n := range s.f.nodes {
		if n != old {
			others = append(others, n.speak(t))
		}
	}
	const lease = 2 * time.Second
	name := func(i int) (key, owner string) { return fmt.Sprintf("lock:%d", i), fmt.Sprintf("owner-%d", i) }
	const locks = 50
	for i := range locks {
		key, owner := name(i)
		others[i%2].wants("OK", "SET", key, owner, "NX", "PX", millis(lease))
	}
	if err := old.disk.freeze(); err != nil {
		t.Fatal(err)
	}
	// Something to write, so that the stall is met.
	if err := old.speak(t).resp.Send("SET", "stalled", "1"); err != nil {
		t.Fatal(err)
	}
	// A stalled disk alone deposes nobody: heartbeats need none. The leader's
	// peers must lose it, too.
	old.pause()
	s.leads(t, old)
	renewed := time.Now()
	for i := range locks {
		key, owner := name(i)
		others[i%2].wants("1", "EVAL", renewScript, "1", key, owner, "60000")
	}
	old.resume()
	time.Sleep(time.Until(renewed.Add(lease + time.Second))) // real processes: the first leases are over
	if err := old.disk.thaw(); err != nil {
		t.Fatal(err)
	}
	if err := s.f.waitReady(readyLimit); err != nil {
		t.Fatal(err)
	}
	here := old.speak(t)
	for i := range locks {
		key, owner := name(i)
		here.wants(owner, "GET", key)
		here.wants("", "SET", key, "thief", "NX", "PX", "1000")
	}
	if err := s.f.waitEqual(equalLimit); err != nil {
		t.Error(err)
	}
}

// TestJ13BusyLeaderKeepsLeading: neither scripts that keep the leader busy nor a
// disk that stutters, nor both, cost it its office.
func TestJ13BusyLeaderKeepsLeading(t *testing.T) {
	s, leader := trio(t)
	before, err := leader.status()
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for _, n := range s.f.nodes {
		c := n.speak(t)
		busy.Go(func() {
			for !ended(stop) {
				// About a tenth of a second each.
				c.wants("1", "EVAL", `for i = 1, 2000000 do end redis.call('INCR', KEYS[1]) return 1`, "1", "busy")
			}
		})
	}
	user := s.f.nodes[0].speak(t)
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); {
		if leader.disk != nil {
			if err := leader.disk.freeze(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(150 * time.Millisecond) // a disk that stutters
			if err := leader.disk.thaw(); err != nil {
				t.Fatal(err)
			}
		}
		user.wants("OK", "SET", "lock", "me", "PX", "60000")
	}
	close(stop)
	busy.Wait()
	after, err := leader.status()
	if err != nil || after["role"] != "leader" || after["term"] != before["term"] {
		t.Errorf("%s led in term %s; now: %s, term %s, %v", leader.id, before["term"], after["role"], after["term"], err)
	}
}

//go:build linux

package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/server/respclient"
)

// trio starts three nodes, and returns the suite and the leader.
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

// leads waits until a node is the leader that is not the node "old", and returns it.
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
	resp *respclient.Conn
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
	return &speaker{t, n, respclient.NewConn(conn)}
}

// wants sends a command and checks its reply.
func (c *speaker) wants(want string, args ...string) {
	c.t.Helper()
	reply, err := c.resp.Do(args...)
	if err != nil || flat(reply) != want {
		c.t.Errorf("%s: %q: %v, %v; want %q", c.n.id, args, reply, err, want)
	}
}

// readsAfterPause sends a command to a paused leader. The answer must name the owner to which the next leader has given the lock.
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

// TestJ5StaleReadPausedLeader: a leader that was paused while it was deposed does not answer reads from its old state.
func TestJ5StaleReadPausedLeader(t *testing.T) { readsAfterPause(t, "GET") }

// TestJ16StaleReadInScriptAfterPause: a script on such a paused leader does not answer from the old state either.
func TestJ16StaleReadInScriptAfterPause(t *testing.T) {
	readsAfterPause(t, "EVAL", `return redis.call('GET', KEYS[1])`, "1")
}

// TestJ14StalledLeaderRevokesNothing: a leader whose disk stalled ends no lock that its owner has renewed at the next leader.
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
	// This write makes the leader wait for the stalled disk.
	if err := old.speak(t).resp.Send("SET", "stalled", "1"); err != nil {
		t.Fatal(err)
	}
	// A stalled disk alone does not depose a leader, because heartbeats need no disk. So the leader is paused, too.
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

// TestJ13BusyLeaderKeepsLeading: a leader stays leader although scripts keep it busy and its disk stalls again and again at the
// same time.
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
				// Each of these scripts takes about a tenth of a second.
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

// TestFullDisk: a node whose disk is full is not ready, or does not start, and says why. With room again, it recovers.
func TestFullDisk(t *testing.T) {
	s, leader := trio(t)
	if leader.disk == nil {
		t.Skipf("skipping: %v", s.f.noDisks)
	}
	n := s.f.nodes[0]
	if n == leader {
		n = s.f.nodes[1]
	}
	user := leader.speak(t)
	until := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(readyLimit); !done(); time.Sleep(10 * time.Millisecond) { // polls processes
			if time.Now().After(deadline) {
				t.Fatalf("no sign of %s:\n%s", what, n.lastWords())
			}
		}
	}
	well := func() {
		t.Helper()
		if err := n.disk.empty(); err != nil {
			t.Fatal(err)
		}
		if err := n.start(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.f.waitReady(readyLimit), s.f.waitEqual(equalLimit)); err != nil {
			t.Error(err)
		}
		for _, how := range n.crashed() {
			t.Error(how)
		}
	}
	if err := n.disk.fill(); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		user.wants("OK", "SET", "large", strings.Repeat("x", 400<<10))
	}
	until("a full disk", func() bool { err := n.ready(); return err != nil && strings.Contains(err.Error(), " 503 ") })
	user.wants("OK", "SET", "lock", "me", "NX", "PX", "60000")
	n.speak(t).wants("me", "GET", "lock") // the node still passes requests on to the leader
	well()

	if err := n.disk.fill(); err != nil {
		t.Fatal(err)
	}
	n.excuse()
	n.kill()
	if err := n.start(); err != nil {
		t.Fatal(err)
	}
	until("its end", n.died)
	if words := n.lastWords(); !strings.Contains(words, "disk is full") || strings.Contains(words, "damaged") {
		t.Errorf("a start on a full disk: %s", words)
	}
	user.wants("me", "GET", "lock")
	well()
}

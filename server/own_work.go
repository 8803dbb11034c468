package server

import (
	"slices"
	"time"

	"lockstep/store"
)

// Commands that a node answers itself (COMMAND DOCS, CLIENT LIST, AUTH, PING …) are in no batch of the leader, so they are
// not among the turns that users take there. A few connections that pipeline them would have all of a node's processors, and
// a leader without a processor is replaced. So a client whose commands of this kind have taken ownSlice within a second
// gives way before the next one: such work has a quarter of the time while others have requests (fair.Gate.Rest), and all of
// it otherwise.

const (
	// ownSlice is how long a node works for a client before the client gives way …
	ownSlice = time.Millisecond
	// … and ownMemory is after how long that begins anew.
	ownMemory = time.Second
	// outputTakes is the time that encoding and sending a byte takes.
	outputTakes = 10 * time.Nanosecond
)

// ownWork is what a node has done by itself for a client.
type ownWork struct {
	took  time.Duration
	since time.Time
}

// add counts a command that ended now and added bytes to the output.
func (w *ownWork) add(cmd *store.Command, now time.Time, took time.Duration, bytes int) {
	if isPlumbing(cmd) {
		return
	}
	if now.Sub(w.since) > ownMemory {
		*w = ownWork{since: now}
	}
	w.took += took + time.Duration(max(bytes, 0))*outputTakes
}

// isPlumbing reports whether a command belongs to what locks are made of: notifications and transactions. It does not count,
// and waits for no turn.
func isPlumbing(cmd *store.Command) bool { return cmd.Is(store.PubSub) || cmd.Group == "transactions" }

// mustRest reports whether the client has to give way before this node runs a command for it.
func (s *session) mustRest(cmd *store.Command) bool {
	switch {
	case s.own.took <= ownSlice || s.needsAuth():
		return false
	case cmd == s.srv.execCmd && s.multi != nil:
		return slices.ContainsFunc(s.multi.commands, func(q queued) bool { return q.do != nil && !isPlumbing(q.cmd) })
	}
	return !isPlumbing(cmd)
}

// rest gives way if the client has to. A loop hands such a client to a goroutine first.
func (s *session) rest(cmd *store.Command) {
	if !s.mustRest(cmd) || !s.mayWait() {
		return
	}
	s.out.flush() // earlier replies need not wait
	took := s.own.took
	s.own = ownWork{since: s.srv.cfg.Clock()}
	s.srv.backend.Rest(s.client, took)
}

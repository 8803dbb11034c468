package server

import (
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
	// queueTakes is the time that a command takes that MULTI has queued for nothing.
	queueTakes = 500 * time.Nanosecond
	// plumbingTakes is the time that a command takes of those that isPlumbing names, whatever the clock says, and
	// plumbingShare the part of it that counts.
	plumbingTakes = time.Microsecond
	plumbingShare = 10
	// byteTakes is the time that reading, or encoding and sending, a byte takes.
	byteTakes = 10 * time.Nanosecond
)

// ownWork is what a node has done by itself for a client.
type ownWork struct {
	took  time.Duration
	since time.Time
}

// add counts a command that ended now, and had so many bytes of arguments and reply; cmd is nil if there is none of that name.
func (w *ownWork) add(cmd *store.Command, now time.Time, took time.Duration, bytes int) {
	if now.Sub(w.since) > ownMemory {
		w.took, w.since = 0, now
	}
	cost := time.Duration(max(bytes, 0)) * byteTakes
	if isPlumbing(cmd) {
		w.took += (plumbingTakes + cost) / plumbingShare
		return
	}
	w.took += took + cost
}

// exceeds reports whether the work has taken more than limit, and was done lately. It reads the clock only if it has to.
func (w *ownWork) exceeds(limit time.Duration, clock func() time.Time) bool {
	return w.took > limit && clock().Sub(w.since) <= ownMemory
}

func argumentBytes(args [][]byte) (n int) {
	for _, arg := range args {
		n += len(arg)
	}
	return n
}

// isPlumbing reports whether a command belongs to what locks are made of: subscriptions and transactions. It counts for a
// tenth of what it costs, and waits for a turn only if that is much: a flood of them.
func isPlumbing(cmd *store.Command) bool {
	if cmd == nil {
		return false
	}
	switch cmd.FullName() {
	case "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe", "multi", "exec", "watch":
		return true
	}
	return false
}

// mustRest reports whether the client has to give way before this node answers a command for it by itself.
func (s *session) mustRest(cmd *store.Command) bool {
	limit := ownSlice
	if isPlumbing(cmd) {
		limit *= plumbingShare
	}
	return s.own.exceeds(limit, s.srv.cfg.Clock) && !s.needsAuth()
}

// rest gives way if the client has to, and reports whether it did. A loop hands such a client to a goroutine first.
func (s *session) rest(cmd *store.Command) (waited bool) {
	if !s.mustRest(cmd) || !s.mayWait() {
		return false
	}
	s.out.flush() // earlier replies need not wait
	took := s.own.took
	s.own.took, s.own.since = 0, s.srv.cfg.Clock()
	s.srv.backend.Rest(s.client, took)
	return true
}

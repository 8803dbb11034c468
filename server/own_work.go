package server

import (
	"sync/atomic"
	"time"

	"lockstep/store"
)

// Commands that a node answers itself (COMMAND DOCS, CLIENT LIST, AUTH, PING …) are in no batch of the leader, so they are
// not among the turns that users take there. A few connections that pipeline them would have all of a node's processors, and
// a leader without a processor is replaced. So a client whose commands of this kind have taken ownSlice within a second
// gives way before the next one: such work has a quarter of the time while others have requests (fair.Gate.Rest), and all of
// it otherwise.

// Many clients that each stay below ownSlice would have all processors, too. So once a node has worked for ownAtOnce within
// a second, for whomever, each client has a tenth of ownSlice for the rest of that second.

const (
	// ownSlice is how long a node works for a client before the client gives way …
	ownSlice = time.Millisecond
	// … and ownMemory is after how long that begins anew.
	ownMemory = time.Second
	// ownAtOnce is how long a node works for all clients in a second before they have less each: ownSlice/ownCrowd.
	ownAtOnce = 100 * time.Millisecond
	ownCrowd  = 10
	// ownStep is how much of a client's work is told to the node at once.
	ownStep = 20 * time.Microsecond
	// queueTakes is the time that a command takes that MULTI has queued for nothing.
	queueTakes = 500 * time.Nanosecond
	// emptyTakes is the time that a line takes that makes no command; emptyBytes of spaces count as another line.
	emptyTakes = 50 * time.Nanosecond
	emptyBytes = 64
	// plumbingTakes is the time that a command takes of those that isPlumbing names, whatever the clock says, and
	// plumbingSlices how many times ownSlice a client has for them.
	plumbingTakes  = time.Microsecond
	plumbingSlices = 5
	// byteTakes is the time that reading, or encoding and sending, a byte takes.
	byteTakes = 10 * time.Nanosecond
)

// ownWork is what a node has done by itself for a client.
type ownWork struct {
	all   *allOwnWork
	took  time.Duration
	told  time.Duration // the part of it that all has
	since time.Time
	paid  time.Duration // the client has given way for this part of the next command already
}

// allOwnWork is what a node has done by itself for all its clients in this second.
type allOwnWork struct {
	took  atomic.Int64
	since atomic.Int64 // Unix time in ns
}

func (w *allOwnWork) add(now time.Time, took time.Duration) {
	if since := w.since.Load(); now.UnixNano()-since > int64(ownMemory) && w.since.CompareAndSwap(since, now.UnixNano()) {
		w.took.Store(0)
	}
	w.took.Add(int64(took))
}

// isMuch reports whether it is so much that each client has less.
func (w *allOwnWork) isMuch() bool { return w.took.Load() > int64(ownAtOnce) }

// add counts a command that ended now, and had so many bytes of arguments and reply; cmd is nil if there is none of that name.
func (w *ownWork) add(cmd *store.Command, now time.Time, took time.Duration, bytes int) {
	if now.Sub(w.since) > ownMemory {
		w.took, w.told, w.since = 0, 0, now
	}
	if isPlumbing(cmd) {
		took = plumbingTakes
	}
	took, w.paid = max(took-w.paid, 0), 0
	w.took += took + time.Duration(max(bytes, 0))*byteTakes
	if untold := w.took - w.told; untold > ownStep {
		w.all.add(now, untold)
		w.told = w.took
	}
}

// rested begins anew, after the client has given way, and returns what the work has taken.
func (w *ownWork) rested(now time.Time) (took time.Duration) {
	took = w.took
	w.took, w.told, w.since = 0, 0, now
	return took
}

// exceeds reports whether the work has taken more than limit, or a part of limit if the node works much for all its clients,
// and was done lately. It reads the clock only if it has to.
func (w *ownWork) exceeds(limit time.Duration, clock func() time.Time) bool {
	if w.took <= limit/ownCrowd || w.took <= limit && !w.all.isMuch() {
		return false
	}
	return clock().Sub(w.since) <= ownMemory
}

// wouldExceed reports whether the work does so with a command that will take some time.
func (w *ownWork) wouldExceed(limit, takes time.Duration, now time.Time) bool {
	if now.Sub(w.since) <= ownMemory {
		takes += w.took
	}
	return takes > limit || takes > limit/ownCrowd && w.all.isMuch()
}

func argumentBytes(args [][]byte) (n int) {
	for _, arg := range args {
		n += len(arg)
	}
	return n
}

// isPlumbing reports whether a command belongs to what locks are made of: subscriptions and transactions. A client has some
// thousand of them in a second before it gives way.
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

// fewNames is how many subscriptions, or prefixes of tracking, a loop begins or ends at once.
const fewNames = 200

// namesIn returns how many subscriptions and prefixes of tracking a command begins or ends. What a client of a few has does not
// count.
func (s *session) namesIn(cmd *store.Command, args [][]byte) int {
	has := s.listensTo()
	if cmd == nil || has+len(args) <= fewNames && s.multi == nil {
		return 0
	}
	switch cmd.FullName() {
	case "subscribe", "psubscribe", "ssubscribe":
		return len(args) - 1
	case "unsubscribe", "punsubscribe", "sunsubscribe":
		if len(args) > 1 {
			return len(args) - 1
		}
		return has
	case "client|tracking":
		return has + len(args)
	case "reset":
		return has
	}
	return 0
}

// fewChecks is how many steps of checks of rights do not count for a command, and checkTakes the time of any other.
const (
	fewChecks  = 256
	checkTakes = 20 * time.Nanosecond
)

// countChecks counts, once a command has been run, collected or refused, how long its rights were checked. No earlier: it would
// have to give way for its own checks, which are made again then.
func (s *session) countChecks() {
	if n := s.checked; n > fewChecks {
		paid := s.own.paid
		s.own.paid = 0
		s.own.add(nil, s.srv.cfg.Clock(), time.Duration(n)*checkTakes, 0)
		s.own.paid = paid
	}
	s.checked = 0
}

// checksMuch reports whether a command for the leader has to give way before: its rights take long to check, and the client has had
// its part.
func (s *session) checksMuch() bool {
	return s.checked > fewChecks && s.own.exceeds(ownSlice, s.srv.cfg.Clock) && !s.needsAuth()
}

// listensTo returns how many subscriptions and prefixes of tracking the session has.
func (s *session) listensTo() int { return int(s.subbed.Load()) + len(s.tracking.Load().listens()) }

// namesTake is the time that the names in a command take, if they are many: the client gives way for them before, because
// a client that has had nothing yet would not, and there may be hundreds of it.
func (s *session) namesTake(cmd *store.Command, args [][]byte) time.Duration {
	if n := s.namesIn(cmd, args); n > fewNames {
		return time.Duration(n) * plumbingTakes
	}
	return 0
}

// named counts the names in a command beyond the first, which counts as the command.
func (s *session) named(n int) {
	if n > 1 {
		s.own.add(nil, s.srv.cfg.Clock(), time.Duration(n-1)*plumbingTakes, 0)
	}
}

// mustRest reports whether the client has to give way before this node answers a command for it by itself.
func (s *session) mustRest(cmd *store.Command, args [][]byte) bool {
	if s.srv.kills[cmd] {
		return false // what it would give way for may wait for the script
	}
	limit := ownSlice
	if isPlumbing(cmd) {
		limit *= plumbingSlices
	}
	if s.own.exceeds(limit, s.srv.cfg.Clock) {
		return !s.needsAuth()
	}
	takes := s.namesTake(cmd, args)
	return takes > 0 && s.own.paid == 0 && s.own.wouldExceed(plumbingSlices*ownSlice, takes, s.srv.cfg.Clock()) && !s.needsAuth()
}

// rest gives way if the client has to, and reports whether it did. A loop hands such a client to a goroutine first.
func (s *session) rest(cmd *store.Command, args [][]byte) (waited bool) {
	if !s.mustRest(cmd, args) || !s.mayWait() {
		return false
	}
	s.out.flush() // earlier replies need not wait
	takes := s.namesTake(cmd, args)
	s.srv.backend.Rest(s.client, s.own.rested(s.srv.cfg.Clock())+takes)
	s.own.paid = takes
	return true
}

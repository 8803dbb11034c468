package server

import (
	"sync/atomic"
	"time"

	"lockstep/store"
)

// A node answers some commands itself (COMMAND DOCS, CLIENT LIST, AUTH, PING …). They are in no batch of the leader, so the turns
// of users there do not bound them. A few connections that pipeline such commands could take all of a node's processors, and a
// leader without processor time loses its leadership. So a client gives way before its next command of this kind (fair.Gate.Rest)
// once such commands have taken ownSlice within a second. From then on, the commands of this kind have a quarter of the time while
// clients have requests for the leader, and all of the time otherwise.

// Many clients that each stay below ownSlice could take all processors, too. So once a node has worked for ownAtOnce within
// a second, for all clients together, each client has a tenth of ownSlice for the rest of that second.

const (
	// ownSlice is how long a node works for a client before the client gives way …
	ownSlice = time.Millisecond
	// … and ownMemory is the time after which this count begins at 0 again.
	ownMemory = time.Second
	// ownAtOnce is how long a node works for all clients in a second before each of them has only ownSlice/ownCrowd.
	ownAtOnce = 100 * time.Millisecond
	ownCrowd  = 10
	// ownStep is how much of a client's work may be missing in the count of the node.
	ownStep = 20 * time.Microsecond
	// queueTakes is the cost of a command that MULTI has queued, if the transaction does not run.
	queueTakes = 500 * time.Nanosecond
	// emptyTakes is the cost of a line without a command. Each emptyBytes bytes of the line cost as much again.
	emptyTakes = 50 * time.Nanosecond
	emptyBytes = 64
	// plumbingTakes is the fixed cost of a command for which isPlumbing is true, whatever the clock says. plumbingSlices is how
	// many times ownSlice a client has for such commands.
	plumbingTakes  = time.Microsecond
	plumbingSlices = 5
	// byteTakes is the time that reading, or encoding and sending, a byte takes.
	byteTakes = 10 * time.Nanosecond
)

// ownWork is what a node has done by itself for a client.
type ownWork struct {
	all   *allOwnWork
	took  time.Duration
	told  time.Duration // the part of took that has been added to all
	since time.Time
	paid  time.Duration // the part of the next command's time for which the client has given way already

	waited time.Duration // how much of the present command's time was a wait for the leader's answer
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

// isMuch reports whether the node has worked so much in this second that each client has only ownSlice/ownCrowd.
func (w *allOwnWork) isMuch() bool { return w.took.Load() > int64(ownAtOnce) }

// add counts a command that has just ended, without its wait for the leader. bytes are those of its arguments and its reply. cmd is
// nil if the name is unknown.
func (w *ownWork) add(cmd *store.Command, now time.Time, took time.Duration, bytes int) {
	if now.Sub(w.since) > ownMemory {
		w.took, w.told, w.since = 0, 0, now
	}
	if isPlumbing(cmd) {
		took = plumbingTakes
	}
	took, w.paid, w.waited = max(took-w.paid-w.waited, 0), 0, 0
	w.took += took + time.Duration(max(bytes, 0))*byteTakes
	if untold := w.took - w.told; untold > ownStep {
		w.all.add(now, untold)
		w.told = w.took
	}
}

// rested returns the time that the work has taken, and resets the count: the client is about to give way for that time.
func (w *ownWork) rested(now time.Time) (took time.Duration) {
	took = w.took
	w.took, w.told, w.since = 0, 0, now
	return took
}

// exceeds reports whether the work of the last second has taken more than limit, or more than limit/ownCrowd if the node works
// much for all its clients. It reads the clock only if it has to.
func (w *ownWork) exceeds(limit time.Duration, clock func() time.Time) bool {
	if w.took <= limit/ownCrowd || w.took <= limit && !w.all.isMuch() {
		return false
	}
	return clock().Sub(w.since) <= ownMemory
}

// wouldExceed reports whether the work will exceed the limit with one more command; takes is the time that this command will take.
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

// isPlumbing reports whether a command is one of those for subscriptions and transactions from which clients build locks. A client
// may run up to 5,000 such commands in a second before it gives way, or 500 if the node works much for all its clients.
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

// fewNames is the most subscriptions, or prefixes of tracking, that a loop begins or ends itself. For more of them, it starts a
// goroutine.
const fewNames = 200

// namesIn returns how many subscriptions and prefixes of tracking a command begins or ends. Outside MULTI it returns 0 if the
// client's present ones and the arguments of the command are few together (fewNames).
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

// fewChecks is how many steps the checks of a command's rights may take without a charge. If they take more, each step costs
// checkTakes.
const (
	fewChecks  = 256
	checkTakes = 20 * time.Nanosecond
)

// countChecks charges the client for the checks of a command's rights, once the command has been run, collected or refused.
// If the charge came earlier, the client would give way for these very checks, and the node would then make them again.
func (s *session) countChecks() {
	if n := s.checked; n > fewChecks {
		paid := s.own.paid
		s.own.paid = 0
		s.own.add(nil, s.srv.cfg.Clock(), time.Duration(n)*checkTakes, 0)
		s.own.paid = paid
	}
	s.checked = 0
}

// checksMuch reports whether the client has to give way before the node collects a command for the leader: the checks of its
// rights took long, and the client has used up its part of the time.
func (s *session) checksMuch() bool {
	return s.checked > fewChecks && s.own.exceeds(ownSlice, s.srv.cfg.Clock) && !s.needsAuth()
}

// listensTo returns how many subscriptions and prefixes of tracking the session has.
func (s *session) listensTo() int { return int(s.subbed.Load()) + len(s.tracking.Load().listens()) }

// namesTake is the time that the names in a command will take; 0 if they are few. The client gives way for them before the
// command, not after it: hundreds of clients may each send one such command as their first.
func (s *session) namesTake(cmd *store.Command, args [][]byte) time.Duration {
	if n := s.namesIn(cmd, args); n > fewNames {
		return time.Duration(n) * plumbingTakes
	}
	return 0
}

// named charges the client for all names in a command except the first, which the cost of the command itself covers.
func (s *session) named(n int) {
	if n > 1 {
		s.own.add(nil, s.srv.cfg.Clock(), time.Duration(n-1)*plumbingTakes, 0)
	}
}

// mustRest reports whether the client has to give way before this node itself answers a command of the client.
func (s *session) mustRest(cmd *store.Command, args [][]byte) bool {
	if s.srv.kills[cmd] {
		return false // the client would give way to requests that may wait for the script to be killed
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

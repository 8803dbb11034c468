package server

import (
	"sync/atomic"
	"time"

	"lockstep/cluster"
	"lockstep/store"
)

// A node answers some commands itself (COMMAND DOCS, CLIENT LIST, AUTH, PING …). The leader makes users take turns, but these commands
// never reach the leader. So a few connections that pipeline such commands could take all of a node's processors. A leader without
// processor time loses its leadership.
//
// So a client has to give way when its commands of this kind have taken ownSlice within a second. Before its next such command, the
// client waits while requests of other clients go to the leader first (fair.Gate.Rest). While others have requests for the leader, all
// clients that give way share about a quarter of the node's time. Otherwise they share all of its time.

// Many clients that each stay below ownSlice could take all processors, too. So the node also counts its work for all clients together.
// If that work exceeds ownAtOnce within a second, each client has to give way after a tenth of ownSlice until the present second is
// over.

const (
	// ownSlice is how long a node works for a client by itself before the client gives way …
	ownSlice = time.Millisecond
	// … and ownMemory is the time after which the node counts this work from 0 again.
	ownMemory = time.Second
	// ownAtOnce is how long a node works for all clients in a second before each of them has only ownSlice/ownCrowd.
	ownAtOnce = 100 * time.Millisecond
	ownCrowd  = 10
	// A client's work is added to the work for all clients (allOwnWork) when more than ownStep of it has not been added yet.
	ownStep = 20 * time.Microsecond
	// queueTakes is the cost of queueing one command after MULTI. The client is charged for it only if the transaction does not run.
	queueTakes = 500 * time.Nanosecond
	// emptyTakes is the cost of a line without a command. Each emptyBytes bytes of the line cost the same amount in addition.
	emptyTakes = 50 * time.Nanosecond
	emptyBytes = 64
	// plumbingTakes is the cost of each command for which isPlumbing is true, however long it has really taken. Before such
	// a command, a client gives way only when the node has worked for the client for plumbingSlices times ownSlice.
	plumbingTakes  = time.Microsecond
	plumbingSlices = 5
	// byteTakes is the time for reading a byte, or for encoding and sending one.
	byteTakes = 10 * time.Nanosecond
)

// ownWork counts the time that a node has worked by itself for a client.
type ownWork struct {
	all   *allOwnWork
	took  time.Duration // the work so far in the present count
	told  time.Duration // the part of took that has been added to all
	since time.Time     // when the present count began
	paid  time.Duration // how much time of the next command is free of charge, because the client has given way for it already

	waited time.Duration // how long the present command has waited (session.idle)
}

// allOwnWork counts the time that a node has worked by itself for all its clients. The first call
// of add that comes more than ownMemory after the count began starts a new count.
type allOwnWork struct {
	took  atomic.Int64 // the work so far, in nanoseconds
	since atomic.Int64 // when the present count began: Unix time in ns
}

func (w *allOwnWork) add(now time.Time, took time.Duration) {
	if since := w.since.Load(); now.UnixNano()-since > int64(ownMemory) && w.since.CompareAndSwap(since, now.UnixNano()) {
		w.took.Store(0)
	}
	w.took.Add(int64(took))
}

// isMuch reports whether the node has worked so much that each client has only ownSlice/ownCrowd. It does not look at
// the clock. So it may still report true when the second is over, until add counts new work.
func (w *allOwnWork) isMuch() bool { return w.took.Load() > int64(ownAtOnce) }

// add charges the client for work that has just ended. The argument took is how long the work lasted; add subtracts the fields paid and
// waited from it. The argument bytes is how many bytes the arguments and the reply have. cmd is nil for a refused command. It is also
// nil for work that is charged apart from a command, such as the check of rights.
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

// idle notes that the session begins to wait, for the leader or for time, within a command that this node answers itself.
// The session must call the result when the wait is over. The time of the wait does not count as work of this node
// (ownWork.waited).
func (s *session) idle() (over func()) {
	began := s.srv.cfg.Clock()
	return func() { s.own.waited += s.srv.cfg.Clock().Sub(began) }
}

// askLeader has the leader run a call that a command of this node needs, and returns the reply.
func (s *session) askLeader(c cluster.Call) store.Reply {
	defer s.idle()()
	return s.srv.backend.Submit([]cluster.Call{c}, nil)[0]
}

// rested resets the count and returns the time that the work had taken: the client is about to give way for that time.
func (w *ownWork) rested(now time.Time) (took time.Duration) {
	took = w.took
	w.took, w.told, w.since = 0, 0, now
	return took
}

// exceeds reports whether the node has worked for the client for more than limit within a second. The limit is divided
// by ownCrowd if the node has worked much for all clients together (isMuch). exceeds calls clock only if it has to.
func (w *ownWork) exceeds(limit time.Duration, clock func() time.Time) bool {
	if w.took <= limit/ownCrowd || w.took <= limit && !w.all.isMuch() {
		return false
	}
	return clock().Sub(w.since) <= ownMemory
}

// wouldExceed reports what the method exceeds would report if the node had run one more command for the client. The argument takes is
// the time that this command will take.
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

// isPlumbing reports whether a command is one of those for subscriptions and transactions that clients use for locks. A
// client may run up to 5,000 such commands in a second before it gives way. If the node works much for all its clients
// (isMuch), it may run up to 500.
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

// fewNames is the largest number of subscriptions, or of prefixes for CLIENT TRACKING, that a loop begins or ends itself for one
// command. For more of them, it starts a goroutine.
const fewNames = 200

// namesIn returns how many subscriptions and prefixes for CLIENT TRACKING a command begins or ends at most. Outside MULTI, it
// returns 0 if that cannot be many: if the client's subscriptions, its prefixes and the command's arguments are at most fewNames
// together.
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

// fewChecks is how many steps the node may take, without a charge, to check whether a user may run a command. If it takes more, each
// step costs checkTakes, including the first ones.
const (
	fewChecks  = 256
	checkTakes = 20 * time.Nanosecond
)

// countChecks charges the client for the checks whether its user may run a command. It must be called only when the command
// has been run, queued or refused, or is about to be collected. After an earlier charge, the client would give way because
// of these very checks, and then the node would have to make them again.
func (s *session) countChecks() {
	if n := s.checked; n > fewChecks {
		paid := s.own.paid
		s.own.paid = 0
		s.own.add(nil, s.srv.cfg.Clock(), time.Duration(n)*checkTakes, 0)
		s.own.paid = paid
	}
	s.checked = 0
}

// checksMuch reports whether the client has to give way before the node collects a command for the leader. It has to if the
// node took many steps to check whether the user may run the command, and has already worked for ownSlice for the client.
func (s *session) checksMuch() bool {
	return s.checked > fewChecks && s.own.exceeds(ownSlice, s.srv.cfg.Clock) && !s.needsAuth()
}

// listensTo returns how many subscriptions and prefixes for CLIENT TRACKING the session has.
func (s *session) listensTo() int { return int(s.subbed.Load()) + len(s.tracking.Load().listens()) }

// namesTake returns the time that a command will take for its names (namesIn); 0 if they are few. The client gives way for them
// before the command, not after it: hundreds of clients may each send one such command as their first.
func (s *session) namesTake(cmd *store.Command, args [][]byte) time.Duration {
	if n := s.namesIn(cmd, args); n > fewNames {
		return time.Duration(n) * plumbingTakes
	}
	return 0
}

// named charges the client for the n names of a command, except for the first, which the cost of the command itself covers.
func (s *session) named(n int) {
	if n > 1 {
		s.own.add(nil, s.srv.cfg.Clock(), time.Duration(n-1)*plumbingTakes, 0)
	}
}

// mustRest reports whether the client has to give way before this node itself answers a command of the client.
func (s *session) mustRest(cmd *store.Command, args [][]byte) bool {
	if s.srv.kills[cmd] {
		return false // otherwise the client would give way to requests that may wait for the very script that this command ends
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

// rest makes the client give way if it has to (mustRest), and reports whether it did. On a loop it does nothing: the loop hands such
// a client to a goroutine first.
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

package cluster

import (
	"time"

	"github.com/lockstep-io/lockstep/cluster/brake"
	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/store"
)

// All other requests wait while a script or a command runs. So at the time limit of scripts, the leader stops a script, a
// transaction, or a command that takes many steps, and undoes all of it. It also halves the limit of the user (fair.Limits).
// Otherwise a few clients that run such work in turn would keep all others out.

// turn describes the command or script that runs now, and its time limit.
type turn struct {
	user  string
	since time.Duration // monotonic start; 0: the clock has not been read yet
	limit time.Duration // 0: no limit
	full  time.Duration // the limit that a user has if it is not shortened
	over  bool          // the method watch has stopped the command
	noted bool          // the limit of the user has been halved because of this turn
	ended time.Duration // monotonic time at which the last script of the turn ended; 0: it ran none
}

// startTurn begins to measure the time of a command or script of a user, and finds the time limit of that user.
func (s *sequencer) startTurn(user string) {
	s.turn = turn{user: user, since: s.node.cfg.Time.Monotonic()}
	if s.node.cfg.Scripts == nil {
		return
	}
	s.turn.full = s.node.cfg.Scripts.TimeLimit()
	s.turn.limit = s.node.overruns.Limit(user, s.turn.full, s.turn.since)
}

// tellOverruns returns the users whose limits are shortened, for this node to send to the other members.
func (n *Node) tellOverruns() []fair.Overrun {
	if n.cfg.Scripts == nil {
		return nil
	}
	return n.overruns.Tell(n.cfg.Scripts.TimeLimit(), n.cfg.Time.Monotonic())
}

// learnOverruns takes over the members' shortened limits, so that an endless script does not get the whole limit at each new
// leader.
func (n *Node) learnOverruns() {
	if n.cfg.Scripts == nil {
		return
	}
	full, now := n.cfg.Scripts.TimeLimit(), n.cfg.Time.Monotonic()
	n.peers.Overruns(func(list []fair.Overrun, age time.Duration) { n.overruns.Learn(list, age, full, now) })
}

// ran returns how long the present turn has run.
func (s *sequencer) ran() time.Duration { return s.node.cfg.Time.Monotonic() - s.turn.since }

// overTime reports whether the present turn has reached its time limit.
func (s *sequencer) overTime() bool { return s.turn.limit > 0 && s.ran() >= s.turn.limit }

// usedUp returns how much of the full time limit is gone for a script: what its user has lost, and the present turn's time.
func (s *sequencer) usedUp() time.Duration { return s.turn.full - s.turn.limit + s.ran() }

// watch is store.Ctx.Watch of a command: its first call starts the turn. A short command reads no clock.
func (s *sequencer) watch() {
	brake.Look() // a command such as SUNION may take much memory that nothing else counts
	if s.turn.since == 0 {
		s.startTurn(s.turn.user)
		return
	}
	if s.turn.over, s.ctx.StoppedForNow = s.mustStop(); s.turn.over {
		panic(errOverTime)
	}
}

// mustStop reports whether the present command or script must stop. The result forNow: only until a later batch, because earlier
// requests of this batch wait.
func (s *sequencer) mustStop() (stop, forNow bool) {
	forNow = s.company && s.ran() > companyTime
	return forNow || s.overTime(), forNow
}

// runCommand runs a command that is no script. The parameter stopped is the error for a command that the method watch stops.
func (s *sequencer) runCommand(ctx *store.Ctx, stopped store.Error) (reply store.Reply) {
	ctx.Watch = s.watches
	defer func() {
		if s.turn.over {
			recover()
			s.turn.over = false
			ctx.Stopped, ctx.StoppedForNow = s.outOfTime(stopped), s.ctx.StoppedForNow
			reply = store.Err(ctx.Stopped)
			s.wasStopped(ctx)
		}
	}()
	return ctx.Call(ctx.Cmd.Run)
}

// stopTransaction stops a transaction before its next command.
func (s *sequencer) stopTransaction(ctx *store.Ctx, forNow bool) store.Reply {
	ctx.Stopped, ctx.StoppedForNow = s.outOfTime(ErrTransactionTime), forNow
	s.wasStopped(ctx)
	return store.Err(ctx.Stopped)
}

// outOfTime returns the error for work that is stopped. If the limit of the user was shortened, the error says so.
func (s *sequencer) outOfTime(stopped store.Error) store.Error {
	return stopped + store.Error(store.ShortLimit(s.turn.full, s.turn.limit))
}

// wasStopped halves the limit of the user whose work reached its time limit, or used up its memory after fair.HeavyTime.
func (s *sequencer) wasStopped(ctx *store.Ctx) {
	late := ctx.Stopped != "" && !ctx.StoppedForNow && s.overTime()
	large := ctx.TookAll && s.turn.full > 0 && s.ran() > fair.HeavyTime
	if !late && !large {
		return
	}
	now := s.node.cfg.Time.Monotonic()
	s.turn.noted = true
	if s.node.overruns.Note(s.turn.user, s.ran(), s.turn.full, now) {
		s.log.Warn("a script or command was stopped by its time limit (script-time-limit) or for its memory, and nobody was served meanwhile; its user has half as much time for a minute, and half of that after the next",
			"user", s.turn.user, "left", s.node.overruns.Limit(s.turn.user, s.turn.full, now))
	}
}

// turnEnds shortens the limit of the turn's user if the turn took more than fair.GraceTime while light work waited.
func (s *sequencer) turnEnds(behind []*request, refused bool) {
	if s.turn.full == 0 || s.turn.noted {
		return // there is no limit, or the work was so short that the clock was never read, or wasStopped has halved the limit
	}
	now := s.turn.ended
	if now == 0 {
		now = s.node.cfg.Time.Monotonic()
	}
	took := now - s.turn.since
	if took > fair.GraceTime && (refused || s.users.AnyLight(behind, now) || s.lightWaits(now)) {
		s.node.overruns.Spend(s.turn.user, took, s.turn.full, now)
	}
}

// lightWaits reports whether any of the requests that wait for the next batch is not heavy.
func (s *sequencer) lightWaits(now time.Duration) (any bool) {
	s.in.Look(func(q []*request) { any = s.users.AnyLight(q, now) })
	return any
}

// leastUse is the shortest batch for which users are charged, unless there is heavy work (fair.CoarsePiece, fair.Turns.Counts).
const leastUse = 2 * time.Millisecond

// noteUse charges users with the time of their requests in a batch, except large writes, and begins the interval after long
// reads.
func (s *sequencer) noteUse(q []*request) {
	all, coarse := time.Duration(0), false
	for _, r := range q {
		all += r.used
		coarse = coarse || r.used >= fair.CoarsePiece
	}
	if all >= leastUse {
		brake.Look() // an evaluation of such a time may have allocated much more than its replies and writes
	}
	now := s.node.cfg.Time.Monotonic()
	if all < leastUse && !coarse && !s.users.Counts(now) {
		return
	}
	long := time.Duration(0)
	for _, r := range q {
		if isLongRead(r) {
			long += r.used
			s.long.note(r, r.used)
		}
		if r.wroteBytes <= HeavyBytes { // a larger write is charged together with its entry (largeWrites)
			s.users.Note(r, r.used, now)
		}
	}
	s.long.interval.Took(long, now)
}

// noteVain charges a user with a failed or stopped request's time, which noteUse does not count: the batch is evaluated again
// without it.
func (s *sequencer) noteVain(r *request) {
	now := s.node.cfg.Time.Monotonic()
	if used := s.work.of(r, now); used >= leastUse {
		s.users.Note(r, used, now)
	}
}

// settleFunctions comes before a batch, undoFunctions before its repetition: functions must not see local variables from the
// first evaluation.
func (s *sequencer) settleFunctions() {
	if s.node.cfg.Scripts != nil {
		s.node.cfg.Scripts.Settle()
	}
}

func (s *sequencer) undoFunctions() {
	if s.node.cfg.Scripts != nil {
		s.node.cfg.Scripts.Undo()
	}
}

package cluster

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockstep-io/lockstep/cluster/brake"
	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/fair"
)

// Long reads go behind all other requests, so that a client that takes a lock waits for one of them, not for all. Their order may
// change, because they change nothing: those of users whose long reads have taken less time lately go first. They wait while
// there is no room for their replies (hasRoom). After one that took much time, the leader serves only other requests, if there
// are any, for as long (fair.Interval).

// longPause is how long an idle leader waits before it looks again for requests and pending blocked clients that it may serve
// (due).
const longPause = 2 * time.Millisecond

// longReads are the long reads that wait.
type longReads struct {
	waiting []*request
	tried   int  // number of long reads that inTurn has given to the present batch
	light   int  // number of other requests that inTurn has given to it
	passed  bool // the last batch has run other requests, and none of its long reads

	spent  map[string]time.Duration // how long the long reads of each user have taken lately; each second halves it
	halved time.Duration            // when it was halved, monotonic

	full     time.Duration // since when there has been no room for large replies (hasRoom), monotonic; 0: there is room
	interval fair.Interval
}

// isLongRead reports whether a request waits as a long read does: it was put aside, or only reads and may be long or large.
func isLongRead(r *request) bool {
	return r.large || r.blockedClient == nil && r.claim == nil && call.AreLongReads(r.calls)
}

// inTurn returns the next batch's requests in order. Long reads come last, but one comes first if the last batch ran none.
func (s *sequencer) inTurn(q []*request) []*request {
	l := &s.long
	l.tried = 0
	q = slices.DeleteFunc(q, fair.EndIfGone) // requests that batches have left over come here again, and their clients may be gone
	light := q
	l.waiting = slices.DeleteFunc(l.waiting, fair.EndIfGone)
	if len(l.waiting) > 0 || slices.ContainsFunc(q, isLongRead) {
		var long []*request
		light, long = splitLong(q)
		l.waiting = append(l.waiting, long...)
	}
	now := s.node.cfg.Time.Monotonic()
	if len(light) > 0 {
		l.interval.Sees(now)
	}
	light = s.users.Order(light, now)
	s.spread = batchSpread
	if s.users.Pressed(now) || len(l.waiting) > 0 && l.interval.Pressed(now) {
		s.spread = pressedSpread
	}
	if len(l.waiting) == 0 || !s.longDue(now) {
		return light
	}
	l.order(now)
	long := l.waiting
	l.full = 0
	l.waiting, l.tried, l.light = nil, len(long), len(light)
	if l.passed {
		return slices.Concat(long[:1], light, long[1:])
	}
	return slices.Concat(light, long)
}

// note adds the time that a long read has taken to the time of its user.
func (l *longReads) note(r *request, took time.Duration) {
	if l.spent == nil {
		l.spent = map[string]time.Duration{}
	}
	user, _ := r.User()
	l.spent[user] += took
}

// order sorts the waiting long reads by the time that the long reads of their users have taken, and keeps each user's own order.
func (l *longReads) order(now time.Duration) {
	for ; now-l.halved >= time.Second && len(l.spent) > 0; l.halved += time.Second {
		for user, took := range l.spent {
			if l.spent[user] = took / 2; took < time.Millisecond {
				delete(l.spent, user) // so the map holds no more users than have run long reads in the last seconds
			}
		}
	}
	if len(l.spent) == 0 {
		l.halved = now
		return
	}
	spent := func(r *request) time.Duration {
		user, _ := r.User()
		return l.spent[user]
	}
	slices.SortStableFunc(l.waiting, func(a, b *request) int { return cmp.Compare(spent(a), spent(b)) })
}

func splitLong(q []*request) (light, long []*request) {
	light = make([]*request, 0, len(q))
	for _, r := range q {
		if isLongRead(r) {
			long = append(long, r)
		} else {
			light = append(light, r)
		}
	}
	return light, long
}

// leftOver gets the requests that a batch has not run, and returns those that begin the next: none if all go behind others.
func (s *sequencer) leftOver(rest []*request) []*request {
	l := &s.long
	if l.tried == 0 && s.users.Idle(s.node.cfg.Time.Monotonic()) {
		return rest
	}
	light, long := splitLong(rest)
	if l.tried > 0 {
		l.passed = len(long) >= l.tried && len(light) < l.light
	}
	if light = s.users.LeftOver(light, s.node.cfg.Time.Monotonic()); len(light) > 0 {
		return append(light, long...)
	}
	l.waiting = append(long, l.waiting...)
	return nil
}

// putAside puts a request aside, once, if there is no room for its large reply and it has written nothing. It is evaluated again
// later.
func (s *sequencer) putAside(r *request) bool {
	if r.large || r.wrote || r.held || r.blockedClient != nil || r.claim != nil || r.extent <= maxPartBytes || !s.node.gate.InHand.IsFull() && !brake.Short(r.extent) {
		return false
	}
	if call.RunsScript(r.calls) {
		s.undoFunctions() // r runs again later
	}
	clear(r.replies)
	r.large, r.replies, r.extent = true, r.replies[:0], 0
	s.long.waiting = append(s.long.waiting, r)
	return true
}

// longDue reports whether a long read may run now.
func (s *sequencer) longDue(now time.Duration) bool {
	return !s.long.interval.Lasts(now) && !s.users.Pauses(now) && s.hasRoom()
}

// hasRoom reports whether the leader may make large replies. After fair.InHandPatience it may anyway: some session may have
// failed to report.
func (s *sequencer) hasRoom() bool {
	l := &s.long
	if !s.node.gate.InHand.IsFull() && !brake.Short(2*fair.RepliesInHand) {
		l.full = 0
		return true
	}
	now := s.node.cfg.Time.Monotonic()
	if l.full == 0 {
		l.full = max(now, 1)
	}
	return now-l.full >= fair.InHandPatience
}

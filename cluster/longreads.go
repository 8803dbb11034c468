package cluster

import (
	"slices"
	"time"

	"lockstep/cluster/brake"
	"lockstep/cluster/internal/call"
	"lockstep/cluster/internal/fair"
)

// Reads that take time in proportion to the data (long reads) go behind everything else that waits: a
// client that takes a lock waits for one of them, not for the reads of sixty clients. Long reads change
// nothing and each client waits for its own, so no client sees in which order they were run. While there
// is no room for their replies, the leader runs none (hasRoom). After a long read that took much time, the
// leader serves other requests for as long as the read took (fair.Interval).

// longPause is how long the leader waits before it looks again whether there is room for the replies of
// long reads.
const longPause = 2 * time.Millisecond

// longReads are the long reads that wait.
type longReads struct {
	waiting []*request
	tried   int  // how many long reads the present batch has …
	light   int  // … and how many other requests
	passed  bool // the last batch has run other requests, and none of its long reads

	full     time.Duration // since when there has been no room, monotonic; 0: there is some
	interval fair.Interval
}

// isLongRead reports whether a request only reads, and may take long or have a large reply.
func isLongRead(r *request) bool {
	return r.large || r.blockedClient == nil && r.claim == nil && call.AreLongReads(r.calls)
}

// inTurn returns the next requests to be evaluated, in order: those of q, then those of users who have used much time, then the
// long reads. If the last batch ran other requests but no long read, one long read goes first.
func (s *sequencer) inTurn(q []*request) []*request {
	l := &s.long
	l.tried = 0
	q = slices.DeleteFunc(q, fair.EndIfGone) // what a batch has left over comes again and again
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
	long := l.waiting
	l.full = 0
	l.waiting, l.tried, l.light = nil, len(long), len(light)
	if l.passed {
		return slices.Concat(long[:1], light, long[1:])
	}
	return slices.Concat(light, long)
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

// leftOver takes what a batch has left over, and returns the requests to run next. If all of them go behind other requests (long
// reads, and work of users with much work), it lets them wait and returns none: requests that go first may have come meanwhile.
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

// putAside lets a request wait as a long read does, and reports whether it did. It does so if the request
// has written nothing and there is no room for its large reply. This happens to a request once at most.
func (s *sequencer) putAside(r *request) bool {
	if r.large || r.wrote || r.held || r.blockedClient != nil || r.claim != nil || r.extent <= maxPartBytes || !s.node.gate.InHand.IsFull() && !brake.Short(r.extent) {
		return false
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

// hasRoom reports whether the leader may make large replies now. It may if there is room for them, or if there has been none for
// fair.InHandPatience: some session may have failed to report that it has encoded its replies.
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

package cluster

import (
	"slices"
	"time"

	"lockstep/cluster/brake"
	"lockstep/store"
)

// Reads that take time in proportion to the data go behind everything else that waits: whoever takes a lock waits for
// one of them, not for those of sixty clients. They change nothing, each of their clients waits for its own, and so
// nobody sees in which order they were run. While there is no room for their replies they are not run at all.

// longPause is how soon it is looked again whether there is room for their replies.
const longPause = 2 * time.Millisecond

// longReads are those that wait.
type longReads struct {
	waiting []*request
	tried   int  // how many the present batch has …
	light   int  // … beside others
	passed  bool // the last one has run others, and none of its long reads
}

// isLongRead reports whether a request only reads, and may take long or be replied much.
func isLongRead(r *request) bool {
	return r.sleeper == nil && r.claim == nil && areLongReads(r.calls)
}

func areLongReads(calls []Call) bool {
	long := false
	for i := range calls {
		c := &calls[i]
		if c.Txn != nil || !c.Cmd.Is(store.ReadOnly) || c.Cmd == confirmCommand {
			return false
		}
		long = long || !c.Cmd.Is(store.Fast)
	}
	return long
}

// inTurn returns the next requests to be evaluated, in order: those of q, and behind them the long reads.
func (s *sequencer) inTurn(q []*request) []*request {
	l := &s.long
	l.tried = 0
	if len(l.waiting) == 0 && !slices.ContainsFunc(q, isLongRead) {
		return q
	}
	light := make([]*request, 0, len(q)+len(l.waiting))
	for _, r := range q {
		if isLongRead(r) {
			l.waiting = append(l.waiting, r)
		} else {
			light = append(light, r)
		}
	}
	if !s.hasRoom() {
		return light
	}
	long := l.waiting
	l.waiting, l.tried, l.light = nil, len(long), len(light)
	if l.passed {
		return slices.Concat(long[:1], light, long[1:])
	}
	return append(light, long...)
}

// leftOver takes what a batch has left over. What waits is returned, unless these are only long reads: others may have
// come that go before them.
func (s *sequencer) leftOver(rest []*request) []*request {
	l := &s.long
	if l.tried == 0 {
		return rest
	}
	long := 0
	for _, r := range rest {
		if isLongRead(r) {
			long++
		}
	}
	l.passed = long >= l.tried && len(rest)-long < l.light
	if long < len(rest) {
		return rest
	}
	l.waiting = slices.Concat(rest, l.waiting)
	return nil
}

// hasRoom reports whether large replies may be made now.
func (s *sequencer) hasRoom() bool {
	return !s.node.inHand.isFull() && !brake.Short(2*repliesInHand)
}

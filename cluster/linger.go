package cluster

import (
	"cmp"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// An entry counts when as many followers have written it as make a majority with the
// leader. What it costs to send it to the others, one by one, is disk writes and wake-ups
// that nobody waits for. So a follower that was not needed is left alone for a moment, and
// gets all that has come meanwhile at once. (EPaxos calls it thrifty to ask no more than a
// majority; Moraru et al., SOSP 2013.)
//
// Nothing depends on who was not needed the last time. A follower that is needed, because one
// of those before it is slow or gone, is late by lingering once; from then on there is
// no majority without it when it answers, and it is not left alone.

const (
	// lingering is how long a follower is left alone.
	lingering = 10 * time.Millisecond
	// lingeringEntries is how many entries at once say that a follower has more to catch up
	// with than came while it was left alone.
	lingeringEntries = 16
)

// linger holds Raft's next entries for a member back that has just taken args, if it was not
// needed.
func (t *transport) linger(id raft.ServerID, args *raft.AppendEntriesRequest) {
	r, n := t.raft.Load(), len(args.Entries)
	if r == nil || n == 0 || n > lingeringEntries {
		return
	}
	if conf := r.GetConfiguration(); conf.Error() != nil || !t.spare(conf.Configuration(), id, args) {
		return
	}
	timer := time.NewTimer(lingering)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.stop:
	}
}

// spare reports whether a majority has taken entries without a member. Those are never
// spare who would stand for election first if this node died (turnAfter): what they
// lack, they would lose it by.
func (t *transport) spare(conf raft.Configuration, id raft.ServerID, args *raft.AppendEntriesRequest) bool {
	others, votes := voters(conf, raft.ServerID(t.self))
	slices.SortFunc(others, byID)
	isIt := func(s raft.Server) bool { return s.ID == id }
	needed := (len(others) + 1) / 2
	if !votes || slices.ContainsFunc(others[:needed], isIt) {
		return false
	}
	for _, other := range others {
		if !isIt(other) && t.has(other.ID, args.Term, lastOf(args)) {
			needed--
		}
	}
	return needed <= 0
}

func byID(a, b raft.Server) int { return cmp.Compare(a.ID, b.ID) }

package raftnode

import (
	"cmp"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// An entry is committed when a majority has written it. To send it to the other followers at once, too, costs disk writes and
// wake-ups that nobody waits for. So the leader sends a follower that was not needed for the majority no entries for appendDelay,
// and then all new ones in one request.
//
// If another follower fails, a delayed follower becomes needed: it gets the next entries late once, and is then delayed no
// longer.
//
// Never delayed are followers whose clients listen, and those that would stand for election first (turnAfter in package peers):
// without the last entries they would lose. A delayed follower can ask for votes in vain; prevote.go makes up for that.

const (
	// appendDelay is how long the leader sends no entries to a follower that was not needed for the majority.
	appendDelay = 10 * time.Millisecond
	// delayedEntries is the most entries that a delayed follower may accept at once: with more, it is behind by more than a
	// delay.
	delayedEntries = 16
)

// accept notes that a member has accepted args. If take says so, accept waits: meanwhile Raft sends that member no entries.
func (t *transport) accept(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, listens bool) {
	var conf raft.Configuration
	if r := t.raft.Load(); r != nil {
		if f := r.GetConfiguration(); f.Error() == nil {
			conf = f.Configuration()
		}
	}
	if !t.take(conf, id, to, args, listens) {
		return
	}
	timer := time.NewTimer(appendDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.stop:
	}
}

// take is accept without the wait: it reports whether to delay the member. The first members to get here are the needed ones.
func (t *transport) take(conf raft.Configuration, id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, listens bool) bool {
	n := len(args.Entries)
	t.mu.Lock()
	defer t.mu.Unlock()
	spare := !listens && 0 < n && n <= delayedEntries && t.spare(conf, id, args)
	t.match(id, args)
	t.attend(id, to, listens, args)
	return spare
}

// spare reports whether neither the majority nor the next election needs this member to have the entries of args. The caller
// holds t.mu.
func (t *transport) spare(conf raft.Configuration, id raft.ServerID, args *raft.AppendEntriesRequest) bool {
	others, votes := voters(conf, raft.ServerID(t.self))
	slices.SortFunc(others, byID)
	isIt := func(s raft.Server) bool { return s.ID == id }
	needed := (len(others) + 1) / 2
	if !votes || slices.ContainsFunc(others[:needed], isIt) {
		return false
	}
	for _, other := range others {
		if !isIt(other) && t.hasNow(other.ID, args.Term, lastOf(args)) {
			needed--
		}
	}
	return needed <= 0
}

func byID(a, b raft.Server) int { return cmp.Compare(a.ID, b.ID) }

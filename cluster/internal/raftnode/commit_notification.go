package raftnode

import "github.com/hashicorp/raft"

// A follower learns the commit index with later entries, or after raft.Config.CommitTimeout. Its clients may wait for a message
// in a committed entry. So the leader tells the commit index at once to followers whose clients listen, in requests that Raft
// does not know of.

// listener is a follower as seen by the leader.
type listener struct {
	to      raft.ServerAddress
	listens bool   // clients of the follower wait for messages (cluster.Config.Listens)
	told    uint64 // the commit index that the follower knows from Raft's last request
	tried   uint64 // the commit index of the last notification to the follower, received or not
	asking  bool   // the leader waits for the answer to a notification
}

// notifyCommit tells the listening followers that an entry with messages is committed, if this node leads in
// the term of that entry.
func (t *transport) notifyCommit(entry matched) {
	// Raft already applies entries while it starts, and t.raft is still nil then.
	if r := t.raft.Load(); r == nil || r.State() != raft.Leader || r.CurrentTerm() != entry.term {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.news = entry
	for id := range t.audience {
		t.tell(id)
	}
}

// attend notes, when a member has accepted args, whether its clients listen and which commit index it knows. The caller holds
// t.mu.
func (t *transport) attend(id raft.ServerID, to raft.ServerAddress, listens bool, args *raft.AppendEntriesRequest) {
	l := t.audience[id]
	if l == nil {
		l = &listener{}
		t.audience[id] = l
	}
	l.to, l.listens, l.told = to, listens, min(args.LeaderCommitIndex, lastOf(args))
	t.tell(id)
}

// tell starts to notify a member that t.news is committed, if its clients listen and it has that entry. The caller holds t.mu.
func (t *transport) tell(id raft.ServerID) {
	l, m := t.audience[id], t.matches[id]
	if !l.listens || l.asking || m.term != t.news.term || m.index < t.news.index || max(l.told, l.tried) >= t.news.index {
		return
	}
	l.asking, l.tried = true, t.news.index
	go t.tellNow(id, l.to, t.news)
}

func (t *transport) tellNow(id raft.ServerID, to raft.ServerAddress, news matched) {
	req := &raft.AppendEntriesRequest{RPCHeader: t.header(), Term: news.term, PrevLogEntry: news.index, PrevLogTerm: news.term, LeaderCommitIndex: news.index}
	// An error does no harm: Raft sends the commit index again.
	_ = t.sender(t.appends, t.NetworkTransport)(id, to, req, &raft.AppendEntriesResponse{})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.audience[id].asking = false
	t.tell(id)
}

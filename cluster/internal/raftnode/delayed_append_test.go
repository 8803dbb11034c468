package raftnode

import (
	"slices"
	"testing"

	"github.com/hashicorp/raft"
)

// TestWhoIsNotNeeded: the leader does not need a follower if a majority has the entry without it, and it would not stand for
// election first.
func TestWhoIsNotNeeded(t *testing.T) {
	voter := func(id string) raft.Server { return raft.Server{ID: raft.ServerID(id), Suffrage: raft.Voter} }
	learner := raft.Server{ID: "x", Suffrage: raft.Nonvoter}
	three := []raft.Server{voter("c"), voter("a"), voter("b")}
	five := append([]raft.Server{voter("e"), voter("d")}, three...)
	for _, tt := range []struct {
		self    string
		servers []raft.Server
		have    string // who has taken the entry
		spare   string // who is not needed
	}{
		{"a", three, "", ""},
		{"a", three, "b", "c"},
		{"a", three, "c", ""},
		{"a", three, "bc", "c"},
		{"b", three, "a", "c"},
		{"c", three, "a", "b"},
		{"a", five, "bc", "de"},
		{"a", five, "bd", "e"},
		{"a", five, "b", ""},
		{"a", five, "bcde", "de"},
		{"a", five, "bde", "de"},
		{"a", three[:2], "c", ""},
		{"a", append([]raft.Server{learner}, three...), "b", "cx"},
		{"a", append([]raft.Server{learner}, three...), "x", ""},
		{"x", append([]raft.Server{learner}, three...), "abc", ""},
	} {
		tr := &transport{self: tt.self, matches: map[raft.ServerID]matched{}}
		req := &raft.AppendEntriesRequest{Term: 7, PrevLogEntry: 41, Entries: []*raft.Log{{Index: 42}}}
		for _, id := range tt.have {
			tr.matches[raft.ServerID(id)] = matched{7, 42}
		}
		got := ""
		for _, s := range slices.SortedFunc(slices.Values(tt.servers), byID) {
			if string(s.ID) != tt.self && tr.spare(raft.Configuration{Servers: tt.servers}, s.ID, req) {
				got += string(s.ID)
			}
		}
		if got != tt.spare {
			t.Errorf("%s leads %v, %q have the entry: %q are not needed, want %q", tt.self, tt.servers, tt.have, got, tt.spare)
		}
		req.Term = 8
		if tr.spare(raft.Configuration{Servers: tt.servers}, "c", req) {
			t.Errorf("%s: what was taken in another term counts", tt.self)
		}
	}
}

// TestAnswersAtOnce: if several followers answer at the same time, the leader needs those whose answers are taken first.
func TestAnswersAtOnce(t *testing.T) {
	conf := raft.Configuration{}
	for _, id := range "abcde" {
		conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(id), Suffrage: raft.Voter})
	}
	tr := &transport{self: "a", matches: map[raft.ServerID]matched{}, audience: map[raft.ServerID]*listener{}}
	for index := uint64(42); index < 44; index++ {
		req := &raft.AppendEntriesRequest{Term: 7, PrevLogEntry: index - 1, Entries: []*raft.Log{{Index: index}}}
		for _, step := range []struct {
			id    raft.ServerID
			spare bool
		}{{"b", false}, {"d", false}, {"e", true}, {"d", true}, {"c", false}} {
			if got := tr.take(conf, step.id, "", req, false); got != step.spare {
				t.Errorf("%s takes entry %d: to be left alone: %v, want %v", step.id, index, got, step.spare)
			}
		}
	}
	// The questions are about member e. Even without e, a majority has entry 43.
	for what, ask := range map[string]struct {
		entries int
		listens bool
	}{"listens": {1, true}, "is behind": {delayedEntries + 1, false}, "was told of a commit": {0, false}} {
		req := &raft.AppendEntriesRequest{Term: 7, PrevLogEntry: 43 - uint64(ask.entries), Entries: make([]*raft.Log, ask.entries)}
		if tr.take(conf, "e", "", req, ask.listens) {
			t.Errorf("one that %s is left alone", what)
		}
	}
}

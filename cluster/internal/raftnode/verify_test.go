package raftnode

import (
	"slices"
	"testing"

	"github.com/hashicorp/raft"
)

// A confirmation counts only if a voter gives it, in this term, as the answer to a request that was sent after the read.
func TestWhoConfirmsARead(t *testing.T) {
	conf := raft.Configuration{Servers: []raft.Server{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}, {ID: "n4", Suffrage: raft.Nonvoter}}}
	for what, c := range map[string]struct {
		acks map[raft.ServerID]ack
		want bool
	}{
		"nobody":                {nil, false},
		"a voter":               {map[raft.ServerID]ack{"n3": {term: 7, sent: 11}}, true},
		"asked before":          {map[raft.ServerID]ack{"n2": {term: 7, sent: 10}, "n3": {term: 7, sent: 3}}, false},
		"in another term":       {map[raft.ServerID]ack{"n2": {term: 6, sent: 11}, "n3": {term: 8, sent: 11}}, false},
		"one without a vote":    {map[raft.ServerID]ack{"n4": {term: 7, sent: 11}}, false},
		"one that is no member": {map[raft.ServerID]ack{"n9": {term: 7, sent: 11}}, false},
	} {
		tr := &transport{acks: c.acks}
		if got := tr.followed("n1", conf, 7, 10); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	alone := raft.Configuration{Servers: []raft.Server{{ID: "n1"}, {ID: "n4", Suffrage: raft.Nonvoter}}}
	if !(&transport{}).followed("n1", alone, 7, 10) {
		t.Error("the only voter confirms itself")
	}
}

// The leader first asks just as many voters as make a majority: those that have answered most recently.
func TestWhoIsAskedToConfirm(t *testing.T) {
	conf := raft.Configuration{Servers: []raft.Server{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}, {ID: "n4", Suffrage: raft.Nonvoter}, {ID: "n5"}, {ID: "n6"}}}
	tr := &transport{acks: map[raft.ServerID]ack{"n3": {term: 7, sent: 3}, "n4": {term: 7, sent: 9}, "n5": {term: 7, sent: 8}}}
	for voters, want := range [][]raft.ServerID{2: {"n2"}, 3: {"n3"}, 4: {"n5", "n3"}, 5: {"n5", "n3"}} {
		var some raft.Configuration
		count := 0
		for _, s := range conf.Servers {
			if s.Suffrage == raft.Nonvoter {
				some.Servers = append(some.Servers, s)
			} else if count < voters {
				some.Servers = append(some.Servers, s)
				count++
			}
		}
		var got []raft.ServerID
		for _, s := range tr.quickest("n1", some) {
			got = append(got, s.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("of %d voters %v are asked, want %v", voters, got, want)
		}
	}
}

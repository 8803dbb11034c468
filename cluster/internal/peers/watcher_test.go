package peers

import (
	"log/slog"
	"testing"

	"github.com/lockstep-io/lockstep/cluster/internal/clock"
	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
)

// threeMembers is a Raft that knows n1, n2 and n3.
type threeMembers struct{}

func (threeMembers) Members() ([]raftnode.Member, error) {
	return []raftnode.Member{{ID: "n1", PeerAddr: "h:1", Voter: true}, {ID: "n2", PeerAddr: "h:2", Voter: true}, {ID: "n3", PeerAddr: "h:3", Voter: true}}, nil
}
func (threeMembers) Facts() raftnode.Facts               { return raftnode.Facts{} }
func (threeMembers) Cluster() string                     { return "blue" }
func (threeMembers) Joining() bool                       { return false }
func (threeMembers) Joined(string) error                 { return nil }
func (threeMembers) Directory() string                   { return "D1" }
func (threeMembers) Meet(string, string) error           { return nil }
func (threeMembers) Recognize(string, string) error      { return nil }
func (threeMembers) Blank() bool                         { return false }
func (threeMembers) Trouble() string                     { return "" }
func (threeMembers) Proposed() (begun, done int64)       { return 0, 0 }
func (threeMembers) RoomUntil() int64                    { return 1 << 40 }
func (threeMembers) Met(string, string) (met, same bool) { return true, true }

// TestOlderMembers: a member counts as version 0.1.0 until it says whom it knows, and again if it comes back without saying so.
func TestOlderMembers(t *testing.T) {
	w := NewWatcher(t.Context(), Config{ID: "n1", Clock: clock.NewSystem(), Logger: slog.New(slog.DiscardHandler),
		Overruns: func() []fair.Overrun { return nil },
		Raft:     func() Raft { return threeMembers{} }, Leader: func() raftnode.Leadership { return raftnode.Leadership{ID: "n1"} },
		Members: func([]raftnode.Member) {}})
	w.Update()
	says := func(id, addr string, members bool) {
		w.record(Status{ID: id, Peer: addr, Directory: "D", Cluster: "blue", Members: []string{"n1", "n2", "n3"}, ToldMembers: members}, true)
		w.Update()
	}
	check := func(what string, older, has bool, addrs ...string) {
		t.Helper()
		if w.Older() != older {
			t.Errorf("%s: a member counts as older: %v", what, w.Older())
		}
		if w.HasOlder() != has {
			t.Errorf("%s: a member is older: %v", what, !has)
		}
		for _, addr := range []string{"h:2", "h:3"} {
			want := false
			for _, a := range addrs {
				want = want || a == addr
			}
			if got := w.MayBeOlder(addr); got != want {
				t.Errorf("%s: the member at %s may be older: %v", what, addr, got)
			}
		}
	}
	check("nobody has said anything", true, false, "h:2", "h:3")
	w.record(Status{ID: "n2", Peer: "h:2", Directory: "D", Cluster: "blue"}, false)
	w.Update()
	check("n2 has asked, and not yet answered", true, false, "h:2", "h:3")
	says("n2", "h:2", true)
	check("n2 has said whom it knows", true, false, "h:3")
	says("n3", "h:3", true)
	check("all have", false, false)
	says("n2", "h:2", false)
	check("n2 is back without that", true, true, "h:2")
	if !w.MayBeOlder("h:4") {
		t.Error("a member that nobody knows is not older")
	}
}

package peers

import (
	"log/slog"
	"testing"

	"github.com/lockstep-io/lockstep/cluster/internal/clock"
	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
)

// founder is threeMembers on a node that is just beginning.
type founder struct{ threeMembers }

func (founder) Blank() bool { return true }
func (founder) Met(id, directory string) (met, same bool) {
	return true, directory == "D-"+id
}

// founderWatcher returns the Watcher of n1. The result died counts the calls of Fatal.
func founderWatcher(t *testing.T, leader *string) (w *Watcher, died *int) {
	died = new(int)
	return NewWatcher(t.Context(), Config{ID: "n1", Clock: clock.NewSystem(), Logger: slog.New(slog.DiscardHandler),
		Overruns: func() []fair.Overrun { return nil },
		Raft:     func() Raft { return founder{} }, Leader: func() raftnode.Leadership { return raftnode.Leadership{ID: *leader} },
		Members: func([]raftnode.Member) {}, Fatal: func(error) { *died++ }}), died
}

// TestWhoDisowns: a founder ends if a member has met it with another data directory. Once it has had a leader, only its leader
// counts.
func TestWhoDisowns(t *testing.T) {
	lost := Status{ID: "n2", Cluster: "blue", You: Other}
	change := func(fn func(*Status)) Status {
		f := lost
		fn(&f)
		return f
	}
	for what, k := range map[string]struct {
		by         Status
		had, leads string // the leader that the founder had, and the present one
		want       int
	}{
		"a member":                        {lost, "", "", 1},
		"its leader":                      {lost, "n2", "n2", 1},
		"a member that does not lead":     {lost, "n3", "n3", 0},
		"a member, after a leader":        {lost, "n3", "", 0},
		"a member, while it leads itself": {lost, "n1", "n1", 0},
		"a node of another cluster":       {change(func(f *Status) { f.Cluster = "red" }), "", "", 0},
		"a node of no cluster":            {change(func(f *Status) { f.Cluster = "" }), "", "", 0},
		"another member":                  {change(func(f *Status) { f.ID = "n3" }), "", "", 0},
		"a member that knows it":          {change(func(f *Status) { f.You = Member }), "", "", 0},
	} {
		leader := k.had
		w, died := founderWatcher(t, &leader)
		w.Look()
		leader = k.leads
		w.disown("n2", k.by)
		if *died != k.want {
			t.Errorf("%s: the founder has ended %d times, want %d", what, *died, k.want)
		}
	}
}

// TestWhoAnswersForAMember: only an answer of the member itself counts.
func TestWhoAnswersForAMember(t *testing.T) {
	leader := "n1"
	w, _ := founderWatcher(t, &leader)
	for what, k := range map[string]struct {
		f               Status
		voter, nonvoter bool
	}{
		"the member":                {Status{ID: "n2", Cluster: "blue", You: Member, Directory: "D-n2"}, true, true},
		"the member elsewhere":      {Status{ID: "n2", Cluster: "blue", You: Unknown}, true, true},
		"another directory":         {Status{ID: "n2", Cluster: "blue", You: Member, Directory: "D-other"}, false, false},
		"no directory":              {Status{ID: "n2", Cluster: "blue", You: Member}, false, false},
		"another cluster":           {Status{ID: "n2", Cluster: "red", You: Member, Directory: "D-n2"}, false, false},
		"another member":            {Status{ID: "n3", Cluster: "blue", You: Member, Directory: "D-n3"}, false, false},
		"it has met another n1":     {Status{ID: "n2", Cluster: "blue", You: Other}, false, true},
		"it knows no members yet":   {Status{ID: "n2", You: Unknown}, false, true},
		"it has yet to hear of all": {Status{ID: "n2", Cluster: "blue", You: Stranger}, false, true},
	} {
		for _, voter := range []bool{true, false} {
			want := k.nonvoter
			if voter {
				want = k.voter
			}
			if got := w.answersFor(k.f, raftnode.Member{ID: "n2", Voter: voter}); got != want {
				t.Errorf("%s, voter %v: counts %v", what, voter, got)
			}
		}
	}
}

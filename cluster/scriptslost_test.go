package cluster

import (
	"bufio"
	"testing"

	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/store"
)

// TestKillWhoseAnswerIsLost: the client is told INDETERMINATE, because the leader may have ended the script.
func TestKillWhoseAnswerIsLost(t *testing.T) {
	ask := map[string]func(n *Node) store.Reply{
		"-INDETERMINATE": func(n *Node) store.Reply { return n.KillScript(0) },
		"-CLUSTERDOWN":   func(n *Node) store.Reply { return n.RunningFunction(0) }, // it only reads
	}
	for want, ask := range ask {
		bubble(t, func(t *testing.T) {
			n := newTestNode(t)
			l, far := testLink()
			defer l.Fail()
			n.routes.set(n.ctx, nil, l)
			told := make(chan store.Reply, 1)
			go func() { told <- ask(n.Node) }()
			if f, err := readCall(bufio.NewReader(far)); err != nil || f.Kind != forward.Kill {
				t.Fatalf("frame of kind %d, %v", f.Kind, err)
			}
			far.Close()
			if got := text([]store.Reply{<-told}); got != want {
				t.Errorf("told %s, want %s", got, want)
			}
		})
	}
}

package cluster

import (
	"bufio"
	"net"
	"testing"

	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/store"
)

// TestStatsWaitForThePeer: while much output waits for a peer, the answers to FUNCTION STATS of that peer's clients
// wait, too. A kill does not wait.
func TestStatsWaitForThePeer(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	n := newTestNode(t).Node
	n.cfg.Scripts = &killer{"n1"}
	p := &peerConn{n: n, out: forward.NewOutbox(near)}
	ask := func(q scriptQuestion) (grown int) {
		before := p.out.Size()
		if err := n.serveFrame(frame.Frame{Kind: forward.Kill, ID: 1, Body: q.body(0, forward.Minor)}, p); err != nil {
			t.Fatal(err)
		}
		return p.out.Size() - before
	}
	whole := ask(runningFunction)
	if err := p.out.Send(forward.Result, 2, func(b []byte) []byte { return append(b, make([]byte, forward.MaxPeerOutput+1)...) }); err != nil {
		t.Fatal(err)
	}
	if put := ask(runningFunction); put >= whole {
		t.Errorf("%d bytes are put behind those that wait, as without them: %d", put, whole)
	}
	if put := ask(killFunction); put < whole {
		t.Errorf("a kill is put off: %d bytes", put)
	}
}

// TestStatsAreAskedAgain: when the leader has no room to answer, the node asks again.
func TestStatsAreAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		l, far := testLink()
		defer l.Fail()
		n.routes.set(n.ctx, nil, l)
		asked := 0
		go func() {
			r := bufio.NewReader(far)
			for {
				f, err := readCall(r)
				if err != nil {
					return
				}
				asked++
				answer := []byte{forward.ReplyLater}
				if asked == 3 {
					answer = forward.AppendReplies(nil, []store.Reply{store.Status("runs")})
				}
				if _, err := far.Write(oneFrame(forward.Result, f.ID, answer)); err != nil {
					return
				}
			}
		}()
		if r := n.RunningFunction(0); r.Str != "runs" || asked != 3 {
			t.Errorf("asked %d times: %v", asked, r)
		}
		n.routes.drop(nil, l)
	})
}

// A node that reaches no leader does not say that no script runs.
func TestScriptsWithoutALeader(t *testing.T) {
	n := newTestNode(t)
	n.cfg.Scripts = &killer{"n1"}
	for name, got := range map[string]store.Reply{"SCRIPT KILL": n.KillScript(0), "FUNCTION KILL": n.KillFunction(0), "FUNCTION STATS": n.RunningFunction(0)} {
		if got.Str != string(ErrClusterDown) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

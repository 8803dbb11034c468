package cluster

import (
	"context"
	"time"

	"lockstep/cluster/internal/fair"
	"lockstep/cluster/internal/forward"
	"lockstep/cluster/internal/frame"
	"lockstep/store"
)

// scriptQuestion is a request about the script that the leader runs; it is the body of a kill frame.
type scriptQuestion string

const (
	killScript      scriptQuestion = ""
	killFunction    scriptQuestion = "f"
	runningFunction scriptQuestion = "s"
)

// KillScript ends the script that the leader runs.
func (n *Node) KillScript() store.Reply { return n.askScripts(killScript) }

// KillFunction ends the function that the leader runs.
func (n *Node) KillFunction() store.Reply { return n.askScripts(killFunction) }

// RunningFunction returns the reply to FUNCTION STATS while the leader runs a function, Nil while it runs none, and ErrClusterDown
// if the leader does not answer.
func (n *Node) RunningFunction() store.Reply { return n.askScripts(runningFunction) }

func (n *Node) askScripts(q scriptQuestion) store.Reply {
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.FailoverWait)
	defer cancel()
	for {
		rt := n.routes.get()
		if rt.link == nil {
			return n.scriptsHere(q)
		}
		reply, err := n.ask(ctx, rt.link, forward.Kill, []byte(q))
		switch err {
		case nil:
			return reply
		case forward.ErrReplyLater:
			select {
			case <-ctx.Done():
			case <-time.After(retryPause):
			}
		default:
			return store.Err(ErrClusterDown)
		}
	}
}

// serveKill answers a peer's question about scripts. The answer about a running function contains its arguments, which may be
// long. So if there is no room for it (hasRoom), the peer has to ask again, as for other replies. A kill never waits for room.
func (n *Node) serveKill(f frame.Frame, p *peerConn) error {
	q := scriptQuestion(f.Body)
	replies := []store.Reply{n.scriptsHere(q)}
	later := q == runningFunction && !p.hasRoom(fair.Extent(replies))
	return p.out.Send(forward.Result, f.ID, func(b []byte) []byte {
		if later {
			return append(b, forward.ReplyLater)
		}
		return forward.AppendReplies(b, replies)
	})
}

func (n *Node) scriptsHere(q scriptQuestion) store.Reply {
	switch {
	case n.cfg.Scripts == nil:
		return store.Err(ErrClusterDown)
	case q == killFunction:
		return n.cfg.Scripts.KillFunction()
	case q == runningFunction:
		return n.cfg.Scripts.RunningFunction()
	}
	return n.cfg.Scripts.Kill()
}

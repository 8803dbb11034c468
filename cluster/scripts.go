package cluster

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/codec"
)

// scriptQuestion is the first byte of a kill frame. After it comes the version of the users by which the asking node has checked its
// client's rights. Version 0.1.0 sends no version, and no byte for killScript.
type scriptQuestion byte

const (
	killScript      scriptQuestion = 'k'
	killFunction    scriptQuestion = 'f'
	runningFunction scriptQuestion = 's'
)

// KillScript ends the script that the leader runs, once it has run for killFrom or busy-reply-threshold, whichever is shorter. users
// is the version of the users by which the caller has checked its client's rights: the leader cannot check them while a script has the
// state.
func (n *Node) KillScript(users uint64) store.Reply { return n.askScripts(killScript, users) }

// KillFunction ends the function that the leader runs, on the same terms.
func (n *Node) KillFunction(users uint64) store.Reply { return n.askScripts(killFunction, users) }

// RunningFunction returns the reply to FUNCTION STATS, or Nil while no function has run for as long as KillFunction requires. The
// arguments may be secret.
func (n *Node) RunningFunction(users uint64) store.Reply {
	return n.askScripts(runningFunction, users)
}

// body encodes the question as the body of a kill frame.
func (q scriptQuestion) body(users uint64, minor byte) []byte {
	switch {
	case minor >= forward.MinorKillUsers:
		return binary.AppendUvarint([]byte{byte(q)}, users)
	case q == killScript:
		return nil
	}
	return []byte{byte(q)}
}

// readScriptQuestion reads what the method scriptQuestion.body has written. If a node of version 0.1.0 has sent the question, checked is
// false.
func readScriptQuestion(body []byte) (q scriptQuestion, users uint64, checked bool, err error) {
	if len(body) == 0 {
		return killScript, 0, false, nil
	}
	q = scriptQuestion(body[0])
	if q != killScript && q != killFunction && q != runningFunction {
		return 0, 0, false, frame.ErrMalformed
	}
	if len(body) == 1 {
		return q, 0, false, nil
	}
	r := codec.Reader{B: body[1:]}
	if users = r.Uvarint(); r.Bad {
		return 0, 0, false, frame.ErrMalformed
	}
	return q, users, true, nil
}

func (n *Node) askScripts(q scriptQuestion, users uint64) store.Reply {
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.FailoverWait)
	defer cancel()
	for {
		rt := n.routes.get()
		link := n.linkFor(rt)
		switch {
		case rt.seq != nil:
			return n.scriptsHere(q, rt.seq)
		case link == nil:
			return store.Err(ErrClusterDown) // the leader may run a script, but only the leader knows
		}
		reply, err := n.ask(ctx, link, forward.Kill, q.body(users, link.Peer.Speaks.Minor))
		switch err {
		case nil:
			return reply
		case forward.ErrReplyLater:
			select {
			case <-ctx.Done():
			case <-time.After(retryPause):
			}
		case errNotExecuted:
			return store.Err(ErrClusterDown)
		default:
			if q == runningFunction { // it only reads
				return store.Err(ErrClusterDown)
			}
			return store.Err(ErrIndeterminate) // the leader may have ended the script, or may yet do so
		}
	}
}

// serveKill answers a peer's question about scripts. If there is no room for a long answer (hasRoom), the peer has to ask again.
func (n *Node) serveKill(f frame.Frame, p *peerConn) error {
	q, users, checked, err := readScriptQuestion(f.Body)
	if err != nil {
		return err
	}
	replies := []store.Reply{store.Err(store.ErrUsersChanged)}
	if now := n.cfg.UsersVersion; !checked || now == nil || users >= now() {
		replies[0] = n.scriptsHere(q, n.routes.get().seq)
	}
	later := q == runningFunction && !p.hasRoom(fair.Extent(replies))
	return p.out.Send(forward.Result, f.ID, func(b []byte) []byte {
		if later {
			return append(b, forward.ReplyLater)
		}
		return forward.AppendReplies(b, replies)
	})
}

// scriptsHere answers a question about the script that this node runs. seq is nil if this node does not lead.
func (n *Node) scriptsHere(q scriptQuestion, seq *sequencer) store.Reply {
	switch {
	case n.cfg.Scripts == nil:
		return store.Err(ErrClusterDown)
	case seq == nil:
		return n.askEngine(q)
	}
	none := store.Err(store.ErrNotBusy)
	if q == runningFunction {
		none = store.Nil
	}
	return seq.script.ask(func() store.Reply { return n.askEngine(q) }, none)
}

// askEngine answers a question about whichever script runs.
func (n *Node) askEngine(q scriptQuestion) store.Reply {
	switch q {
	case killFunction:
		return n.cfg.Scripts.KillFunction()
	case runningFunction:
		return n.cfg.Scripts.RunningFunction()
	}
	return n.cfg.Scripts.Kill()
}

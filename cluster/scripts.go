package cluster

import (
	"context"

	"lockstep/cluster/internal/forward"
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

// RunningFunction returns the reply to FUNCTION STATS while the leader runs a function, and Nil otherwise.
func (n *Node) RunningFunction() store.Reply { return n.askScripts(runningFunction) }

func (n *Node) askScripts(q scriptQuestion) store.Reply {
	rt := n.routes.get()
	if rt.link == nil {
		return n.scriptsHere(q)
	}
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.FailoverWait)
	defer cancel()
	reply, err := n.ask(ctx, rt.link, forward.Kill, []byte(q))
	if err != nil {
		return store.Err(ErrClusterDown)
	}
	return reply
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

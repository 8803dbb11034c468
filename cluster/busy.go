package cluster

import (
	"slices"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// Scripts that run for long. Evaluation holds the state machine's lock, which a leader's Raft does not need: leadership stays.
//
// When a script has run for busy-reply-threshold, the leader answers BUSY to the requests that wait, until the script ends. A
// request that is answered BUSY has no effect. --script-time-limit holds for a whole transaction: beyond it, or if a script is
// killed, the leader refuses the whole transaction.
//
// A pipeline with many scripts delays other requests by no more than maxPartTime and the time of one script.
//
// When a script has run for runsAfter, the leader tells the node of the script's client (forward.Waits). If the leader is lost
// after that, the script may have used up the leader's memory, so the client's node does not send the script to the next leader.
// A deposed node aborts its script, because it must apply its successor's entries.

// maxPartTime, in ms, is how long a pipeline runs before its remaining calls are put off. pressedSpread replaces it at times.
const maxPartTime = batchSpread

// tookLong reports whether the remaining calls of a pipeline, those after call i, have to wait for another turn.
func (s *sequencer) tookLong(r *request, i int) bool {
	if s.ctx.Stopped != "" {
		return true
	}
	c := &r.calls[i]
	if c.Txn == nil && !c.Cmd.RunsLua() && i%16 != 15 && s.turn.since == 0 {
		return false // reading the clock would take longer than the call
	}
	return s.node.clock.Now().Lease-r.at > s.spread
}

// runScript runs a script. It sets *refused if the requests behind r have been answered BUSY.
func (s *sequencer) runScript(ctx *store.Ctx, r *request, behind []*request, refused *bool) store.Reply {
	s.startTurn(s.turn.user)
	s.script.starts(r, s.waitFor(behind, *refused), s.turn.since)
	defer func() { *refused = s.scriptEnds() || *refused }()
	return s.evaluateScript(ctx)
}

func (s *sequencer) evaluateScript(ctx *store.Ctx) store.Reply {
	ctx.ScriptTime = s.usedUp()
	if s.company {
		// Nobody can answer BUSY to the requests before the script in its batch, so at the busy threshold they outweigh the libraries.
		ctx.StopAfter, ctx.StopKept = companyTime, max(companyTime, s.node.busyThreshold())
	}
	reply := ctx.Cmd.Run(ctx)
	s.wasStopped(ctx)
	return reply
}

// runTransaction runs a transaction, which has one time limit and no effect beyond it, and counts as one script from its first
// script on.
func (s *sequencer) runTransaction(txn *store.Txn, t *Transaction, r *request, behind []*request, refused *bool) (store.Reply, store.Error) {
	if len(t.Calls) > 0 {
		s.startTurn(t.Calls[0].User)
	}
	began, commands := false, 0
	defer func() {
		if began {
			*refused = s.scriptEnds() || *refused
		}
	}()
	return t.Run(txn, func(ctx *store.Ctx, refusal store.Reply, denied bool) store.Reply {
		switch {
		case denied || !ctx.Cmd.RunsLua():
			// Short commands and refusals do not look at the clock themselves, and a transaction may have thousands of them.
			if commands++; commands%commandsPerLook == 0 {
				if stop, forNow := s.mustStop(); stop {
					s.ctx.StoppedForNow = forNow
					return s.stopTransaction(ctx, forNow)
				}
			}
			if denied {
				return refusal
			}
			return s.runCommand(ctx, ErrTransactionTime)
		case began && s.overTime():
			return s.stopTransaction(ctx, false)
		case !began:
			began = true
			s.script.starts(r, s.waitFor(behind, *refused), s.node.cfg.Time.Monotonic())
		}
		reply := s.evaluateScript(ctx)
		s.ctx.StoppedForNow = ctx.StoppedForNow
		return reply
	})
}

// commandsPerLook is after how many commands a transaction looks at the clock.
const commandsPerLook = 16

// companyTime is how long a script or command may run while requests before it in its batch wait for the commit.
const companyTime = 100 * time.Millisecond

// waitFor returns the requests that wait for a script, besides those in the inbox.
func (s *sequencer) waitFor(behind []*request, refused bool) []*request {
	if refused {
		behind = nil
	}
	if len(s.cut) == 0 && s.users.Waiting() == 0 && len(s.long.waiting) == 0 {
		return behind
	}
	return slices.Concat(behind, s.cut, s.users.List(), s.long.waiting)
}

// scriptEnds notes that the script of the present turn has ended, and returns whether the requests that waited for it (waitFor) were
// refused.
func (s *sequencer) scriptEnds() (refused bool) {
	s.turn.ended = s.node.cfg.Time.Monotonic()
	if refused = s.script.ends(s.turn.ended); refused {
		s.users.Drain()
		s.cut, s.long.waiting = nil, nil
	}
	return refused
}

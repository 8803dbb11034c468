package cluster

import (
	"slices"
	"time"

	"lockstep/store"
)

// Scripts that run for long. Evaluation holds the state machine's lock. Raft's own goroutines do not need that lock on a
// leader, so heartbeats go on and leadership does not move.
//
// When a script has run for busy-reply-threshold, the leader begins to answer BUSY to the requests that wait. It does so until
// the script ends, is killed, or reaches --script-time-limit. A request that is answered BUSY has no effect. The same time
// limit holds for all commands of a transaction together. If a transaction exceeds the limit, or one of its scripts is killed,
// the leader refuses the whole transaction, of which nothing has been proposed.
//
// A pipeline with many scripts delays other requests by no more than maxPartTime and the time of one script. After that, the
// remaining calls of the pipeline are submitted anew, behind the requests that wait.
//
// When a script has run for runsAfter, the leader tells the node of the script's client (forward.Waits, which nodes of older
// versions ignore). If the leader is lost after that, the script may have used up the leader's memory, so the node does not send
// the script to the next leader. The node sends all other requests again, so clients of living nodes see no error when a leader
// is killed. If a node is deposed while it runs a script, it aborts the script, because it must apply its successor's entries.

// When a pipeline has run for maxPartTime ms, its remaining calls are put off. So other requests wait for one script of a client,
// not for all of them. While pressedSpread is in use, it takes the place of maxPartTime.
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

// runScript runs a command that runs a script. When the script has reached the busy threshold, the other requests that wait are
// answered BUSY. runScript sets *refused if the requests behind r have been answered BUSY, because of this script or an earlier one.
func (s *sequencer) runScript(ctx *store.Ctx, r *request, behind []*request, refused *bool) store.Reply {
	s.startTurn(s.turn.user)
	s.script.starts(r, s.waitFor(behind, *refused), s.turn.since)
	defer func() { *refused = s.scriptEnds() || *refused }()
	return s.evaluateScript(ctx)
}

func (s *sequencer) evaluateScript(ctx *store.Ctx) store.Reply {
	ctx.ScriptTime, ctx.StopAfter = s.usedUp(), s.stopAfter()
	reply := ctx.Cmd.Run(ctx)
	s.wasStopped(ctx)
	return reply
}

// runTransaction runs a transaction. The whole transaction has one time limit, and has no effect if it exceeds the limit. From its
// first script to its end, the transaction counts as one script: when the transaction has run for long, other requests are answered
// BUSY.
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
			// Neither short commands nor refusals of commands look at the clock (watch), and a transaction may have thousands
			// of them. So the clock is read here, now and then.
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

// companyTime is how long a script or command may run if its batch has requests before it. These requests have been evaluated,
// but are answered only when the batch is committed.
const companyTime = 100 * time.Millisecond

// stopAfter returns the time after which a script is stopped, to be run again in a later batch. It returns 0, which means
// never, if the script's batch has no requests before it.
func (s *sequencer) stopAfter() time.Duration {
	if s.company {
		return companyTime
	}
	return 0
}

// waitFor returns the requests that wait for a script, besides those in the inbox. These are the requests behind the script in its
// batch (behind), unless they were refused already; the requests that evaluateAgain has cut off from the batch; the requests of
// users who have used much time (s.users); and the long reads (s.long).
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

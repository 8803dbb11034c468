package cluster

import (
	"slices"
	"time"

	"lockstep/store"
)

// Scripts that run for long. Evaluation holds the state machine's lock. Raft's own goroutines do not
// need that lock on a leader, so heartbeats go on and leadership does not move.
//
// When a script has run for busy-reply-threshold, the leader answers BUSY to the requests that wait, until the
// script ends, is killed, or reaches --script-time-limit. A request that is answered BUSY has no effect. The same
// time limit holds for all commands of a transaction together. If a transaction exceeds the limit, or one of its
// scripts is killed, the leader refuses the whole transaction: nothing of it has been proposed.
//
// A pipeline with many scripts delays other requests by maxPartTime and one script at most. After that, the
// remaining calls of the pipeline are submitted anew, behind the requests that wait.
//
// When a script has run for runsAfter, the leader tells the node of its client (forward.Waits, which nodes of
// older versions ignore). If that leader is then lost, the memory that the script took may be the reason, so the
// node does not send the script to the next leader. It does send all other requests, so clients of living
// nodes see no error when a leader is killed. A node that is deposed while a script runs aborts the
// script, because it must apply its successor's entries.

// maxPartTime, in ms, is the time after which the remaining calls of a pipeline are put off, so that other requests
// wait for one script of a client, not for all of them. pressedSpread may take its place.
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

// runTransaction runs a transaction. The whole transaction has one time limit, and has no effect if it exceeds
// the limit. Other requests are answered BUSY as if one script ran from the first script of the transaction to
// the transaction's end.
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
			// A short command does not look at the clock (watch), nor does the refusal of a command, and a transaction may have
			// thousands of commands. So the clock is read here, now and then.
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

// companyTime is how long a script or command may run if its batch has requests before it: these have been evaluated,
// but are answered only when the batch is committed.
const companyTime = 100 * time.Millisecond

// stopAfter returns after what time a script is stopped, to be run again in a later batch; 0: never, because its batch has no
// requests before it.
func (s *sequencer) stopAfter() time.Duration {
	if s.company {
		return companyTime
	}
	return 0
}

// waitFor returns the requests that wait for a script, besides those in the inbox. These are the rest of the script's
// batch (behind) unless it was refused already, the requests that evaluateAgain has cut off from the batch, and the
// requests that go behind others.
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

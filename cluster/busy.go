package cluster

import (
	"time"

	"lockstep/store"
)

// Scripts that run for long. Evaluation holds the state machine's lock. Raft's own goroutines do not
// need that lock on a leader, so heartbeats go on and leadership does not move.
//
// After busy-reply-threshold the leader answers BUSY, without effect, to the requests that wait, until the
// script ends, is killed, or reaches --script-time-limit. All scripts of a transaction together have that
// limit. If they exceed it, or one of them is killed, the leader refuses the transaction as a whole:
// nothing of it has been proposed.
//
// A pipeline with many scripts delays other requests by maxPartTime and one script at most: then its remaining
// calls are submitted anew, behind the requests that wait.
//
// When a script has run for runsAfter, the leader tells the node of its client (frame 8, which older
// members ignore). If that leader is then lost, the memory that the script took may be the reason, so the
// node does not send the script to the next leader. It does send all other requests, so clients of living
// nodes see no error when a leader is killed. A node that is deposed while a script runs aborts the
// script, because it must apply its successor's entries.

// maxPartTime, in ms, is how long a pipeline runs at most before other requests have their turn: a client's
// scripts delay them one by one, not all at once. While lighter requests come, pressedSpread is the bound.
const maxPartTime = batchSpread

// tookLong reports whether the remaining calls of a pipeline, those after call i, have to wait for another turn.
func (s *sequencer) tookLong(r *request, i int) bool {
	if s.ctx.Stopped != "" {
		return true
	}
	c := &r.calls[i]
	if c.Txn == nil && !c.Cmd.Is(store.Scripting) && i%16 != 15 && s.turn.since == 0 {
		return false // reading the clock would take longer than the call
	}
	return s.node.clock.Now().Lease-r.at > s.spread
}

// runScript runs a command that runs a script. From the busy threshold on, all other requests are answered BUSY. runScript
// sets refused if the requests behind r have been answered BUSY, because of this script or an earlier one.
func (s *sequencer) runScript(ctx *store.Ctx, r *request, behind []*request, refused *bool) store.Reply {
	if *refused {
		behind = nil
	}
	s.startTurn(s.turn.user)
	s.script.starts(r, behind, s.turn.since)
	defer func() { *refused = s.scriptEnds() || *refused }()
	return s.evaluateScript(ctx)
}

func (s *sequencer) evaluateScript(ctx *store.Ctx) store.Reply {
	ctx.ScriptTime, ctx.StopAfter = s.usedUp(), s.stopAfter()
	reply := ctx.Cmd.Run(ctx)
	s.wasStopped(ctx)
	return reply
}

// runTransaction runs a transaction. The whole transaction has one time limit, and other requests are
// answered BUSY as if one script ran from the first script of the transaction to its end. A transaction that
// exceeds the limit has no effect.
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
		case denied || !ctx.Cmd.Is(store.Scripting):
			// A command of some milliseconds does not look at the clock itself, and neither does the check that refuses a command.
			// A transaction may have thousands of them.
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
			if *refused {
				behind = nil
			}
			s.script.starts(r, behind, s.node.cfg.Time.Monotonic())
		}
		reply := s.evaluateScript(ctx)
		s.ctx.StoppedForNow = ctx.StoppedForNow
		return reply
	})
}

// commandsPerLook is after how many commands a transaction looks at the clock.
const commandsPerLook = 16

// companyTime is how long a script or command may run while requests before it in its batch wait: they have been
// evaluated, and are answered when the batch is committed.
const companyTime = 100 * time.Millisecond

// stopAfter returns after how long a script is stopped for now; 0: never, because no request of its batch waits for it.
func (s *sequencer) stopAfter() time.Duration {
	if s.company {
		return companyTime
	}
	return 0
}

// scriptEnds notes that the script of the present turn has ended, and returns whether the requests behind it were refused.
func (s *sequencer) scriptEnds() (refused bool) {
	s.turn.ended = s.node.cfg.Time.Monotonic()
	return s.script.ends(s.turn.ended)
}

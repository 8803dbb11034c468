package cluster

import (
	"slices"
	"time"

	"lockstep/store"
)

// Scripts that run for long. Evaluation holds the state machine's lock. Raft's own goroutines do not
// need that lock on a leader, so heartbeats go on and leadership does not move.
//
// After busy-reply-threshold everything that waits is answered BUSY, without effect, until the script
// ends, is killed, or reaches --script-time-limit. That limit is for all scripts of a transaction
// together. If it does not suffice, or one of the scripts is killed, the transaction is refused as a
// whole: nothing of it has been proposed.
//
// A pipeline with many scripts delays others by one or two of them: what is left of it after
// maxPartTime is submitted anew, behind the requests that wait.
//
// When a script has run for runsAfter, the leader tells the node of its client (frame 8, which older
// members pass over). If that leader is lost, the script's memory may have been what was lost with it,
// so the node does not send the script on. It sends all others on: because of that, clients of living
// nodes see no error when a leader is killed. A node that is deposed while a script runs aborts the
// script, because it must apply its successor's entries.

// maxPartTime, in ms, is for how long a pipeline is run before others have their turn: a client's
// scripts hold them up one by one, not all at once.
const maxPartTime = batchSpread

// tookLong reports whether the others of a pipeline have to wait for another turn, now that its
// call i has been run.
func (s *sequencer) tookLong(r *request, i int) bool {
	if s.ctx.Stopped != "" {
		return true
	}
	c := &r.calls[i]
	if c.Txn == nil && !c.Cmd.Is(store.Scripting) && i%16 != 15 && s.turn.since == 0 {
		return false // to ask for the time would take longer
	}
	return s.node.clock.now().Lease-r.at > maxPartTime
}

// runScript runs a command that may take long: when it does, everybody else
// is told that the server is busy. It sets refused if the requests behind this
// one were, by this script or an earlier one.
func (s *sequencer) runScript(ctx *store.Ctx, r *request, behind []*request, refused *bool) store.Reply {
	if *refused {
		behind = nil
	}
	s.startTurn(s.turn.user)
	s.scriptStarts(r, behind)
	defer func() { *refused = s.scriptEnds() || *refused }()
	return s.evaluateScript(ctx)
}

func (s *sequencer) evaluateScript(ctx *store.Ctx) store.Reply {
	ctx.ScriptTime, ctx.StopAfter = s.usedUp(), s.stopAfter()
	reply := ctx.Cmd.Run(ctx)
	s.wasStopped(ctx)
	return reply
}

// runTransaction runs a transaction. It counts as one script: for how long it may run, and
// until when others are told that the server is busy, from its first script on. If it runs for longer, nothing of
// it takes place.
func (s *sequencer) runTransaction(txn *store.Txn, t *Transaction, r *request, behind []*request, refused *bool) (store.Reply, store.Error) {
	if len(t.Calls) > 0 {
		s.startTurn(t.Calls[0].User)
	}
	began := false
	defer func() {
		if began {
			*refused = s.scriptEnds() || *refused
		}
	}()
	return t.Run(txn, func(ctx *store.Ctx) store.Reply {
		switch {
		case !ctx.Cmd.Is(store.Scripting):
			return s.runCommand(ctx, ErrTransactionTime)
		case began && s.overTime():
			ctx.Stopped = ErrTransactionTime
			s.wasStopped(ctx)
			return store.Err(ErrTransactionTime)
		case !began:
			began = true
			if *refused {
				behind = nil
			}
			s.scriptStarts(r, behind)
		}
		reply := s.evaluateScript(ctx)
		s.ctx.StoppedForNow = ctx.StoppedForNow
		return reply
	})
}

// companyTime is how long a script may run while requests before it in its batch wait: they have been
// evaluated, and are answered when the batch is committed.
const companyTime = 100 * time.Millisecond

// stopAfter is when to stop a script for now; 0 if nobody waits for it.
func (s *sequencer) stopAfter() time.Duration {
	if s.company {
		return companyTime
	}
	return 0
}

// runsAfter is how long a script runs before the node that has sent it is told, see submit.go.
const runsAfter = 100 * time.Millisecond

// scriptStarts notes that a script runs, which requests of the batch come after its own,
// and who wants to know if it runs for long.
func (s *sequencer) scriptStarts(r *request, behind []*request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script++
	s.scriptSince = s.node.cfg.Time.Monotonic()
	if r.tried {
		s.scriptSince -= companyTime // for which others have waited already
	}
	s.behind, s.runs = behind, r.runs
	after := s.node.busyThreshold()
	if s.runs != nil {
		after = min(after, runsAfter)
	}
	// A timer that was set for an earlier script will do: it is set again when it ends.
	if now := s.node.cfg.Time.Monotonic(); s.busyDue <= now || s.busyDue > s.scriptSince+after {
		s.watchScript(s.scriptSince + after - now)
	}
}

// watchScript has setBusy look at the script that runs; mu is held.
func (s *sequencer) watchScript(after time.Duration) {
	s.busyDue = s.node.cfg.Time.Monotonic() + after
	if s.busyTimer == nil {
		s.busyTimer = time.AfterFunc(after, s.setBusy)
	} else {
		s.busyTimer.Reset(after)
	}
}

// scriptEnds returns whether the requests behind the script were refused. They
// may belong to others by now and must not be looked at.
func (s *sequencer) scriptEnds() (refused bool) {
	s.mu.Lock()
	if !s.busy && s.node.cfg.Time.Monotonic()-s.scriptSince >= s.node.busyThreshold() {
		s.refuseWaiting() // its time limit was no longer than the threshold
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	refused = s.busy
	s.script++
	s.behind, s.runs, s.busy = nil, nil, false
	return refused
}

// setBusy answers everything that waits behind a script that has run for too
// long, and everything that comes until it ends.
func (s *sequencer) setBusy() {
	s.mu.Lock()
	s.busyDue = 0
	if s.script%2 == 0 {
		s.mu.Unlock()
		return
	}
	ran := s.node.cfg.Time.Monotonic() - s.scriptSince
	if s.runs != nil && ran >= runsAfter {
		s.runs()
		s.runs = nil
	}
	left := s.node.busyThreshold() - ran
	if s.runs != nil {
		left = min(left, runsAfter-ran)
	}
	// The timer may have been set for a script that has ended meanwhile, or to tell runs.
	if left > 0 {
		s.watchScript(max(left, time.Millisecond))
		s.mu.Unlock()
		return
	}
	s.refuseWaiting()
}

// refuseWaiting tells those who wait behind the script that the server is busy; mu is held, and free afterwards.
func (s *sequencer) refuseWaiting() {
	s.busy = true
	// A copy: as soon as the script ends, others may stand where those behind it stood.
	q := slices.Concat(s.behind, s.queue)
	s.queue, s.behind = nil, nil
	s.mu.Unlock()
	for _, r := range q {
		r.refuseBusy(s.node.BusyError())
	}
}

func (s *sequencer) isBusy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy
}

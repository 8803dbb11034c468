package cluster

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"lockstep/raftfsm"
	"lockstep/store"
)

// evaluate runs requests on a transaction until the batch is full. It returns
// the batch, the entry to propose (nil if nothing was written and stamp is
// false), and the requests left over.
func (s *sequencer) evaluate(ctx context.Context, q []*request, now store.Time, stamp bool) (*batch, []byte, []*request) {
	n := s.node
	b := &batch{number: n.batches.Add(1)}
	var entry []byte
	n.fsm.View(func(st *store.Store, seq uint64) {
		b.prev = seq
		var txn *store.Txn
		for {
			txn = st.Begin(now, seq+1, store.Env{Grace: s.late.of, Receivers: n.cfg.Receivers})
			txn.ExpireDue(expireLimit)
			took, bad := s.evaluateOn(ctx, txn, q, b)
			if bad == nil {
				q = q[took:]
				break
			}
			// One request spoils the batch: answer it, evaluate the others
			// again on a fresh transaction.
			q = without(q, bad)
			b.requests = b.requests[:0]
		}
		if txn.Writes().Len() == 0 && !stamp {
			return
		}
		e := raftfsm.Entry{Prev: seq, Lease: txn.Now().Lease, Wall: txn.Now().Wall,
			Proposer: n.boot, Batch: b.number, Writes: txn.Writes().Bytes()}
		entry = e.Append(make([]byte, 0, len(e.Writes)+64))
	})
	return b, entry, q
}

func without(q []*request, bad *request) []*request {
	kept := make([]*request, 0, len(q))
	for _, r := range q {
		if r != bad {
			kept = append(kept, r)
		}
	}
	return kept
}

// evaluateOn runs requests on txn and adds them to b. It returns how many it
// took, or the one that must not be part of any batch: it has been answered.
func (s *sequencer) evaluateOn(ctx context.Context, txn *store.Txn, q []*request, b *batch) (took int, bad *request) {
	for _, r := range q {
		if ctx.Err() != nil || txn.Writes().Size() > maxBatchBytes {
			return took, nil
		}
		took++
		txn.SetNow(s.node.clock.now())
		r.replies = r.replies[:0]
		if err := s.evaluateOne(txn, r); err != nil {
			s.log.Error("a command failed inside the server; it had no effect", "error", err)
			r.refuse(ErrInternal)
			return took, r
		}
		if txn.Writes().Size() > maxEntryBytes {
			if len(b.requests) == 0 {
				r.refuse(store.ErrWriteSetTooBig)
				return took, r
			}
			// It may fit into an entry of its own; then the others go first.
			return s.evaluateBefore(ctx, txn, r, q, b)
		}
		b.requests = append(b.requests, r)
	}
	return took, nil
}

// evaluateBefore is reached when r wrote too much for the batch it was part
// of: the requests before it are evaluated again without it.
func (s *sequencer) evaluateBefore(ctx context.Context, txn *store.Txn, r *request, q []*request, b *batch) (int, *request) {
	n := 0
	for n < len(q) && q[n] != r {
		n++
	}
	b.requests = b.requests[:0]
	txn.Reset()
	return s.evaluateOn(ctx, txn, q[:n], b)
}

// evaluateOne runs the commands of one request. A panic in a handler is a bug,
// but it must cost one client an error, not the cluster a node.
func (s *sequencer) evaluateOne(txn *store.Txn, r *request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v\n%s", p, debug.Stack())
		}
	}()
	ctx := store.Ctx{Txn: txn}
	for i := range r.calls {
		c := &r.calls[i]
		ctx.Cmd, ctx.Args, ctx.DB, ctx.RESP = c.Cmd, c.Args, c.DB, c.RESP
		if c.Cmd.Is(store.Scripting) {
			r.replies = append(r.replies, s.runScript(&ctx))
		} else {
			r.replies = append(r.replies, c.Cmd.Run(&ctx))
		}
	}
	return nil
}

// runScript runs a command that may take long: when it does, everybody else
// is told that the server is busy.
func (s *sequencer) runScript(ctx *store.Ctx) store.Reply {
	run := s.scriptStarts()
	timer := time.AfterFunc(s.node.busyThreshold(), func() { s.setBusy(run) })
	defer func() {
		timer.Stop()
		s.scriptEnds()
	}()
	return ctx.Cmd.Run(ctx)
}

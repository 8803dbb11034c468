package cluster

import (
	"testing"
	"testing/synctest"

	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// A request that is sent again after a long suspension is not executed twice, although a leader keeps no answer for so long.
func TestOnceAfterALongSuspension(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.log.decides(0, once(applyLater))
		p.log.set(func(l *fakeLog) { l.barrier = unreachable })
		reply := p.startMany(p.b, "INCR counter")
		synctest.Wait()
		p.cut()
		p.depose()
		// Here eleven minutes pass for the others.
		p.log.set(func(l *fakeLog) {
			l.barrier = nil
			l.settle()
			var e raftfsm.Entry
			l.fsm.View(func(_ *store.Store, seq uint64) {
				e = raftfsm.Entry{Prev: seq, Lease: raftfsm.OriginLifetime * 11 / 10, Proposer: 99, Batch: 1,
					Requests: raftfsm.AppendAnswers(nil, []raftfsm.Answer{{Origin: 77, ID: 1, Low: 1}})}
			})
			l.apply(e.Append(nil))
		})
		p.lead()
		p.connect()
		got := <-reply
		if n := p.do("GET counter"); n != "1" {
			t.Errorf("told %q, and it was executed %s times", got, n)
		}
	})
}

package cluster

import (
	"testing"
	"testing/synctest"
)

// async runs a pipeline as an event loop does, on a submission that is used
// again and again.
func (n *testNode) async(p *Submission, lines ...string) string {
	n.t.Helper()
	done := make(chan struct{}, 2)
	p.Calls, p.Done = n.call(lines...), func() { done <- struct{}{} }
	n.SubmitAsync(p)
	n.Flush()
	<-done
	got := text(p.Replies)
	synctest.Wait()
	if len(done) > 0 {
		n.t.Errorf("%v was answered twice", lines)
	}
	return got
}

// TestSubmitAsync: a submission that is used again and again has every outcome that Submit has.
func TestSubmitAsync(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		var p Submission
		expect := func(want string, lines ...string) {
			t.Helper()
			if got := n.async(&p, lines...); got != want {
				t.Errorf("%v: got %q, want %q", lines, got, want)
			}
		}
		expect("-CLUSTERDOWN -CLUSTERDOWN", "INCR counter", "GET counter") // no leader
		n.lead()
		expect("1 1", "INCR counter", "GET counter")
		n.log.decides(0, once(overtake))
		expect("2", "INCR counter") // evaluated again
		n.log.decides(0, always(forget))
		n.log.set(func(l *fakeLog) { l.barrier = func() error { return errDeposed } })
		expect("-INDETERMINATE", "INCR counter") // after that the node no longer leads
		n.log.decides(0, nil)
		n.log.set(func(l *fakeLog) { l.barrier = nil })
		expect("3 3", "INCR counter", "GET counter")
		n.depose()
		synctest.Wait()
		expect("-CLUSTERDOWN", "GET counter")
	})
}

// TestSubmitAsyncCollects: what is submitted before Flush is one batch.
func TestSubmitAsyncCollects(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		before, _ := n.log.count()
		var list [10]Submission
		done := make(chan struct{}, len(list))
		for i := range list {
			list[i].Calls, list[i].Done = n.call("INCR counter"), func() { done <- struct{}{} }
			n.SubmitAsync(&list[i])
		}
		synctest.Wait()
		if len(done) > 0 {
			t.Errorf("%d submissions ran before Flush", len(done))
		}
		n.Flush()
		for range list {
			<-done
		}
		if after, _ := n.log.count(); after-before != 1 {
			t.Errorf("%d entries for one batch", after-before)
		}
		n.expect("10", "GET counter")
	})
}

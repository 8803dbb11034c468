package cluster

import (
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// mute gives a node a link to a leader that takes requests and says nothing.
func mute(n *Node) *forward.Link {
	l, far := testLink()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	n.routes.set(n.ctx, nil, l)
	return l
}

// FailoverWait bounds only the time that a request spends without a leader, however long a leader had it before.
func TestBudgetBeginsWithTheLossOfTheLeader(t *testing.T) {
	for _, line := range []string{"INCR counter", "EXISTS counter"} {
		for name, lose := range map[string]func(*Node, *forward.Link){
			"replaced":  func(b *Node, l *forward.Link) { b.routes.drop(nil, l) },
			"link lost": func(b *Node, l *forward.Link) { l.Fail(); b.routes.drop(nil, l) },
		} {
			t.Run(line+", "+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					n, b := newTestNode(t), newTestNode(t)
					l := mute(b.Node)
					defer l.Fail()
					reply := startOn(n, b.Node, line, true)
					wait := n.cfg.FailoverWait
					time.Sleep(2 * wait)
					lose(b.Node, l)
					time.Sleep(wait - 200*ms)
					n.lead()
					n.carried(b.Node)
					if got := <-reply; got != "1" && got != "0" {
						t.Errorf("told %q", got)
					}
				})
			})
		}
	}
}

// If the next leader is elected within FailoverWait, it answers the request, even if the answer comes after FailoverWait.
func TestBudgetLeavesTheNextLeaderItsTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, b := newTestNode(t), newTestNode(t)
		l := mute(b.Node)
		reply := startOn(n, b.Node, "INCR counter", false)
		synctest.Wait()
		l.Fail()
		b.routes.drop(nil, l)
		time.Sleep(n.cfg.FailoverWait - 100*ms)
		n.log.decides(time.Second, once(commitSlowly))
		n.lead()
		n.carried(b.Node)
		if got := <-reply; got != "1" {
			t.Errorf("told %q", got)
		}
	})
}

// While no leader answers, a request ends in time, even if one leader after the other is lost.
func TestBudgetIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, b := newTestNode(t), newTestNode(t)
		wait := n.cfg.FailoverWait
		l := mute(b.Node)
		reply := startOn(n, b.Node, "INCR counter", false)
		time.Sleep(2 * wait)
		lost := time.Now()
		for range 3 {
			l.Fail()
			b.routes.drop(nil, l)
			time.Sleep(wait / 5)
			l = mute(b.Node)
			time.Sleep(wait / 5)
		}
		l.Fail()
		b.routes.drop(nil, l)
		if got := <-reply; got != "-INDETERMINATE" {
			t.Errorf("told %q", got)
		}
		if took := time.Since(lost); took < wait || took > 2*wait {
			t.Errorf("told after %v", took)
		}
	})
	// A leader that answers that it does not know the outcome is not lost: the request gets no more time.
	bubble(t, func(t *testing.T) {
		n, b := newTestNode(t), newTestNode(t)
		n.lead()
		n.carried(b.Node)
		n.log.decides(0, once(forget))
		n.log.set(func(l *fakeLog) { l.barrier = unreachable })
		began := time.Now()
		got := n.doOn(b.Node, "INCR counter")
		if took := time.Since(began); got != "-INDETERMINATE" || took > 2*n.cfg.FailoverWait {
			t.Errorf("told %q after %v", got, took)
		}
	})
}

// When a request's time is over and its leader is lost, the request ends, even if there is already another leader.
func TestBudgetOverAsTheLeaderIsReplaced(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T) {
			n, b := newTestNode(t), newTestNode(t)
			l := mute(b.Node)
			reply := startOn(n, b.Node, "INCR counter", false)
			for range 2 { // the loss of the first leader grants more time
				time.Sleep(2 * n.cfg.FailoverWait)
				old := l
				l = mute(b.Node)
				old.Fail()
				synctest.Wait()
			}
			defer l.Fail()
			select {
			case got := <-reply:
				if got != "-INDETERMINATE" {
					t.Errorf("told %q", got)
				}
			default:
				t.Error("sent to a third leader")
			}
		})
		if t.Failed() {
			return
		}
	}
}

// The time of a blocking command, too, begins with the loss of the leader.
func TestBudgetOfABlockingCommand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.cut()
		l := mute(p.b)
		_, done := p.block(p.b, "BLPOP list 60")
		wait := p.cfg.FailoverWait
		time.Sleep(2 * wait)
		l.Fail()
		p.b.routes.drop(nil, l)
		time.Sleep(wait - 200*ms)
		p.connect()
		time.Sleep(200 * ms)
		p.expect("1", "RPUSH list a")
		p.got(done, "[list a]")
	})
}

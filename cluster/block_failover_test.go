package cluster

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/raftfsm"
)

// Blocked clients do not notice a change of leader, and their timeouts do not begin anew.
func TestBlockedThroughElection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		start := time.Now()
		_, here := p.wait(p.Node, "BLPOP l 0")
		_, there := p.wait(p.b, "BLPOP l 0")
		_, short := p.wait(p.b, "BLPOP none 10")
		_, over := p.wait(p.b, "BLPOP none 3")
		time.Sleep(time.Second)
		p.cut()
		p.depose()
		time.Sleep(2200 * ms)
		p.silent(over) // nobody knows whether it was served
		p.lead()
		p.connect()
		time.Sleep(100 * ms)
		p.got(over, "")
		p.silent(here)
		p.silent(there)
		p.expect("2", "RPUSH l x x")
		p.got(here, "[l x]")
		p.got(there, "[l x]")
		<-short
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("timed out after %v", took)
		}
	})
}

// The link breaks, but the leader lives. The clients behind the link leave its queues, and queue again.
func TestBlockedThroughBrokenLink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		_, there := p.wait(p.b, "BLPOP l 0")
		_, here := p.wait(p.Node, "BLPOP l 0")
		p.cut()
		synctest.Wait()
		p.expect("1", "RPUSH l x")
		p.got(here, "[l x]")
		p.connect()
		time.Sleep(100 * ms)
		p.silent(there)
		p.expect("1", "RPUSH l y")
		p.got(there, "[l y]")
	})
}

// The link breaks after the leader has served the client: the client's node
// learns of it from the log, and the command does not run again.
func TestBlockedServedBehindBrokenLink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		_, there := p.wait(p.b, "BLPOP l 0")
		p.log.decides(200*ms, always(commitSlowly))
		push := p.start("RPUSH l x y")
		synctest.Wait()
		p.cut()
		p.connect()
		<-push
		p.got(there, "[l x]")
		time.Sleep(time.Second)
		p.expect("[y]", "LRANGE l 0 -1")
	})
}

// When the leader is lost while the entry that serves a client is in flight, no element is given out twice or lost.
func TestBlockedInDoubt(t *testing.T) {
	for _, fate := range []verdict{applyLater, supersedeLater} {
		for _, forwarded := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				p := newPair(t)
				node := p.Node
				if forwarded {
					node = p.b
				}
				_, done := p.wait(node, "BLPOP l 0")
				p.log.set(func(l *fakeLog) { l.barrier = func() error { return errDeposed } })
				p.log.decides(0, func(e raftfsm.Entry) verdict {
					if strings.Contains(string(e.Writes), "elem") {
						return fate
					}
					return commit
				})
				push := p.start("RPUSH l elem")
				synctest.Wait()
				p.silent(done)
				p.cut()
				p.depose()
				p.log.decides(0, nil)
				p.log.set(func(l *fakeLog) { l.barrier = nil })
				p.lead()
				p.connect()
				time.Sleep(100 * ms)
				// The node sends a push again whose entry was superseded.
				p.got(done, "[l elem]")
				p.got(push, "1")
				p.expect("0", "EXISTS l")
			})
		}
	}
}

// A node dies, and its connection stays open: no element goes to its clients.
func TestSilentPeerSwallowsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		_, there := p.wait(p.b, "BLPOP l 0")
		time.Sleep(3 * aliveTimeout)
		seq := p.routes.get().seq
		if !seq.blockedClients.any() {
			t.Fatal("a live peer's client was let go")
		}
		p.b.cancel() // it no longer tells the leader that it lives
		p.b.work.Wait()
		p.got(there, "-INDETERMINATE")
		time.Sleep(3 * aliveTimeout)
		p.expect("1 x", "RPUSH l x", "LPOP l")
	})
}

// While there is no leader, a new blocking command is refused after FailoverWait.
func TestBlockedWithoutLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.depose()
		p.cut()
		synctest.Wait()
		for _, node := range []*Node{p.Node, p.b} {
			start := time.Now()
			b, gone := p.wait(node, "BLPOP l 0")
			node.Abandon(b)
			_, done := p.wait(node, "BLPOP l 0.1")
			if got := <-done; got != "-CLUSTERDOWN" || time.Since(start) < node.cfg.FailoverWait {
				t.Errorf("got %q after %v", got, time.Since(start))
			}
			p.silent(gone)
		}
	})
}

// A snapshot has replaced the entries that tell whether a client was served. So the client's reply is INDETERMINATE.
func TestBlockedInDoubtForEver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		_, there := p.wait(p.b, "BLPOP l 0")
		p.b.restored(0, 1)
		p.cut()
		synctest.Wait()
		p.connect()
		time.Sleep(100 * ms)
		p.got(there, "-INDETERMINATE")
	})
}

// A replaced leader that does not know it must not tell a blocked client that there was no element.
func TestBlockedOnReplacedLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.log.set(func(l *fakeLog) {
			l.verify = func() error { time.Sleep(200 * ms); return errDeposed }
		})
		_, here := p.wait(p.Node, "BLPOP l 0.05")
		_, there := p.wait(p.b, "BLPOP l 0.05")
		time.Sleep(100 * ms)
		p.silent(here)
		p.silent(there)
		p.log.set(func(l *fakeLog) { l.verify = nil })
		p.depose()
		p.lead()
		p.expect("2", "RPUSH l x y")
	})
}

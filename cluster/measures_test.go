package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/tally"
	"github.com/lockstep-io/lockstep/store"
)

// kindCounts returns what a node has counted about the locks of a kind.
func kindCounts(n *Node, kind string) (found *tally.LockKind) {
	n.Measures().Locks.Each(func(name string, k *tally.LockKind) {
		if name == kind {
			found = k
		}
	})
	return found
}

// TestWaitsAreCounted: the node of a client that waits for a lock counts the client while it waits, and what became of the wait.
func TestWaitsAreCounted(t *testing.T) {
	for _, forwarded := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			node, other := p.Node, p.b
			if forwarded {
				node, other = p.b, p.Node
			}
			k := kindCounts(node, "plain")
			check := func(when string, waiting int64, granted, timeout, refused, left uint64, sum time.Duration) {
				t.Helper()
				synctest.Wait()
				got := [...]uint64{k.Waited[tally.Got].Load(), k.Waited[tally.TimedOut].Load(), k.Waited[tally.Refused].Load(), k.Waited[tally.Left].Load()}
				seen := k.Wait.Load()
				if want := [...]uint64{granted, timeout, refused, left}; k.Waiting.Load() != waiting || got != want || time.Duration(seen.Sum) != sum || seen.Count != granted+timeout+refused+left {
					t.Errorf("forwarded %v, %s: %d wait, ended %v in %v, want %d, %v in %v", forwarded, when, k.Waiting.Load(), got, time.Duration(seen.Sum), waiting, want, sum)
				}
			}
			p.do("LOCK.ACQUIRE lock a PX 60000")
			_, b := p.wait(node, "LOCK.ACQUIRE lock b PX 60000 WAIT 700")
			check("one waits", 1, 0, 0, 0, 0, 0)
			<-b
			check("the wait is over", 0, 0, 1, 0, 0, 700*ms)
			_, c := p.wait(node, "LOCK.ACQUIRE lock c PX 60000 WAIT 50000")
			time.Sleep(300 * ms)
			p.do("DEL lock")
			p.grantedLock(c)
			check("one got it", 0, 1, 1, 0, 0, time.Second)
			gone, _ := p.wait(node, "LOCK.ACQUIRE lock d PX 60000 WAIT 50000")
			time.Sleep(200 * ms)
			node.Abandon(gone)
			check("one has left", 0, 1, 1, 0, 1, 1200*ms)
			stays, done := p.wait(node, "LOCK.ACQUIRE lock e PX 60000 WAIT 50000")
			node.Unblock(stays, store.Err("UNBLOCKED"), nil)
			<-done
			check("one is refused", 0, 1, 1, 1, 1, 1200*ms)
			_, pop := p.wait(node, "BLPOP list 0")
			check("BLPOP waits for no lock", 0, 1, 1, 1, 1, 1200*ms)
			p.do("RPUSH list x")
			<-pop
			if n := kindCounts(other, "plain").Wait.Load().Count; n != 0 {
				t.Errorf("the other node counts %d waits", n)
			}
		})
	}
}

// TestTheLeaderCounts: the leader counts its batches, the locks that commands do not get, and the leases that it lengthens.
func TestTheLeaderCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		m := p.Measures()
		before, batches := m.Commit.Load().Count, m.Batch.Load()
		p.log.decides(100*ms, always(commitSlowly)) // each entry takes 100 ms
		p.do("SET lock a NX PX 60000")
		p.log.decides(0, nil)
		p.do("SET lock b NX PX 60000")
		p.do("SET lock b NX PX 60000")
		p.do("GET lock")
		synctest.Wait() // the leader counts a batch after it has answered
		if k := kindCounts(p.Node, "plain"); k.Missed.Load() != 2 {
			t.Errorf("%d misses, not 2", k.Missed.Load())
		}
		commit, batch := m.Commit.Load(), m.Batch.Load()
		if commit.Count == before || time.Duration(commit.Sum) < 100*ms {
			t.Errorf("%d commits in %v", commit.Count-before, time.Duration(commit.Sum))
		}
		if batch.Count-batches.Count != 4 || batch.Sum-batches.Sum != 4 {
			t.Errorf("%d batches with %d requests", batch.Count-batches.Count, batch.Sum-batches.Sum)
		}
		if n := m.Lengthened.Load(); n != 1 {
			t.Errorf("%d leases were lengthened, not 1", n)
		}
	})
}

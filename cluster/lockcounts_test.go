package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/tally"
	"github.com/lockstep-io/lockstep/store"
)

// heard is a LockSink that only counts what it is told.
type heard struct{ off, told, old, lost int }

func (h *heard) Wanted() bool                                       { return h.off == 0 }
func (h *heard) Locked(_ uint64, _ store.Time, e []store.LockEvent) { h.told += len(e) }
func (h *heard) Retold(_ uint64, _ store.Time, e []store.LockEvent) { h.old += len(e) }
func (h *heard) Lost(uint64, store.Time)                            { h.lost++ }

// TestLocksAreCounted: the leader counts how locks begin and end, and for how long they were held, by kind; followers count nothing.
func TestLocksAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		sink := &heard{}
		p.fsm.Witness(newLockCounter(p.Node, sink))
		p.b.fsm.Witness(newLockCounter(p.b, &heard{}))
		k := kindCounts(p.Node, "plain")
		check := func(when string, granted, renewed uint64, ended [len(tally.Ends)]uint64, held time.Duration) {
			t.Helper()
			synctest.Wait()
			got := [len(tally.Ends)]uint64{}
			sum := uint64(0)
			for i := range got {
				got[i] = k.Ended[i].Load()
				sum += got[i]
			}
			seen := k.Held.Load()
			if k.Granted.Load() != granted || k.Renewed.Load() != renewed || got != ended || seen.Count != sum || time.Duration(seen.Sum) != held {
				t.Errorf("%s: %d granted, %d renewed, %v ended, held for %v; want %d, %d, %v, %v", when, k.Granted.Load(), k.Renewed.Load(), got, time.Duration(seen.Sum), granted, renewed, ended, held)
			}
		}
		p.do("SET lock a NX PX 60000")
		check("taken", 1, 0, [5]uint64{}, 0)
		time.Sleep(2 * time.Second)
		p.do("PEXPIRE lock 90000")
		p.do("DEL lock")
		check("released", 1, 1, [5]uint64{1}, 2*time.Second)
		p.do("SET lock a NX PX 1000")
		time.Sleep(5 * time.Second)
		p.do("GET lock")
		synctest.Wait()
		if held := time.Duration(k.Held.Load().Sum) - 2*time.Second; held < time.Second || held > 1200*ms {
			t.Errorf("the lease that ended was held for %v", held)
		}
		p.do("LOCK.ACQUIRE again r PX 60000 REENTRANT", "LOCK.ACQUIRE again r PX 60000 REENTRANT", "LOCK.RELEASE again r")
		re := kindCounts(p.Node, "reentrant")
		if re.Granted.Load() != 1 || re.Ended[tally.Released].Load() != 0 {
			t.Errorf("held twice, released once: %d granted, %d released", re.Granted.Load(), re.Ended[tally.Released].Load())
		}
		p.do("LOCK.FORCE again REASON stuck")
		if re.Ended[tally.Forced].Load() != 1 || re.Held.Load().Count != 1 {
			t.Errorf("%d ended by force", re.Ended[tally.Forced].Load())
		}
		if far := kindCounts(p.b, "plain"); far.Granted.Load()+far.Ended[tally.Released].Load() != 0 {
			t.Error("the follower counts, too")
		}
		before := k.Granted.Load()
		newLockCounter(p.Node, sink).Retold(1, store.Time{}, []store.LockEvent{{How: store.LockGranted, Kind: "plain", Holds: 1}})
		if sink.old != 1 || k.Granted.Load() != before {
			t.Error("an event from before the start of the node was not passed on, or counted")
		}
		sink.off = 1
		p.do("SET other a NX PX 60000")
		if sink.told < 8 || k.Granted.Load() != before {
			t.Errorf("%d events were passed on; %d granted without events", sink.told, k.Granted.Load()-before)
		}
	})
}

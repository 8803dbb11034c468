package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// LOCK.WAITERS shows an owner that has asked again and again, from the second time on, until it has not asked for a while or has got the lock.
func TestPollers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.do("SET k a NX PX 600000")
		shows := func(want ...string) {
			t.Helper()
			got := p.doOn(p.b, "LOCK.WAITERS k")
			if strings.Count(got, "queue poller") != len(want) {
				t.Errorf("%s, want %q", got, want)
			}
			for _, owner := range want {
				if !strings.Contains(got, "owner "+owner+" queue poller") {
					t.Errorf("%s, want %q", got, want)
				}
			}
			if got := p.doOn(p.b, "LOCK.INFO k"); !strings.Contains(got, fmt.Sprintf("waiters %d ", len(want))) {
				t.Errorf("%s, want %d waiters", got, len(want))
			}
		}
		p.do("SET k b NX PX 100")
		p.do("SET k b NX PX 100") // at the same instant: perhaps one that ran twice
		shows()
		time.Sleep(100 * time.Millisecond)
		p.doOn(p.b, "SET k b NX PX 100")
		p.doOn(p.b, "SETNX k c")
		p.doOn(p.b, "LOCK.ACQUIRE k d PX 100")
		shows("b")
		time.Sleep(100 * time.Millisecond)
		p.do("SETNX k c")
		p.do("LOCK.ACQUIRE k d PX 100")
		p.do("SET k a NX PX 100") // the holder itself
		shows("b", "c", "d")
		time.Sleep(3 * time.Second)
		shows()
		p.do("SET k b NX PX 100") // its pauses are of a second and a half now
		time.Sleep(4 * time.Second)
		shows("b")
		time.Sleep(11 * time.Second)
		p.do("SET k b NX PX 100")
		shows() // it begins anew
		time.Sleep(time.Second)
		p.do("SET k b NX PX 100")
		shows("b")
		p.do("SET k c GET")
		shows() // nobody has asked the new owner
		p.do("SET k b NX PX 100")
		shows("b")
		p.do("SET note v PX 100")
		p.do("SET note b NX")
		time.Sleep(10 * time.Millisecond)
		p.do("SET note b NX")
		if got := p.do("LOCK.WAITERS note"); got != "[]" {
			t.Errorf("of a key that is no lock: %s", got)
		}
	})
}

// What the leader remembers of clients that ask again and again is bounded, of one lock and of all.
func TestPollsAreBounded(t *testing.T) {
	now := time.Duration(0)
	p := newPolls(func() time.Duration { return now })
	count := func(key string) (n int) {
		p.each(0, key, 7, func(store.Waiter) bool { n++; return true })
		return n
	}
	for range 2 {
		now += 10 * time.Millisecond
		for i := range 3 * mostPollsOfKey {
			p.asked(0, "k", 7, fmt.Sprint("owner", i), "u")
		}
		for i := range mostPollsOfKey {
			p.asked(0, "l", 7, fmt.Sprint("owner", i), "u")
		}
	}
	if got := count("l"); got != mostPollsOfKey {
		t.Errorf("%d owners, want %d", got, mostPollsOfKey)
	}
	if got := len(p.of[pollKey{0, p.hash("k")}]); got != mostPollsOfKey {
		t.Errorf("%d owners of one lock are remembered, want %d", got, mostPollsOfKey)
	}
	if count("m") != 0 {
		t.Error("owners of another lock")
	}
	for i := range 3 * mostPolls {
		p.asked(0, fmt.Sprint("key", i), 7, strings.Repeat("x", 10*pollOwner), "u")
	}
	kept := 0
	for _, list := range p.of {
		kept += len(list)
		for _, w := range list {
			if len(w.owner) > pollOwner {
				t.Fatalf("an owner of %d bytes", len(w.owner))
			}
		}
	}
	if kept != mostPolls || len(p.ring) != mostPolls || len(p.of) != mostPolls {
		t.Errorf("%d remembered, %d in the ring, of %d locks, want %d", kept, len(p.ring), len(p.of), mostPolls)
	}
	if count("l") != 0 {
		t.Error("the oldest did not give way")
	}
}

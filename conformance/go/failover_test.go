package conformance

import (
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// workers contend for one lock of each library.
const workers = 3

// stage is one library in one mode during a failover.
type stage struct {
	library
	key          string
	owner, thief locker
	held         held

	stop, over           atomic.Bool
	inside, after        atomic.Int32
	mu                   sync.Mutex
	faults, unknown, off []string
	wg                   sync.WaitGroup
}

func (s *stage) start(t *testing.T, a addrs) {
	s.key = newKey()
	s.owner, s.thief = s.make(t, a), s.make(t, a)
	h, err := s.owner.acquire(s.key+":held", 2*time.Minute, 0)
	if err != nil || h == nil {
		t.Errorf("%s %s: %v", s.client, s.mode, err)
		return
	}
	s.held = h
	for range workers {
		l := s.make(t, a)
		s.wg.Go(func() { s.contend(l) })
	}
}

func (s *stage) contend(l locker) {
	for ; !s.stop.Load(); time.Sleep(10 * time.Millisecond) {
		// Leases are short: a lock whose grant was lost on the way stays taken until its lease ends.
		h, err := l.acquire(s.key, 8*time.Second, 8*time.Second)
		if err == nil && h != nil {
			over := s.over.Load()
			if s.inside.Add(1) != 1 {
				s.fault("two inside")
			}
			time.Sleep(2 * time.Millisecond)
			s.inside.Add(-1)
			if err = h.release(); err == nil && over {
				s.after.Add(1)
			}
		}
		if err != nil {
			s.fault(err.Error())
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// fault sorts errors: those of requests with an unknown outcome, those of connections to the killed node, and real faults.
func (s *stage) fault(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	plain := strings.HasPrefix(s.mode, "plain")
	switch {
	// A client or redsync may have sent a release twice. If the first was executed, the second is refused.
	case strings.Contains(text, "INDETERMINATE"), (!plain || strings.HasPrefix(s.client, "redsync")) && isRefusal(text):
		s.unknown = append(s.unknown, text)
	case !plain && isLost(text):
		s.off = append(s.off, text)
	default:
		s.faults = append(s.faults, text)
	}
}

// isRefusal reports whether an error says that a release was refused. Each library words that differently.
func isRefusal(text string) bool {
	for _, part := range []string{errNotOwner.Error(), "lock not held", "lock was already expired", "lock already taken"} {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// isLost reports whether an error comes from the loss of the killed node. Followers redirect to that node for a while (MOVED).
func isLost(text string) bool {
	for _, part := range []string{"MOVED", "EOF", "connection refused", "connection reset", "broken pipe", "i/o timeout", "closed"} {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// TestFailover kills the leader once, while every library uses its locks.
func TestFailover(t *testing.T) {
	a := addrsNow(t)
	impossible := ""
	switch {
	case os.Getenv("LOCKSTEP_CONTROL") == "":
		impossible = "nobody to ask for a failover"
	case len(a.Plain) < 3:
		impossible = "a failover needs three nodes"
	}
	stages := make([]*stage, len(libraries))
	for i, l := range libraries {
		stages[i] = &stage{library: l}
		if impossible == "" && l.missing(a) == "" {
			stages[i].start(t, a)
		}
	}
	if impossible == "" && !t.Failed() {
		survive(t, stages)
	}
	for _, s := range stages {
		reason := s.missing(a)
		if reason == "" {
			reason = impossible
		}
		name := strings.ReplaceAll(s.client+"/"+s.mode, " ", "-")
		t.Run(name+"/held", func(t *testing.T) {
			report(t, s.library, "failover_held_lock_is_still_held", reason)
			s.checkHeld(t)
		})
		t.Run(name+"/contended", func(t *testing.T) {
			report(t, s.library, "failover_contended_lock_goes_on", reason)
			s.checkContended(t)
		})
	}
}

// survive kills the leader, and waits until the clients can take the contended locks again.
func survive(t *testing.T, stages []*stage) {
	time.Sleep(500 * time.Millisecond)
	failover(t)
	for _, s := range stages {
		s.over.Store(true)
	}
	eventually(25*time.Second, func() bool {
		for _, s := range stages {
			if s.held != nil && s.after.Load() < 3 {
				return false
			}
		}
		return true
	})
	for _, s := range stages {
		s.stop.Store(true)
	}
	for _, s := range stages {
		s.wg.Wait()
	}
}

func (s *stage) checkHeld(t *testing.T) {
	if s.held == nil {
		t.Fatal("the lock was never held")
	}
	// A library that renews by itself may have lost a renewal in the failover. If so, it must have told the owner.
	if l, ok := s.held.(renewingLock); ok && l.givenUp() {
		t.Log("given up by the library, and its owner knows")
	} else if get(t, s.thief, s.key+":held", 5*time.Second, 0) != nil {
		t.Fatal("granted twice")
	}
	err := s.held.release()
	if err != nil && !strings.HasPrefix(s.mode, "plain") && isLost(err.Error()) {
		// go-redis 6 and 7 notice only at a request that their connection is gone.
		err = s.held.release()
	}
	if err != nil {
		t.Fatalf("release: %v", err)
	}
	if !eventually(5*time.Second, func() bool { return get(t, s.thief, s.key+":held", 5*time.Second, 0) != nil }) {
		t.Fatal("not released")
	}
}

func (s *stage) checkContended(t *testing.T) {
	if len(s.faults) > 0 {
		t.Errorf("errors: %q", s.faults)
	}
	// Only requests that were in flight when the leader died may have an unknown outcome.
	if len(s.unknown) > workers {
		t.Errorf("%d unknown outcomes of %d clients: %q", len(s.unknown), workers, s.unknown)
	}
	if s.after.Load() < 3 {
		t.Errorf("granted %d times after the failover", s.after.Load())
	}
}

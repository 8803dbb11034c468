package load

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a peer in memory. Every request takes a given time.
type fake struct {
	mu       sync.Mutex
	locks    map[string]string // key to owner
	delay    func() time.Duration
	opened   int
	closed   int
	generous bool                     // grants even a lock that is held
	queues   map[string]chan struct{} // hold an element while a client is inside, by key
	natively int                      // calls of EnterNative

	lag   time.Duration // from the end of a lease until the lock is deleted
	ended int           // leases that have ended so far
}

func newFake(delay time.Duration) *fake {
	return &fake{locks: map[string]string{}, delay: func() time.Duration { return delay }, queues: map[string]chan struct{}{}}
}

func (f *fake) queue(key string) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.queues[key] == nil {
		f.queues[key] = make(chan struct{}, 1)
	}
	return f.queues[key]
}

func (f *fake) Open(owner string) (Session, error) {
	f.opened++
	return &fakeSession{f, owner}, nil
}

type fakeSession struct {
	*fake
	owner string
}

// count carries out one request.
func (s *fakeSession) count(keys []string, do func(key string) bool) (n int, err error) {
	s.mu.Lock()
	for _, key := range keys {
		if do(key) {
			n++
		}
	}
	wait := s.delay()
	s.mu.Unlock()
	time.Sleep(wait)
	return n, nil
}

func (s *fakeSession) Lock(keys []string) (int, error) {
	return s.count(keys, func(key string) bool {
		if s.locks[key] != "" && !s.generous {
			return false
		}
		s.locks[key] = s.owner
		return true
	})
}

func (s *fakeSession) Unlock(keys []string) (int, error) {
	return s.count(keys, func(key string) bool {
		mine := s.locks[key] == s.owner
		if mine {
			delete(s.locks, key)
		}
		return mine
	})
}

func (s *fakeSession) Renew(keys []string) (int, error) {
	return s.count(keys, func(key string) bool { return s.locks[key] == s.owner })
}

func (s *fakeSession) Held(keys []string) (int, error) {
	return s.count(keys, func(key string) bool { return s.locks[key] != "" })
}

func (s *fakeSession) Hold(keys []string) (int, error)            { return s.Lock(keys) }
func (s *fakeSession) Drop(keys []string) (int, error)            { return s.Unlock(keys) }
func (s *fakeSession) LockReentrant(keys []string) (int, error)   { return s.Lock(keys) }
func (s *fakeSession) UnlockReentrant(keys []string) (int, error) { return s.Unlock(keys) }

func (s *fakeSession) Enter(key string) error {
	s.queue(key) <- struct{}{}
	_, err := s.Lock([]string{key})
	return err
}

func (s *fakeSession) EnterAlone(key string) error { return s.Enter(key) }

func (s *fakeSession) Leave(key string) error {
	_, err := s.Unlock([]string{key})
	<-s.queue(key)
	return err
}

func (s *fakeSession) LockNative(keys []string) (int, error)   { return s.Lock(keys) }
func (s *fakeSession) UnlockNative(keys []string) (int, error) { return s.Unlock(keys) }
func (s *fakeSession) LeaveNative(key string) error            { return s.Leave(key) }

func (s *fakeSession) EnterNative(key string) error {
	s.mu.Lock()
	s.natively++
	s.mu.Unlock()
	return s.Enter(key)
}

// HoldFor starts a timer for each lease.
func (s *fakeSession) HoldFor(keys []string, lease time.Duration) (int, error) {
	for range keys {
		time.AfterFunc(lease+s.lag, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ended++
		})
	}
	return s.Lock(keys)
}

func (s *fakeSession) Expired() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended, nil
}

func (s *fakeSession) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
	return nil
}

func spec(t *testing.T, name string, clients, pipeline int) Spec {
	t.Helper()
	w, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return Spec{Workload: w, Clients: clients, Pipeline: pipeline, Locks: 1000, Warm: 100 * time.Millisecond, For: time.Second, Pipelines: true}
}

func noMeter() error { return nil }

// In a closed loop, the time of a request decides the number of operations.
func TestClosedLoop(t *testing.T) {
	for _, c := range []struct {
		workload          string
		clients, pipeline int
		ops, steps        int
	}{
		{"cycle", 2, 1, 100, 100}, // two requests of 10 ms each
		{"cycle", 2, 16, 1600, 100},
		{"leased", 2, 1, 100, 100},
		{"set", 3, 1, 300, 300},
		{"rlock", 2, 1, 100, 100},
		{"renew", 4, 1, 400, 400},
		{"miss", 5, 2, 1000, 500},
		{"mixed", 2, 1, 200, 200},
		{"unlock", 2, 1, 200, 200},
		{"unlock", 50, 10, 1000, 100}, // the run ends when no prepared locks are left
		{"contended", 1, 1, 50, 50},
		{"herd", 1, 1, 50, 50},
		{"native", 1, 1, 50, 50},
		{"native-cycle", 2, 1, 100, 100},
		{"native-cycle", 2, 16, 1600, 100},
	} {
		t.Run(c.workload, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(10 * time.Millisecond)
				out, err := Run(spec(t, c.workload, c.clients, c.pipeline), f, noMeter, noMeter)
				if err != nil {
					t.Fatal(err)
				}
				// A step may end in the same moment as the measurement begins or ends.
				off, steps := out.Ops-c.ops, len(out.Latencies)-c.steps
				if max(off, -off) > c.clients*c.pipeline || max(steps, -steps) > c.clients || out.Elapsed > time.Second {
					t.Errorf("%d operations in %d steps in %v, want %d in %d", out.Ops, len(out.Latencies), out.Elapsed, c.ops, c.steps)
				}
				if len(out.PerClient) != c.clients || f.opened != c.clients || f.closed != c.clients {
					t.Errorf("%d clients have counts, %d were opened and %d closed, want %d", len(out.PerClient), f.opened, f.closed, c.clients)
				}
			})
		})
	}
}

// Clients that wait for one lock do as many operations together as one client would alone. Five clients take turns of 20 ms, of
// which each client waits all but the 10 ms of its own release.
func TestContended(t *testing.T) {
	for _, name := range []string{"contended", "herd", "native"} {
		for _, queues := range []int{0, 1, 4} {
			synctest.Test(t, func(t *testing.T) {
				s := spec(t, name, 5*max(1, queues), 1)
				s.Queues = queues
				f := newFake(10 * time.Millisecond)
				out, err := Run(s, f, noMeter, noMeter)
				if err != nil {
					t.Fatal(err)
				}
				if each := out.Ops / max(1, queues); each < 49 || each > 51 || len(f.queues) != max(1, queues) {
					t.Errorf("%s: %d hand-offs of each of %d locks in %v of 20 ms each", name, each, len(f.queues), out.Elapsed)
				}
				if wait := Mean(out.Waits); len(out.Waits) != out.Ops || wait != 90*time.Millisecond {
					t.Errorf("%s: %d of %d have waited, %v on average", name, len(out.Waits), out.Ops, wait)
				}
				if (name == "native") != (f.natively > 0) {
					t.Errorf("%s: %d clients waited natively", name, f.natively)
				}
			})
		}
	}
}

// recipes hides the native locks of a fake's sessions.
type recipes struct{ *fake }

func (r recipes) Open(owner string) (Session, error) {
	s, err := r.fake.Open(owner)
	return struct {
		Session
		Queued
	}{s, s.(Queued)}, err
}

// A peer without native locks uses its recipe in the workload native. Workloads without queues have no waits.
func TestNativeByRecipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(10 * time.Millisecond)
		out, err := Run(spec(t, "native", 5, 1), recipes{f}, noMeter, noMeter)
		if err != nil || out.Ops < 49 || out.Ops > 51 || len(out.Waits) != out.Ops || f.natively != 0 {
			t.Errorf("%d hand-offs of 20 ms each, %d natively, %v", out.Ops, f.natively, err)
		}
		if out, err = Run(spec(t, "native-cycle", 5, 1), f, noMeter, noMeter); err != nil || len(out.Waits) != 0 {
			t.Errorf("%d have waited for a lock of their own, %v", len(out.Waits), err)
		}
	})
}

// In an open loop, a late reply adds to the latencies of the steps behind it.
func TestOpenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		n := 0
		f.delay = func() time.Duration {
			if n++; n == 1 {
				return 505 * time.Millisecond
			}
			return time.Millisecond
		}
		s := spec(t, "set", 1, 1)
		s.Warm, s.Rate, s.For = 0, 100, 995*time.Millisecond
		out, err := Run(s, f, noMeter, noMeter)
		if err != nil {
			t.Fatal(err)
		}
		if out.Ops != 100 {
			t.Errorf("%d operations at 100 a second", out.Ops)
		}
		slices.Sort(out.Latencies)
		if got := Quantile(out.Latencies, 0.2); got != time.Millisecond {
			t.Errorf("undisturbed: %v, want 1ms", got)
		}
		// The latencies are 505, 496, 487... ms, because a step was due every 10 ms.
		if got := Quantile(out.Latencies, 0.75); got < 200*time.Millisecond || got > 300*time.Millisecond {
			t.Errorf("p75 is %v: those that waited for their turn do not count as late", got)
		}
	})
}

// A step that takes longer than the measurement still counts.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := spec(t, "set", 1, 1)
		s.Warm = 0
		out, err := Run(s, newFake(5*time.Second), noMeter, noMeter)
		if err != nil || out.Ops != 1 || out.Elapsed != 5*time.Second {
			t.Errorf("%d operations in %v, %v", out.Ops, out.Elapsed, err)
		}
	})
}

// The clients' turns in an open loop are spread evenly.
func TestPacer(t *testing.T) {
	began := time.Unix(1000, 0)
	var due []time.Duration
	for place := range 2 {
		p := pacer{began: began, place: place, clients: 2, every: 5 * time.Millisecond}
		for range 3 {
			due = append(due, p.due().Sub(began))
		}
	}
	ms := time.Millisecond
	if want := []time.Duration{0, 10 * ms, 20 * ms, 5 * ms, 15 * ms, 25 * ms}; !slices.Equal(due, want) {
		t.Errorf("%v, want %v", due, want)
	}
}

// If a peer grants a lock twice, the measurement ends with an error: such a peer is no lock server.
func TestBrokenLocksAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(time.Millisecond)
		f.generous = true
		if _, err := Run(spec(t, "miss", 20, 1), f, noMeter, noMeter); !errors.Is(err, errWrong) {
			t.Errorf("a lock that another one holds was granted: got %v", err)
		}
	})
	for _, step := range []func(*client) (int, error){handOff, herd, native} {
		c := &client{Session: &fakeSession{newFake(0), "me"}, run: &run{inside: make([]atomic.Int32, 2)}, queue: 1}
		c.run.inside[0].Add(1) // another lock
		if _, err := step(c); err != nil {
			t.Error(err)
		}
		c.run.inside[1].Add(1)
		if _, err := step(c); !errors.Is(err, errWrong) {
			t.Errorf("two were inside: got %v", err)
		}
	}
}

// A preparation that takes too long is cut short. The measurement then uses the locks that were prepared until then.
func TestPreparationIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := spec(t, "renew", 2, 1)
		s.Pipelines = false
		out, err := Run(s, newFake(100*time.Millisecond), noMeter, noMeter)
		if err != nil {
			t.Fatal(err)
		}
		if out.Ops < 18 || out.Ops > 22 {
			t.Errorf("%d renewals", out.Ops)
		}
	})
}

// Take takes all locks that are to be held, however long that lasts.
func TestHeld(t *testing.T) {
	for _, pipeline := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(100 * time.Millisecond)
			h, err := OpenHeld(f, 500, pipeline)
			if err != nil || f.opened != holders || len(f.locks) != 0 {
				t.Fatalf("%d sessions, %d locks, %v", f.opened, len(f.locks), err)
			}
			if err := h.Take(); err != nil {
				t.Fatal(err)
			}
			if len(f.locks) != 500 || f.locks["alive:0"] == "" || f.locks["alive:499"] == "" {
				t.Errorf("%d locks are there", len(f.locks))
			}
			if err := h.Close(); err != nil || f.closed != holders {
				t.Errorf("%d of %d sessions are closed, %v", f.closed, f.opened, err)
			}
		})
	}
}

// Run calls the meters right before and right after all operations. An error of a meter ends the run.
func TestMeters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(10 * time.Millisecond)
		var began, ended time.Time
		out, err := Run(spec(t, "cycle", 1, 1), f,
			func() error { began = time.Now(); return nil }, func() error { ended = time.Now(); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if ended.Sub(began) != out.Whole || out.Whole < 1100*time.Millisecond || out.Elapsed != time.Second {
			t.Errorf("%v between the meters, %v in all, %v measured", ended.Sub(began), out.Whole, out.Elapsed)
		}
		if out.AllOps < out.Ops+5 {
			t.Errorf("%d operations in all, %d measured, five of 20 ms before", out.AllOps, out.Ops)
		}
		_, err = Run(spec(t, "cycle", 1, 1), f, func() error { return errors.New("no meter") }, noMeter)
		if err == nil || !strings.Contains(err.Error(), "no meter") {
			t.Errorf("got %v", err)
		}
	})
}

func TestFindUnknown(t *testing.T) {
	if _, err := Find("nosuch"); err == nil {
		t.Error("found")
	}
}

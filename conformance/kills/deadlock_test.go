package kills

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// span is a time in which something may have been so at the servers: from the request that began it until the reply that ended it.
type span struct {
	lock       string
	began, end time.Time // end is zero while it lasts
}

func (s *span) overlaps(from, to time.Time) bool {
	return !s.began.After(to) && (s.end.IsZero() || !s.end.Before(from))
}

// seen is what the clients of the test know of one another: which locks each owner may have held, and for which it may have waited.
type seen struct {
	mu           sync.Mutex
	holds, waits map[string][]*span
}

func (s *seen) begin(in map[string][]*span, owner, lock string, at time.Time) *span {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &span{lock: lock, began: at}
	in[owner] = append(in[owner], x)
	return x
}

func (s *seen) end(x *span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.end = time.Now()
}

// explains reports whether each owner of a circle may have waited, between two times, for a lock that the next one may have held.
func (s *seen) explains(circle []string, asked string, from, to time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range len(circle) - 1 {
		waiter, holder := circle[i], circle[i+1]
		edge := slices.ContainsFunc(s.waits[waiter], func(w *span) bool {
			return w.overlaps(from, to) && (i > 0 || w.lock == asked) && slices.ContainsFunc(s.holds[holder], func(h *span) bool {
				return h.lock == w.lock && h.overlaps(from, to)
			})
		})
		if !edge {
			return false
		}
	}
	return true
}

// TestDeadlocksOfRandomLocks: clients on all nodes take locks in random orders, with timeouts. Each refusal with DEADLOCK names a circle that
// was one, and no client waits for ever.
func TestDeadlocksOfRandomLocks(t *testing.T) {
	length := 4 * time.Second
	if s := os.Getenv("LOCKSTEP_DEADLOCKS_FOR"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		length = d
	}
	const clients, locks = 24, 6
	list := nodes.Start(t, 3)
	s := &seen{holds: map[string][]*span{}, waits: map[string][]*span{}}
	var counts struct {
		sync.Mutex
		granted, timedOut, refused int
		took                       []time.Duration
	}
	var work sync.WaitGroup
	until := time.Now().Add(length)
	for i := range clients {
		conn := list[i%3].Dial()
		defer conn.Close()
		rng := rand.New(rand.NewPCG(uint64(i), 7))
		work.Go(func() {
			for turn := 0; time.Now().Before(until) && !t.Failed(); turn++ {
				owner := fmt.Sprintf("c%d.%d", i, turn)
				held := map[string]*span{}
				for _, n := range rng.Perm(locks)[:2+rng.IntN(2)] {
					lock := fmt.Sprint("lock", n)
					granted, refused, took := takeOne(t, s, conn, owner, lock, held, rng)
					counts.Lock()
					switch {
					case granted:
						counts.granted++
					case refused:
						counts.refused++
						counts.took = append(counts.took, took)
					default:
						counts.timedOut++
					}
					counts.Unlock()
					if !granted {
						break
					}
					time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
				}
				for lock, x := range held {
					if r, err := conn.Do("LOCK.RELEASE", lock, owner); err != nil || r != int64(0) {
						t.Errorf("%s releases %s: %v %v", owner, lock, r, err)
					}
					s.end(x)
				}
			}
		})
	}
	work.Wait()
	slices.Sort(counts.took)
	if counts.refused == 0 || counts.granted == 0 {
		t.Fatalf("%d locks granted, %d refused", counts.granted, counts.refused)
	}
	t.Logf("%d locks granted, %d waits timed out, %d refused; from request to refusal: median %v, 99th percentile %v, longest %v", counts.granted, counts.timedOut,
		counts.refused, counts.took[len(counts.took)/2], counts.took[len(counts.took)*99/100], counts.took[len(counts.took)-1])
}

// takeOne waits for one lock. It checks the circle of a refusal.
func takeOne(t *testing.T, s *seen, conn *respclient.Conn, owner, lock string, held map[string]*span, rng *rand.Rand) (granted, refused bool, took time.Duration) {
	from := time.Now()
	wait, hold := s.begin(s.waits, owner, lock, from), s.begin(s.holds, owner, lock, from)
	r, err := conn.Do("LOCK.ACQUIRE", lock, owner, "PX", "60000", "WAIT", fmt.Sprint(200+rng.IntN(800)))
	to := time.Now()
	s.end(wait)
	if list, ok := r.([]any); ok && len(list) == 3 {
		held[lock] = hold
		return true, false, 0
	}
	s.end(hold)
	switch {
	case err == nil && r == nil:
		return false, false, 0
	case err != nil && strings.HasPrefix(err.Error(), "DEADLOCK owner "):
		text := strings.TrimPrefix(err.Error(), "DEADLOCK owner ")
		circle := strings.Split(strings.ReplaceAll(text, ", which waits for ", " waits for "), " waits for ")
		if circle[0] != owner || circle[len(circle)-1] != owner || !s.explains(circle, lock, from, to) {
			t.Errorf("%s asked for %s: %v: this was no circle", owner, lock, err)
		}
		return false, true, to.Sub(from)
	}
	t.Errorf("%s asks for %s: %v %v", owner, lock, r, err)
	return false, false, 0
}

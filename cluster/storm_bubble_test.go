package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
)

// storm is a cluster with constant faults, and its clients.
type storm struct {
	*bubbled
	random  *rand.Rand
	over    atomic.Bool
	clients sync.WaitGroup

	mu      sync.Mutex
	counted map[string]string // the replies that clients got, by key
	grants  []owned
	begun   int // number of clients so far, for their names
}

// owned notes that a client was told that it has the lock.
type owned struct {
	owner string
	at    time.Time // time of the reply
}

const stormTTL = 700 * time.Millisecond

// serve starts clients on a node. They end when the node ends.
func (s *storm) serve(n *Node) {
	for range 2 {
		s.mu.Lock()
		s.begun++
		name := fmt.Sprint("c", s.begun)
		pace := rand.New(rand.NewPCG(s.random.Uint64(), 1))
		s.mu.Unlock()
		s.clients.Go(func() {
			for k := 0; !s.over.Load() && n.ctx.Err() == nil; k++ {
				s.count(n, fmt.Sprint(name, ".", k))
				s.lock(n, fmt.Sprint(name, ".", k))
				time.Sleep(time.Duration(pace.IntN(40)) * ms)
			}
		})
	}
}

// count increments a key that nobody else uses, from nothing to 1.
func (s *storm) count(n *Node, key string) {
	got := lines(s.t, n, "INCR "+key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted[key] = got
}

// lock tries to take the lock that all clients want. It does not release the lock: the lease ends by itself.
func (s *storm) lock(n *Node, owner string) {
	switch got := lines(s.t, n, "SET lock "+owner+fmt.Sprintf(" NX PX %d", stormTTL/ms)); got {
	case "OK":
		s.mu.Lock()
		defer s.mu.Unlock()
		s.grants = append(s.grants, owned{owner, time.Now()})
	case "nil", "-CLUSTERDOWN", "-INDETERMINATE":
	default:
		s.t.Errorf("SET NX: told %q", got)
	}
}

// strike causes a fault, ends it after a while, and returns a description of it.
func (s *storm) strike() string {
	i := s.random.IntN(3)
	lasts := time.Duration(s.random.IntN(4500)) * ms // at times more than FailoverWait
	switch s.random.IntN(4) {
	case 0:
		s.alone(i)
		time.Sleep(lasts)
		s.wires.heal()
		return fmt.Sprintf("%s alone for %v", s.cfg[i].ID, lasts)
	case 1: // a cut between two nodes
		s.wires.cut([]string{s.cfg[i].ID}, []string{s.cfg[(i+1)%3].ID})
		time.Sleep(lasts)
		s.wires.heal()
		return fmt.Sprintf("no way from %s to %s for %v", s.cfg[i].ID, s.cfg[(i+1)%3].ID, lasts)
	case 2:
		return fmt.Sprintf("transfer: %v", s.nodes[i].Transfer(""))
	}
	s.crash(i)
	time.Sleep(lasts)
	n, err := Open(s.cfg[i])
	if err != nil {
		s.t.Fatal(err)
	}
	s.nodes[i] = n
	s.serve(n)
	return fmt.Sprintf("%s dead for %v", s.cfg[i].ID, lasts)
}

// TestRealRaftStorm: whatever faults the real Raft meets, nobody gets a lock before its last lease is over, and all nodes end with the
// same state.
func TestRealRaftStorm(t *testing.T) {
	clustertest.Slow(t)
	seeds := uint64(3)
	if underRace {
		seeds = 1
	}
	if s := os.Getenv("LOCKSTEP_STORMS"); s != "" {
		var err error
		if seeds, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(c *bubbled) {
				s := &storm{bubbled: c, random: rand.New(rand.NewPCG(seed, 0)), counted: map[string]string{}}
				s.run()
			}, func(cfg *Config) {
				cfg.SnapshotThreshold, cfg.SnapshotInterval, cfg.TrailingLogs = 100, 100*ms, 20
			})
		})
	}
}

func (s *storm) run() {
	for _, n := range s.nodes {
		s.serve(n)
	}
	var struck []string
	for range 8 {
		time.Sleep(time.Duration(s.random.IntN(1500)) * ms)
		struck = append(struck, s.strike())
	}
	s.leader()
	time.Sleep(2 * stormTTL)
	s.over.Store(true)
	s.clients.Wait()
	s.check()
	s.same()
	if s.t.Failed() {
		s.t.Log(strings.Join(struck, "\n"))
	}
}

func (s *storm) check() {
	slices.SortFunc(s.grants, func(a, b owned) int { return a.at.Compare(b.at) })
	for i := range s.grants[1:] {
		last, next := s.grants[i], s.grants[i+1]
		if free := last.at.Add(stormTTL); next.at.Before(free) {
			s.t.Errorf("%s had the lock, and %s got it %v before its lease was over", last.owner, next.owner, free.Sub(next.at))
		}
	}
	unknown, down := 0, 0
	for key, told := range s.counted {
		got := s.do(0, "GET "+key)
		ok := false
		switch told {
		case "1":
			ok = got == "1"
		case "-CLUSTERDOWN":
			ok = got == "nil"
			down++
		case "-INDETERMINATE":
			ok = got == "nil" || got == "1"
			unknown++
		}
		if !ok {
			s.t.Errorf("INCR %s was told %q, and its value is %s", key, told, got)
		}
	}
	s.t.Logf("%d writes (%d of unknown outcome, %d refused), %d grants", len(s.counted), unknown, down, len(s.grants))
	if len(s.grants) < 5 || len(s.counted) < 200 {
		s.t.Error("the clients had next to no service")
	}
}

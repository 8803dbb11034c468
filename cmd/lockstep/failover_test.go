package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"lockstep/bench"
	"lockstep/conformance/nodes"
)

// rounds is how often a test kills the leader: a few times in `make test`,
// $LOCKSTEP_FAILOVERS times in `make failover`.
func rounds(t *testing.T) int {
	t.Helper()
	s := os.Getenv("LOCKSTEP_FAILOVERS")
	if s == "" {
		return 2
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("LOCKSTEP_FAILOVERS=%q is not a number", s)
	}
	return n
}

// grantLimit is the longest that a lock may take to be granted after the
// leader was killed.
const grantLimit = 2 * time.Second

const unlock = `if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end`

// TestLeaderKilled holds 20 locks, kills the leader, and expects every lock
// with its owner on the survivors, a new one granted in time, and three equal
// states after the restart.
func TestLeaderKilled(t *testing.T) {
	list := nodes.Start(t, 3)
	var grants []time.Duration
	for round := range rounds(t) {
		owners := map[string]string{}
		for i := range 20 {
			key, owner := fmt.Sprintf("lock:%d:%d", round, i), fmt.Sprintf("owner-%d-%d", round, i)
			if got, err := list[i%3].Do("SET", key, owner, "NX", "PX", "60000"); got != "OK" {
				t.Fatalf("round %d: lock %s: %v, %v", round, key, got, err)
			}
			owners[key] = owner
		}
		leader := nodes.Leader(list)
		if leader == nil {
			t.Fatalf("round %d: no leader", round)
		}
		var survivors []*nodes.Node
		for _, n := range list {
			if n != leader {
				survivors = append(survivors, n)
			}
		}
		leader.Kill()
		grants = append(grants, grantAfterKill(t, survivors, fmt.Sprintf("lock:%d:new", round)))
		for key, owner := range owners {
			for _, n := range survivors {
				if got, err := n.Do("GET", key); got != owner {
					t.Errorf("round %d: %s on %s: owner %v, %v; want %s", round, key, n.ID, got, err, owner)
				}
				if got, err := n.Do("SET", key, "thief", "NX", "PX", "60000"); got != nil || err != nil {
					t.Errorf("round %d: %s was granted twice through %s: %v, %v", round, key, n.ID, got, err)
				}
			}
		}
		leader.Run()
		leader.WaitReady()
		waitEqual(t, list)
		for key, owner := range owners {
			if got, err := leader.Do("EVAL", unlock, "1", key, owner); got != int64(1) {
				t.Errorf("round %d: unlock of %s: %v, %v", round, key, got, err)
			}
		}
	}
	t.Logf("from kill to next grant: %v", grants)
}

// grantAfterKill asks the survivors for a new lock until one grants it.
func grantAfterKill(t *testing.T, survivors []*nodes.Node, key string) time.Duration {
	t.Helper()
	start := time.Now()
	for attempt := 0; ; attempt++ {
		for _, n := range survivors {
			// A new lock each time: an attempt whose outcome was reported as
			// unknown may have taken the one before.
			got, err := n.Do("SET", fmt.Sprint(key, attempt, n.ID), "me", "NX", "PX", "60000")
			if got == "OK" {
				took := time.Since(start)
				if took > grantLimit {
					t.Errorf("%s was granted %v after the kill, the limit is %v", key, took, grantLimit)
				}
				return took
			}
			if time.Since(start) > 5*grantLimit {
				t.Fatalf("%s: not granted %v after the kill: %v, %v", key, time.Since(start), got, err)
			}
		}
	}
}

// waitEqual waits until all nodes report one applied index and one state hash.
func waitEqual(t *testing.T, list []*nodes.Node) {
	t.Helper()
	var seen []string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		seen = seen[:0]
		equal := true
		for _, n := range list {
			st, err := n.Status()
			if err != nil {
				t.Fatalf("%s: %v", n.ID, err)
			}
			seen = append(seen, st["applied"]+" "+st["state-hash"])
			equal = equal && st["state-hash"] != "" && seen[len(seen)-1] == seen[0]
		}
		if equal {
			return
		}
	}
	t.Fatalf("the nodes do not agree on applied index and state hash: %q", seen)
}

// TestAllKilled kills all three nodes at once under load. Every write that was
// acknowledged must be there after the restart.
func TestAllKilled(t *testing.T) {
	list := nodes.Start(t, 3)
	var (
		mu    sync.Mutex
		acked = map[string]string{}
		wg    sync.WaitGroup
	)
	for w := range 12 {
		c := list[w%3].Dial()
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; ; i++ {
				key, value := fmt.Sprintf("w%d:%d", w, i), fmt.Sprintf("v%d", i)
				got, err := c.Do("SET", key, value, "NX", "PX", "600000")
				if err != nil {
					return // killed
				}
				if got == "OK" {
					mu.Lock()
					acked[key] = value
					mu.Unlock()
				}
			}
		}()
	}
	for {
		mu.Lock()
		n := len(acked)
		mu.Unlock()
		if n >= 2000 {
			break
		}
		time.Sleep(10 * time.Millisecond) // polls a counter, no TTL
	}
	for _, n := range list {
		if err := n.Process().Kill(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range list {
		n.Kill()
	}
	wg.Wait()
	for _, n := range list {
		n.Run()
	}
	for _, n := range list {
		n.WaitReady()
	}
	lost := checkAll(t, list[0].Dial(), acked)
	t.Logf("%d acknowledged writes, %d lost", len(acked), lost)
	waitEqual(t, list)
}

func checkAll(t *testing.T, c *bench.Conn, want map[string]string) (lost int) {
	t.Helper()
	for key, value := range want {
		got, err := c.Do("GET", key)
		if err != nil {
			t.Fatal(err)
		}
		if got != value {
			lost++
			t.Errorf("%s = %v, want %s: an acknowledged write is lost", key, got, value)
		}
	}
	return lost
}

// TestCleanStop hands leadership over: a client of another node sees no error
// while the leader is stopped by SIGINT.
func TestCleanStop(t *testing.T) {
	list := nodes.Start(t, 3)
	leader := nodes.Leader(list)
	other := list[0]
	if other == leader {
		other = list[1]
	}
	c := other.Dial()
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if _, err := c.Do("INCR", "counter"); err != nil {
				done <- fmt.Errorf("INCR %d: %w", i, err)
				return
			}
		}
	}()
	if code := leader.Terminate(); code != exitOK {
		t.Errorf("exit code %d, want %d:\n%s", code, exitOK, leader.Log())
	}
	if got, err := other.Do("SET", "after", "1", "NX", "PX", "1000"); got != "OK" {
		t.Errorf("after the stop: %v, %v", got, err)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

package cluster

import (
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
)

// When the leader of a busy cluster falls silent, a follower without the last entries hardly delays the election of the other one.
func TestRealRaftSilentLeaderOfABusyCluster(t *testing.T) {
	clustertest.Slow(t)
	runs := 40
	if underRace {
		runs = 10
	}
	var took []time.Duration
	for range runs {
		inBubble(t, func(c *bubbled) {
			c.transfer(c.nodes[0], 0)
			var writers sync.WaitGroup
			stop := make(chan struct{})
			for range 4 {
				writers.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							lines(c.t, c.nodes[0], "SET key value")
						}
					}
				})
			}
			time.Sleep(100 * ms)
			silent := time.Now()
			c.alone(0)
			c.leaderOf(1, 2)
			took = append(took, time.Since(silent))
			close(stop)
			writers.Wait()
			c.wires.heal()
			c.leader()
			c.same()
		})
	}
	// Raft notices a silent leader within three heartbeat timeouts. A later winner was refused at least once more.
	late, limit := 0, 3*Default().HeartbeatTimeout+5*ms+10*bubbleDelay
	for _, d := range took {
		if d > limit {
			late++
		}
	}
	if late > runs/20 {
		t.Errorf("nobody led for more than %v in %d of %d runs", limit, late, runs)
	}
}

package cluster

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/raftfsm"
)

// Large requests that wait for their turn end, without being run, when their clients are cut off.
func TestCutOffClientsStopWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.log.decides(time.Second, func(e raftfsm.Entry) verdict {
			if len(e.Writes) > HeavyBytes {
				return commitSlowly
			}
			return commit
		})
		const many, bytes = 20, fair.LargeAtOnce / 2
		var clients []*Client
		var waiting atomic.Int32
		for i := range many {
			c := n.NewClient(heavyHost)
			clients = append(clients, c)
			waiting.Add(1)
			go func() {
				defer waiting.Add(-1)
				n.run(c, i%2 == 0, fmt.Sprintf("SET k%d %s", i, strings.Repeat("x", bytes)))
			}()
		}
		time.Sleep(10 * ms)
		for _, c := range clients {
			c.Gone()
		}
		time.Sleep(3 * time.Second) // requests that were already under way end
		if left := waiting.Load(); left > 0 {
			t.Errorf("%d of %d still wait", left, many)
		}
		if got := n.do("DBSIZE"); got != "1" && got != "2" {
			t.Errorf("%s keys were written of clients that had gone", got)
		}
	})
}

package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// TestNextLeaderKnowsOverruns: the next leader keeps a user's shortened time limit.
func TestNextLeaderKnowsOverruns(t *testing.T) {
	inBubble(t, func(c *bubbled) {
		stopped := func(i int) time.Duration {
			start := time.Now()
			if got := c.do(i, "SPIN 1m"); !strings.HasPrefix(got, "-") {
				t.Errorf("not stopped: %s", got)
			}
			return time.Since(start)
		}
		first := c.leader()
		for range 5 {
			stopped(first)
		}
		time.Sleep(time.Second) // the other nodes ask every 250 ms
		heir := (first + 1) % 3
		c.transfer(c.nodes[first], heir)
		for range 2 {
			if took := stopped(heir); took > 200*ms {
				t.Errorf("the heir lets it run for %v", took)
			}
		}
		time.Sleep(time.Second)
		c.alone(heir)
		if took := stopped(c.leaderOf(first, (heir+1)%3)); took > 200*ms {
			t.Errorf("the successor of a leader that stands alone lets it run for %v", took)
		}
	}, func(cfg *Config) {
		cfg.Scripts = &limited{limit: 3 * time.Second, kill: make(chan struct{})}
		cfg.Table = store.NewTable(store.Commands(), []store.Command{spin})
	})
}

package cluster

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
)

// With SameOwnerNX, a Redlock client that takes one cluster's nodes for separate servers gets its lock. Otherwise a node logs the
// mistake once.
func TestRealRaftRedlockOverOneCluster(t *testing.T) {
	clustertest.Slow(t)
	const take = "SET lock 0123456789abcdef NX PX 1000"
	for _, sameOwner := range []bool{false, true} {
		log := &clustertest.Buffer{}
		inBubble(t, func(c *bubbled) {
			leader := c.leader()
			want := "nil"
			if sameOwner {
				want = "OK"
			}
			var last time.Time
			for i, reply := range []string{"OK", want, want} {
				c.expect((leader+i)%3, reply, take)
				if reply == "OK" {
					last = time.Now()
				}
				time.Sleep(100 * ms)
			}
			c.expect(leader, "nil", "SET lock somebody-elses-value NX PX 1000")
			c.endsWithin(leader, "lock", "0123456789abcdef", last, time.Second, unknownLate)
		}, func(cfg *Config) {
			cfg.SameOwnerNX = sameOwner
			cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
		})
		if n := strings.Count(log.String(), "found the very value"); (n == 1) == sameOwner || n > 1 {
			t.Errorf("with the option %v: %d lines in the log", sameOwner, n)
		}
	}
}

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// TestMonitorSlack: in a durable node, only the runtime's monitor has the timer slack monitorSlack. In an ephemeral node, no thread
// has it.
func TestMonitorSlack(t *testing.T) {
	for name, c := range map[string]struct {
		processors string
		flags      []string
		want       int
	}{
		"durable":         {"1", nil, 1},
		"many processors": {"8", nil, 1},
		"ephemeral":       {"", []string{"--ephemeral"}, 0},
		"without":         {"1", []string{"--without", slowMonitor}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOMAXPROCS", c.processors)
			n := nodes.Start(t, 1, c.flags...)[0]
			var clients sync.WaitGroup
			for range 20 {
				clients.Go(func() {
					for range 50 {
						if _, err := n.Do("SET", "k", strings.Repeat("v", 5000)); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			if _, err := n.Do("BGSAVE"); err != nil {
				t.Error(err)
			}
			clients.Wait()
			threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", n.Process().Pid))
			if err != nil {
				t.Fatal(err)
			}
			relaxed := 0
			for _, thread := range threads {
				b, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
				if errors.Is(err, fs.ErrPermission) {
					t.Skip("reading the timer slack of another process takes CAP_SYS_NICE")
				}
				slack, err2 := strconv.Atoi(strings.TrimSpace(string(b)))
				if err := errors.Join(err, err2); err != nil {
					t.Fatal(err)
				}
				if slack == int(monitorSlack) {
					relaxed++
				}
			}
			if relaxed != c.want {
				t.Errorf("%d of %d threads have the slack, want %d", relaxed, len(threads), c.want)
			}
		})
	}
}

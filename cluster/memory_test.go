package cluster

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/cluster/brake"
)

// TestEvaluationWaitsForTheCollector: near the memory limit, the sequencer waits until the garbage collector has freed what is no
// longer in use.
func TestEvaluationWaitsForTheCollector(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the garbage collector runs only when the sequencer waits for it
	defer brake.Set(0, 0)
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		inUse := func() int64 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		runtime.GC()
		const room = 40 << 20
		before, most := inUse(), int64(0)
		brake.Set(before+room, 0)
		push := "RPUSH list" + strings.Repeat(" e", 5000)
		for range 300 { // they allocate some 350 MB
			n.expect("5000", push)
			n.expect("1", "DEL list")
			most = max(most, inUse()-before)
		}
		if most > 2*room {
			t.Errorf("%d MB are in use, and callers wait from %d MB on", most>>20, room>>20)
		}
	})
}

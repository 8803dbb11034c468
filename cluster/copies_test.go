package cluster

import (
	"fmt"
	"testing"
	"testing/synctest"
)

// Small requests that copy much data go into several entries, because memory holds all copies of an entry during its evaluation.
func TestCopiesCloseABatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t, badCommands...)
		n.lead()
		const keys = 24
		var lines []string
		for i := range keys {
			n.expect("OK", fmt.Sprintf("FILL k%d 1", i))
			lines = append(lines, fmt.Sprintf("SETRANGE k%d 0 y", i))
		}
		before, _ := n.log.count()
		n.together(lines...)
		after, _ := n.log.count()
		const blocker = 1
		if entries := after - before - blocker; entries < keys<<20/maxHeldBytes-1 || entries > keys/4 {
			t.Errorf("%d entries for %d copies of a megabyte", entries, keys)
		}
		synctest.Wait()
		if held := n.routes.get().seq.txn.Held(); held != 0 {
			t.Errorf("%d bytes are held", held)
		}
	})
}

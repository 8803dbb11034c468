package cluster

import (
	"strings"
	"testing"

	"lockstep/store"
)

// A pipeline with large replies or writes is run in parts, here and by a link; a part
// that is sent again is answered as the first time.
func TestPartOfAPipeline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, b := newTestNode(t), newTestNode(t)
		n.lead()
		value := strings.Repeat("x", 700_000)
		n.expect("OK", "SET big "+value)
		reads := []string{"GET big", "GET big", "GET big", "INCR c"}
		if got := n.SubmitPart(n.call(reads...), nil); len(got) != 2 {
			t.Errorf("%d of 4 calls were run, want those up to a megabyte of replies", len(got))
		}
		n.expect(value+" "+value+" "+value+" 1", reads...)
		writes := []string{"SET a " + value, "INCR d", "SET b " + value, "INCR d", "SET c " + value}
		if got := n.SubmitPart(n.call(writes...), nil); len(got) != 3 {
			t.Errorf("%d of 5 calls were run, want those up to a megabyte of writes", len(got))
		}
		l := n.carried(b.Node)
		for _, again := range []bool{false, true} {
			if got := n.carry(l, ticket{id: 1, low: 1, again: again}, writes...); got != "OK 2 OK" {
				t.Errorf("by a link: %q", got)
			}
		}
		n.expect("2", "GET d")
	})
}

// At the limit of data the leader refuses what would add some; releases and renewals go
// on, alone, in scripts' place in a pipeline, and in transactions.
func TestOutOfMemory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t, badCommands...)
		n.cfg.Limits = store.Limits{Memory: 4 << 20}
		n.lead()
		n.expect("OK", "SET lock me PX 100000")
		n.expect("OK OK OK -OOM 1 -OOM", "SET a "+strings.Repeat("x", 1<<20), "SET b "+strings.Repeat("x", 1<<20),
			"SET c "+strings.Repeat("x", 1<<20), "SET d 1", "PEXPIRE lock 200000", "SET lock2 me NX PX 100")
		n.expectTxn("-EXECABORT", nil, "DEL lock", "SET lock you")
		n.expectTxn("[me 1]", nil, "GET lock", "DEL lock")
		if !n.OutOfMemory() {
			t.Error("the node does not know")
		}
		n.expect("1 OK", "DEL a", "SET lock you")
	})
}

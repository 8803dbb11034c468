package cluster

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// A reply is not held for the leases of an earlier request in the same submission.
func TestHeldReplyHasNoEarlierLeases(t *testing.T) {
	count := store.Command{Name: "count", Arity: 2, Flags: store.Write | store.Fast, Run: func(c *store.Ctx) store.Reply {
		time.Sleep(10 * ms) // heavy work, but its request keeps its place among the others
		c.SetString(0, c.Args[1], "1", 0)
		return store.Int(1)
	}}
	bubble(t, func(t *testing.T) {
		p := newHeldPair(t, count)
		s := Submission{Client: p.NewClient(netip.MustParseAddr("192.0.2.2"))}
		start := time.Now()
		if got := p.async(&s, "TAKE lock me 1500"); got != "OK" {
			t.Fatalf("told %q", got)
		}
		p.expect("1", "DEL lock")
		time.Sleep(time.Until(start.Add(1800 * ms))) // the lease would be over now, and the client still counts as heavy
		p.log.decides(0, func(e raftfsm.Entry) verdict {
			if !strings.Contains(string(e.Writes), "counter") {
				return commit
			}
			p.log.decides(0, nil)
			return applyLater
		})
		if got := p.async(&s, "COUNT counter"); got != "1" {
			t.Errorf("told %q, want 1", got)
		}
	})
}

package cluster

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/crashdisk"
)

// gates puts the files of each node behind a gate: while the gate is shut, no write to the log ends.
func gates(all map[string]*crashdisk.Gate) func(*Config) {
	return func(cfg *Config) {
		g := &crashdisk.Gate{}
		all[cfg.ID] = g
		cfg.disk.Files = g
	}
}

// logEnd returns the index of the last entry in a node's log.
func (c *three) logEnd(i int) uint64 {
	c.t.Helper()
	return raftOf(c.nodes[i]).Raft.LastIndex()
}

// While a leader writes an entry to its disk, its followers may have it already, but no client is answered and no node applies
// it.
func TestLeaderWritesBesideItsFollowers(t *testing.T) {
	all := map[string]*crashdisk.Gate{}
	inBubble(t, func(c *bubbled) {
		leader := c.leader()
		via, other := (leader+1)%3, (leader+2)%3
		c.expect(leader, "OK", "SET k before")
		c.same()
		g, end := all[c.cfg[leader].ID], c.logEnd(leader)
		seq, _ := c.nodes[via].fsm.Position()
		g.Shut()
		here, carried := c.ask(leader, "SET k after"), (<-chan told)(nil)
		time.Sleep(200 * ms) // many times Raft's commit timeout
		carried = c.ask(via, "GET k")
		time.Sleep(200 * ms)
		for _, i := range []int{via, other} {
			if got := c.logEnd(i); got <= end {
				t.Errorf("the log of n%d ends at entry %d as before: the leader has written first", i+1, got)
			}
			if got, _ := c.nodes[i].fsm.Position(); got != seq {
				t.Errorf("n%d has applied what is not on the leader's disk", i+1)
			}
		}
		if got, _ := c.nodes[leader].fsm.Position(); got != seq {
			t.Error("the leader has applied what is not on its disk")
		}
		mark, err := os.ReadFile(filepath.Join(c.cfg[leader].Data, markFile))
		if err != nil {
			t.Fatal(err)
		}
		if got := binary.LittleEndian.Uint64(mark[8:]); got != end {
			t.Errorf("the mark says %d, on the disk are %d", got, end)
		}
		select {
		case got := <-here:
			t.Errorf("a client was told %q", got.reply)
		case got := <-carried:
			t.Errorf("a reader was told %q", got.reply)
		default:
		}
		g.LetGo(nil)
		if a, b := <-here, <-carried; a.reply != "OK" || b.reply != "after" {
			t.Errorf("then the client was told %q, the reader %q", a.reply, b.reply)
		}
		c.same()
	}, gates(all))
}

// A write takes as long as one write to a disk and one round trip, because leader and followers write at the same time.
func TestLeaderAndFollowersWriteAtOnce(t *testing.T) {
	all := map[string]*crashdisk.Gate{}
	inBubble(t, func(c *bubbled) {
		leader := c.leader()
		c.expect(leader, "OK", "SET k v")
		for _, g := range all {
			g.Slow(10 * ms)
		}
		time.Sleep(time.Second)
		start := time.Now()
		c.expect(leader, "OK", "SET k v")
		if took := time.Since(start); took < 10*ms || took > 15*ms {
			t.Errorf("a write took %v where each disk takes 10 ms", took)
		}
	}, gates(all))
}

// If the leader's disk cannot write an entry that was already sent, the process ends, and
// the client is not told that its write was executed.
func TestLeaderCannotWriteWhatItHasSent(t *testing.T) {
	all := map[string]*crashdisk.Gate{}
	var mu sync.Mutex
	ended := map[string]error{}
	inBubble(t, func(c *bubbled) {
		leader := c.leader()
		c.expect(leader, "OK", "SET k before")
		g := all[c.cfg[leader].ID]
		g.Shut()
		write := c.ask(leader, "SET k after")
		time.Sleep(100 * ms)
		g.LetGo(errors.New("no such block"))
		synctest.Wait()
		mu.Lock()
		if len(ended) != 1 || ended[c.cfg[leader].ID] == nil {
			t.Errorf("processes that ended: %v", ended)
		}
		mu.Unlock()
		// In this test Fatal does not end the process, so the node goes on. It must not say OK.
		if got := <-write; got.reply != "-INDETERMINATE" {
			t.Errorf("a client was told %q", got.reply)
		}
	}, gates(all), func(cfg *Config) {
		id := cfg.ID
		cfg.Fatal = func(err error) {
			mu.Lock()
			defer mu.Unlock()
			ended[id] = err
		}
	})
}

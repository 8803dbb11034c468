package cluster

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/crashdisk"
	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
)

// slowSnapshots is a disk to which no snapshot is written fast.
type slowSnapshots struct {
	crashdisk.SystemFiles
	began *atomic.Int32
}

func (s slowSnapshots) Create(path string) (datadir.File, error) {
	if filepath.Base(path) == stateFile {
		s.began.Add(1)
		time.Sleep(time.Second)
	}
	return s.SystemFiles.Create(path)
}

// A follower that needs a snapshot catches up, however many snapshots its leader takes meanwhile.
func TestFollowerIsNotOutrunBySnapshots(t *testing.T) {
	var began atomic.Int32
	c := startThree(t, func(cfg *Config) {
		cfg.TrailingLogs = 1
		if cfg.ID == "n3" {
			cfg.disk.Files = slowSnapshots{began: &began}
		}
	})
	c.start(0, 1, 2)
	leader := c.leader()
	if leader == 2 {
		if err := c.nodes[2].Transfer("n1"); err != nil {
			t.Fatal(err)
		}
		c.until("n1 leads", func() bool { leader = c.leader(); return leader != 2 })
	}
	c.stop(2)
	n := 0
	shorten := func() {
		for range 5 {
			n++
			c.expect(leader, "OK", fmt.Sprintf("SET last %d", n))
		}
		if err := c.nodes[leader].Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	for range snapshotsKept + 1 {
		shorten()
	}
	began.Store(0)
	c.start(2)
	reached := raftOf(c.nodes[2])
	c.until("the follower has what the leader had", func() bool {
		had := raftOf(c.nodes[leader]).Raft.LastIndex()
		shorten()
		time.Sleep(200 * ms)
		return reached.Raft.AppliedIndex() >= had
	})
	if got := began.Load(); got == 0 || got > 2 {
		t.Errorf("it was sent %d snapshots", got)
	}
}

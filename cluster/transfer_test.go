package cluster

import (
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/crashdisk"
	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
)

// crampedFiles are files on a disk that is full at times.
type crampedFiles struct {
	crashdisk.UnsyncedFiles
	full *atomic.Bool
}

func (d crampedFiles) Create(path string) (datadir.File, error) {
	f, err := d.UnsyncedFiles.Create(path)
	return crampedFile{f, d.full}, err
}

func (d crampedFiles) Open(path string) (datadir.File, error) {
	f, err := d.UnsyncedFiles.Open(path)
	return crampedFile{f, d.full}, err
}

type crampedFile struct {
	datadir.File
	full *atomic.Bool
}

func (f crampedFile) Reserve(from, length int64, fill bool) error {
	if f.full.Load() {
		return os.NewSyscallError("fallocate", syscall.ENOSPC)
	}
	return f.File.Reserve(from, length, fill)
}

// A follower that cannot store the log's last entries does not get the leadership.
func TestRealRaftTransferToAFullDisk(t *testing.T) {
	const leader, heir = 0, 2
	var full atomic.Bool
	inBubble(t, func(c *bubbled) {
		c.transfer(c.nodes[leader], leader)
		full.Store(true)
		value := strings.Repeat("v", 1<<10)
		c.until("the heir's log to be full", func() bool {
			c.expect(leader, "OK", "SET key "+value)
			return c.nodes[heir].cons.Trouble() != ""
		})
		for range 3 {
			asked := time.Now()
			handed := make(chan error, 1)
			go func() { handed <- c.nodes[leader].Transfer(c.cfg[heir].ID) }()
			time.Sleep(c.cfg[leader].ElectionTimeout / 2)
			c.mustTell(c.ask(leader, "SET key again"), "meanwhile", "OK", time.Now(), 0, 10*ms)
			if err := <-handed; err == nil || !strings.Contains(err.Error(), "n3 has not got the end of the log") {
				t.Fatalf("handed over to a node that does not have the log: %v", err)
			}
			if took := time.Since(asked); took > 2*c.cfg[leader].ElectionTimeout {
				t.Errorf("found out after %v", took)
			}
			c.expect(leader, "OK", "SET key again")
		}
		for i := range c.nodes {
			c.alone(i)
		}
		c.until("the leader to step down", func() bool { return !c.nodes[leader].leads() })
		full.Store(false)
		c.wires.heal()
		c.transfer(c.nodes[c.leader()], leader)
		c.expect(leader, "OK again", "SET other value", "GET key")
		c.same()
	}, func(cfg *Config) {
		cfg.disk.SegmentSize = smallSegments().SegmentSize
		if cfg.ID == "n3" {
			cfg.disk.Files = crampedFiles{full: &full}
		}
	})
}

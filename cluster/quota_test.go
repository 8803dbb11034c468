package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// A directory at its quota refuses additions, but no releases or renewals, until deletions make room.
func TestQuotaOfTheDataDirectory(t *testing.T) {
	const quota = 8 << 20
	c := startThree(t, func(cfg *Config) {
		cfg.SnapshotBytes, cfg.DataQuota = 256<<10, quota
		cfg.disk.SegmentSize = smallSegments().SegmentSize
	})
	c.start(0, 1, 2)
	leader := c.leader()
	c.expect(leader, "OK", "SET lock me PX 600000")
	value := strings.Repeat("x", 200_000)
	written := 0
	// Between two measurements of its directory, a leader counts additions but no deletions.
	c.until("the quota", func() bool {
		if c.do(leader, fmt.Sprintf("SET k%d %s", written+1, value)) != "-OOM" {
			written++
			return false
		}
		return c.nodes[leader].Status().DirectorySize > quota
	})
	if written < 5 || written > 60 {
		t.Errorf("refused after %d values of 200 kB, with a quota of 8 MB", written)
	}
	if s := c.nodes[leader].Status(); s.DirectorySize <= quota || s.DirectoryQuota != quota {
		t.Errorf("the status says %d bytes of %d", s.DirectorySize, s.DirectoryQuota)
	}
	reply := c.nodes[leader].Submit([]Call{{Cmd: c.nodes[leader].cfg.Table.Lookup([]byte("set")), Args: [][]byte{[]byte("set"), []byte("a"), []byte("b")}}}, nil)
	if got := reply[0].Str; got != string(store.ErrQuota) {
		t.Errorf("a client is told %q", got)
	}
	c.expectExec(leader, "-EXECABORT", nil, "DEL lock", "SET lock you")
	c.expect(leader, "1 me 1", "PEXPIRE lock 600000", "GET lock", "DEL lock")
	for i := range written {
		c.do(leader, fmt.Sprintf("DEL k%d", i+1))
	}
	c.until("room", func() bool { return c.do(c.leader(), "SET lock you") == "OK" })
	for i := range 3 {
		c.until("a small directory", func() bool {
			c.do(c.leader(), "SET lock you")
			size, err := raftOf(c.nodes[i]).Dir.Size()
			return err == nil && size < quota
		})
	}
}

// If two snapshots alone exceed the quota, renewals do not cause ever more snapshots.
func TestQuotaThatSnapshotsExceed(t *testing.T) {
	const quota = 8 << 20
	inBubble(t, func(c *bubbled) {
		leader := c.leader()
		c.expect(leader, "OK", "SET lock me PX 60000000")
		value, written := strings.Repeat("x", 200_000), 0
		for refused := 0; refused < 100; {
			if c.do(leader, fmt.Sprintf("SET k%d %s", written, value)) == "OK" {
				written, refused = written+1, 0
				continue
			}
			refused++
			time.Sleep(100 * ms)
		}
		snapshots, last := 0, ""
		for range 90 {
			c.expect(leader, "1", "PEXPIRE lock 60000000")
			time.Sleep(4 * time.Second)
			if list, err := raftOf(c.nodes[leader]).Dir.Snapshots.List(); err != nil {
				t.Fatal(err)
			} else if list[0].ID != last {
				last = list[0].ID
				snapshots++
			}
		}
		if snapshots > 10 {
			t.Errorf("%d snapshots in 6 minutes, which free nothing", snapshots)
		}
		for i := range written * 3 / 4 {
			c.expect(leader, "1", fmt.Sprintf("DEL k%d", i))
		}
		began := time.Now()
		c.until("room", func() bool { return c.do(leader, "SET k0 "+value) == "OK" })
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("room after %v", took)
		}
	}, func(cfg *Config) {
		cfg.DataQuota = quota
		cfg.disk.SegmentSize = smallSegments().SegmentSize
	})
}

// TestQuotaBoundsWhatMayAddData: some commands, such as RENAME to a long name, may add data beyond the quota, but only little.
func TestQuotaBoundsWhatMayAddData(t *testing.T) {
	const quota, small = 8 << 20, 100
	inBubble(t, func(c *bubbled) {
		leader := c.leader()
		for i := range small {
			c.expect(leader, "OK", fmt.Sprintf("SET small%d x", i))
		}
		value := strings.Repeat("x", 200_000)
		for i, refused := 0, 0; refused < 100; i++ {
			if c.do(leader, fmt.Sprintf("SET k%d %s", i, value)) != "OK" {
				refused++
				time.Sleep(100 * ms)
			}
		}
		renamed, before := 0, c.nodes[leader].fsm.DataSize()
		for i := range small {
			if c.do(leader, fmt.Sprintf("RENAME small%d %d%s", i, i, value)) == "OK" {
				renamed++
			}
			time.Sleep(100 * ms)
		}
		if grown := c.nodes[leader].fsm.DataSize() - before; renamed == 0 || grown > quota/16 {
			t.Errorf("the data have grown by %d beyond the quota of %d, by %d commands", grown, quota, renamed)
		}
		c.expect(leader, "1 1", "PEXPIRE small99 600000", "DEL small99")
	}, func(cfg *Config) {
		cfg.DataQuota = quota
		cfg.disk.SegmentSize = smallSegments().SegmentSize
	})
}

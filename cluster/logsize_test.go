package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// logFiles returns the bytes of the files of a node's log.
func (c *three) logFiles(i int) (bytes int64) {
	c.t.Helper()
	list, err := os.ReadDir(filepath.Join(c.cfg[i].Data, walDir))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range list {
		if info, err := e.Info(); err == nil { // else it has been deleted meanwhile
			bytes += info.Size()
		}
	}
	return bytes
}

// Each node keeps a log of large entries within a multiple of the data's size, and a node that was away catches up.
func TestLogIsBoundedByBytes(t *testing.T) {
	const limit = 2 << 20
	c := startThree(t, func(cfg *Config) {
		cfg.SnapshotBytes = limit
		cfg.disk.SegmentSize = smallSegments().SegmentSize
	})
	c.start(0, 1, 2)
	away := c.follower()
	c.stop(away)
	leader := c.leader()
	value := strings.Repeat("x", 200_000)
	for i := range 150 { // 30 MB
		c.expect(leader, "OK", fmt.Sprintf("SET k%d %s", i%3, value))
	}
	c.start(away)
	for i := range 3 {
		c.until("a short log", func() bool {
			c.do(leader, "SET k0 "+value)
			return c.logFiles(i) < 6*limit
		})
	}
	c.same()
	c.stop(away)
	c.cfg[away].SnapshotBytes = 1 << 40
	c.start(away)
	for i := range 100 {
		c.expect(leader, "OK", fmt.Sprintf("SET k%d %s", i%3, value))
	}
	c.until("a long log", func() bool { return c.logFiles(away) > 15<<20 })
	c.stop(away)
	c.cfg[away].SnapshotBytes = limit
	c.start(away)
	r := raftOf(c.nodes[away])
	c.until("a snapshot", func() bool { return r.Raft.LastIndex()-r.Dir.Snapshots.Newest().Index < 10 })
}

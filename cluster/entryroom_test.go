package cluster

import (
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/crashdisk"
	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
)

// narrowFiles are the files of a disk that reserves at most room bytes at once, and reports free bytes of free space.
type narrowFiles struct {
	crashdisk.UnsyncedFiles
	room, free *atomic.Int64
}

func (d narrowFiles) Create(path string) (datadir.File, error) {
	f, err := d.UnsyncedFiles.Create(path)
	return narrowFile{f, d.room}, err
}

func (d narrowFiles) Open(path string) (datadir.File, error) {
	f, err := d.UnsyncedFiles.Open(path)
	return narrowFile{f, d.room}, err
}

func (d narrowFiles) Free(string) (int64, error) { return d.free.Load(), nil }

type narrowFile struct {
	datadir.File
	room *atomic.Int64
}

func (f narrowFile) Reserve(from, length int64, fill bool) error {
	if length > f.room.Load() {
		return syscall.ENOSPC
	}
	return f.File.Reserve(from, length, fill)
}

const ample = 1 << 40

// narrowNodes returns three narrow disks by the ids of their nodes, and a function that gives the node of a configuration its disk.
func narrowNodes() (disks map[string]narrowFiles, change func(*Config)) {
	disks = map[string]narrowFiles{}
	for _, id := range []string{"n1", "n2", "n3"} {
		d := narrowFiles{room: new(atomic.Int64), free: new(atomic.Int64)}
		d.room.Store(ample)
		d.free.Store(ample)
		disks[id] = d
	}
	return disks, func(cfg *Config) { cfg.disk.Files = disks[cfg.ID] }
}

func (d narrowFiles) narrow(room, free int64) {
	d.room.Store(room)
	d.free.Store(free)
}

// A command for whose entry no disk has room, or only the leader's, is refused, and the leader leads on.
func TestEntryThatFitsNoDisk(t *testing.T) {
	for name, led := range map[string]int64{"no disk": 3 << 19, "the leader's disk": ample} {
		t.Run(name, func(t *testing.T) {
			disks, change := narrowNodes()
			inBubble(t, func(c *bubbled) {
				leader := c.leader()
				for i, cfg := range c.cfg {
					if disks[cfg.ID].narrow(3<<19, 3<<19); i == leader {
						disks[cfg.ID].narrow(led, led)
					}
				}
				time.Sleep(2 * time.Second) // the nodes tell each other how much room they have
				term := raftOf(c.nodes[leader]).Raft.CurrentTerm()
				long := "SET big " + strings.Repeat("x", 2<<20)
				for i := range c.nodes {
					c.expect(i, "-OOM", long)
					c.expect(i, "OK OK 1 1 -OOM OK", "SET lock owner NX PX 9000", "SET lock2 owner NX PX 9000", "PEXPIRE lock 9000", "DEL lock", long, "SET k v")
					c.expect(i, "1", "DEL lock2")
				}
				if now := raftOf(c.nodes[leader]).Raft.CurrentTerm(); now != term || c.leader() != leader {
					t.Errorf("the term changed from %d to %d", term, now)
				}
				for i := range c.nodes {
					if !c.nodes[i].Ready() {
						t.Errorf("%s is not ready: %s", c.cfg[i].ID, c.nodes[i].Trouble())
					}
				}
				for _, d := range disks {
					d.narrow(ample, ample)
				}
				time.Sleep(2 * time.Second)
				c.expect(leader, "OK", long)
				c.same()
			}, change)
		})
	}
}

// TestEntryThatFitsNotTheLeader: the leader hands over before it proposes an entry for which only its own disk has no room.
func TestEntryThatFitsNotTheLeader(t *testing.T) {
	disks, change := narrowNodes()
	inBubble(t, func(c *bubbled) {
		leader := c.leader()
		disks[c.cfg[leader].ID].narrow(3<<19, 3<<19)
		time.Sleep(2 * time.Second)
		term := raftOf(c.nodes[leader]).Raft.CurrentTerm()
		c.expect(leader, "OK", "SET big "+strings.Repeat("x", 2<<20))
		if now := raftOf(c.nodes[leader]).Raft.CurrentTerm(); now != term+1 || c.leader() == leader {
			t.Errorf("the term changed from %d to %d", term, now)
		}
	}, change)
}

// If only the leader's disk has room for an entry, a follower takes over, and no client is told that the write was executed.
func TestEntryThatOnlyItsLeaderHas(t *testing.T) {
	disks, change := narrowNodes()
	inBubble(t, func(c *bubbled) {
		leader := c.leader()
		c.expect(leader, "OK", "SET lock owner PX 600000")
		for i, cfg := range c.cfg {
			if i != leader {
				disks[cfg.ID].narrow(3<<19, ample)
			}
		}
		got := c.ask(leader, "SET big "+strings.Repeat("x", 2<<20))
		c.until("another leader", func() bool { now := c.leader(); return now != leader && c.do(now, "SET k v") == "OK" })
		for i := range c.nodes {
			// The leader may change once more: then a command is not executed, and sent again.
			for _, step := range [][2]string{{"SET k v", "OK"}, {"GET lock", "owner"}, {"GET big", "nil"}, {"SET other owner NX PX 600000", "OK"}, {"DEL other", "1"}} {
				reply := ""
				c.until(c.cfg[i].ID+" executes "+step[0], func() bool { reply = c.do(i, step[0]); return reply != "-CLUSTERDOWN" })
				if reply != step[1] {
					t.Errorf("%s: %s: %q, want %q", c.cfg[i].ID, step[0], reply, step[1])
				}
			}
			c.until(c.cfg[i].ID+" is ready", c.nodes[i].Ready)
		}
		if reply := (<-got).reply; !slices.Contains([]string{"-INDETERMINATE", "-OOM", "-CLUSTERDOWN"}, reply) {
			t.Errorf("told %q", reply)
		}
		c.same()
	}, change)
}

// A key whose deletion fits on no disk expires all the same, and is deleted once there is room.
func TestExpiredKeyThatFitsNoDisk(t *testing.T) {
	disks, change := narrowNodes()
	inBubble(t, func(c *bubbled) {
		leader := c.leader()
		name := strings.Repeat("x", 2<<20)
		c.expect(leader, "OK OK", "SET "+name+" v PX 5000", "SET short v PX 5000")
		for _, d := range disks {
			d.narrow(3<<19, 3<<19)
		}
		time.Sleep(2 * time.Second) // the nodes tell each other how much room they have
		term := raftOf(c.nodes[leader]).Raft.CurrentTerm()
		time.Sleep(8 * time.Second)
		for i := range c.nodes {
			c.expect(i, "OK nil 1", "SET lock owner NX PX 9000", "GET "+name, "DEL lock")
			if !c.nodes[i].Ready() {
				t.Errorf("%s is not ready: %s", c.cfg[i].ID, c.nodes[i].Trouble())
			}
		}
		if now := raftOf(c.nodes[leader]).Raft.CurrentTerm(); now != term || c.leader() != leader {
			t.Errorf("the term changed from %d to %d", term, now)
		}
		if got := c.nodes[leader].Status().Expired; got != 1 {
			t.Errorf("%d keys were deleted, want the short one", got)
		}
		for _, d := range disks {
			d.narrow(ample, ample)
		}
		time.Sleep(2 * time.Second)
		if got := c.nodes[leader].Status().Expired; got != 2 {
			t.Errorf("%d keys were deleted, want both", got)
		}
		c.same()
	}, change)
}

// An entry leaves out a long reply that no disk has room to keep, and the client still gets it.
func TestKeptReplyThatFitsNoDisk(t *testing.T) {
	disks, change := narrowNodes()
	inBubble(t, func(c *bubbled) {
		leader := c.leader()
		value := strings.Repeat("x", maxRecorded-100)
		for i := range c.nodes {
			c.expect(leader, "OK", "SET big"+c.cfg[i].ID+" "+value)
		}
		for _, d := range disks {
			d.narrow(300<<10, 300<<10)
		}
		time.Sleep(2 * time.Second) // the nodes tell each other how much room they have
		term := raftOf(c.nodes[leader]).Raft.CurrentTerm()
		for i := range c.nodes {
			c.expect(i, value, "SET big"+c.cfg[i].ID+" v GET")
			c.expect(i, "OK 1", "SET lock owner NX PX 9000", "DEL lock")
		}
		if now := raftOf(c.nodes[leader]).Raft.CurrentTerm(); now != term || c.leader() != leader {
			t.Errorf("the term changed from %d to %d", term, now)
		}
	}, change)
}

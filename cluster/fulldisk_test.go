package cluster

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// A single node whose disk has room only for short entries is deposed once, not at each long entry.
func TestLongEntriesOnAFullDisk(t *testing.T) {
	full, l := new(atomic.Bool), &linesOf{count: map[string]int{}}
	cfg := dataConfig(t, t.TempDir())
	cfg.disk.Files = scarceDisk{full: full}
	cfg.FailoverWait, cfg.DownAfter, cfg.Logger = 200*ms, 200*ms, slog.New(l)
	n := openNode(t, cfg)
	defer closeNode(t, n)
	full.Store(true)
	long := "SET k " + strings.Repeat("x", 120_000)
	for range 10 { // the first ones fit in the room that the log has reserved
		if lines(t, n, long); n.Trouble() != "" {
			break
		}
	}
	if n.Trouble() == "" {
		t.Fatal("the disk takes everything")
	}
	for deadline := time.Now().Add(20 * time.Second); raftOf(n).Raft.State() != raft.Leader; time.Sleep(ms) {
		if time.Now().After(deadline) {
			t.Fatal("the first entry of a term fits, and Raft elects nobody")
		}
	}
	term := raftOf(n).Raft.CurrentTerm()
	for range 5 {
		for _, command := range []string{long, "SET k v", "GET k"} {
			if got := diskReply(t, n, command); got != string(ErrDiskFull) {
				t.Errorf("%.10s: told %q", command, got)
			}
		}
	}
	if now := raftOf(n).Raft.CurrentTerm(); now != term || n.Ready() {
		t.Errorf("it was elected %d times; ready: %t", now-term, n.Ready())
	}
	full.Store(false)
	for deadline := time.Now().Add(20 * time.Second); lines(t, n, long) != "OK"; {
		if time.Now().After(deadline) {
			t.Fatal("there is room, and it does not go on")
		}
	}
	for text, most := range map[string]int{"The disk is full": 1, "The log can be written again": 1} {
		if got := l.of(text); got != most {
			t.Errorf("%q is said %d times", text, got)
		}
	}
}

// diskReply returns the whole reply to a command.
func diskReply(t *testing.T, n *Node, command string) string {
	tn := &testNode{Node: n, t: t, table: n.cfg.Table}
	return n.Submit(tn.call(command), nil)[0].Str
}

// The client whose entry finds the disk full is told so: its entry is certainly not executed.
func TestFullDiskIsToldTheClientWhoseEntryDoesNotFit(t *testing.T) {
	full := new(atomic.Bool)
	cfg := dataConfig(t, t.TempDir())
	cfg.disk.Files = scarceDisk{full: full}
	cfg.FailoverWait = 200 * ms
	n := openNode(t, cfg)
	defer closeNode(t, n)
	full.Store(true)
	for range 10 {
		switch got := diskReply(t, n, "SET k "+strings.Repeat("x", 120_000)); got {
		case "OK":
			continue
		case string(ErrDiskFull):
		default:
			t.Errorf("told %q", got)
		}
		return
	}
	t.Fatal("the disk takes everything")
}

// TestFullLeaderHandsOver: a node had no room for an entry, and is elected while its disk still lacks that room. It hands its
// leadership to another voter.
func TestFullLeaderHandsOver(t *testing.T) {
	const cramped = 2
	var full atomic.Bool
	inBubble(t, func(c *bubbled) {
		c.transfer(c.nodes[c.leader()], cramped)
		c.expect(cramped, "OK", "SET key value")
		c.same()
		full.Store(true)
		// The entry goes directly to Raft, because another leader would write a client's entry.
		if err := raftOf(c.nodes[cramped]).Raft.Apply(make([]byte, 1<<20), 0).Error(); err == nil || c.nodes[cramped].Trouble() == "" {
			t.Fatalf("a full disk took an entry: %v", err)
		}
		c.until("its election", func() bool {
			if err := c.nodes[cramped].cons.Campaign(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * bubbleDelay)
			return raftOf(c.nodes[cramped]).Raft.State() == raft.Leader
		})
		if c.nodes[cramped].leads() {
			t.Error("it serves")
		}
		c.until("another leader", func() bool { return c.nodes[0].leads() || c.nodes[1].leads() })
		c.expect(cramped, "OK value2", "SET key value2", "GET key")
		full.Store(false)
		c.until("room", func() bool { return c.nodes[cramped].Ready() })
	}, func(cfg *Config) {
		if cfg.ID == "n3" {
			cfg.disk.Files = crampedFiles{full: &full}
		}
	})
}

package cluster

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"
)

// A snapshot that arrives late, when its leader has given it up, does not cost the receiver the entries acknowledged since.
func TestSnapshotThatComesLate(t *testing.T) {
	c, _ := wired(t, discoverable)
	c.start(0, 1, 2)
	c.allMet()
	leader := c.leader()
	late, away := (leader+1)%3, (leader+2)%3
	c.expect(leader, "OK", "SET first x")
	c.same()
	by := raftOf(c.nodes[leader])
	if err := c.nodes[leader].Snapshot(); err != nil {
		t.Fatal(err)
	}
	meta, data, err := by.Dir.Snapshots.Open(by.Dir.Snapshots.Newest().ID)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	c.stop(away)
	c.expect(leader, "OK", "SET lock owner") // on the disks of two nodes

	req := &raft.InstallSnapshotRequest{
		RPCHeader:       by.Header,
		SnapshotVersion: meta.Version, Term: by.Raft.CurrentTerm(), LastLogIndex: meta.Index, LastLogTerm: meta.Term, Size: meta.Size,
		Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex,
	}
	resp := &raft.InstallSnapshotResponse{}
	err = by.Transport.InstallSnapshot(raft.ServerID(c.cfg[late].ID), raft.ServerAddress(c.cfg[late].PeerListen), req, resp, data)
	t.Logf("the late snapshot of entry %d: taken in: %v, %v", meta.Index, resp.Success, err)

	log := raftOf(c.nodes[late]).Dir.Log
	first, err1 := log.FirstIndex()
	last, err2 := log.LastIndex()
	if errors.Join(err1, err2) != nil || last <= meta.Index {
		t.Errorf("of what it has acknowledged its log has entries %d to %d", first, last)
	}
	c.stop(leader)
	c.stop(late)
	c.start(late, away)
	c.until("a leader", func() bool { return c.nodes[away].Reaches() && c.nodes[late].Reaches() })
	c.expect(away, "owner", "GET lock")
}

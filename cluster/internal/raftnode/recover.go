package raftnode

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
)

// Recover writes what a survey has found to a new directory as a snapshot, for a new cluster with this node as its only member. The index
// and the lease clock go on from where they were. The term is a later one, and the tokens begin above the parameter above.
func Recover(cfg *Config, path string, s *Survey, above int64) error {
	if err := s.State.RaiseTokens(above); err != nil {
		return err
	}
	return begin(cfg, path, max(s.Reached, 1), s.Term+1, s.State.Snapshot().Encode)
}

// CheckRecoverable fails if a directory cannot become a cluster of one.
func (s *Survey) CheckRecoverable() error {
	_, member := s.Self()
	switch {
	case s.Joining:
		return fmt.Errorf("node %q has not become a member of a cluster yet: recover the directory of a member", s.ID)
	case s.Reached == 0 || len(s.Members) == 0:
		return fmt.Errorf("the log and the snapshots of node %q are empty: recover the directory of another member, or restore a backup", s.ID)
	case !member:
		return fmt.Errorf("node %q was removed from its cluster, so the others may have gone on without it for long: recover the directory of a member", s.ID)
	}
	return nil
}

// begin fills a new directory with a snapshot, which the function write writes. The cluster has a new name, and this node as its only
// member.
func begin(cfg *Config, path string, index, term uint64, write func(io.Writer) error) error {
	dir, err := datadir.Open(path, datadir.Options{Disk: cfg.Disk, ID: cfg.ID, LogStore: cfg.LogStore, Lines: raftLogger(cfg.Logger), Unfinished: true})
	if err != nil {
		return err
	}
	defer dir.Close()
	conf := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(cfg.ID), Address: raft.ServerAddress(cfg.Addr)}}}
	sink, err := dir.Snapshots.Create(raft.SnapshotVersionMax, index, term, conf, index, nil)
	if err != nil {
		return err
	}
	if err := write(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	if err := dir.Begin(index, term); err != nil {
		return err
	}
	return dir.Finish(clusterName(nil), false)
}

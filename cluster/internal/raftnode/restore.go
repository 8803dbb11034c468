package raftnode

import (
	"errors"
	"io"

	"github.com/hashicorp/raft"

	"lockstep/cluster/internal/datadir"
	"lockstep/raftfsm"
)

// restoredTerm is the term of a cluster that begins with a backup.
const restoredTerm = 1

// Restore writes a backup to a new directory as the snapshot at index, for a cluster with this node as its only member. The tokens of that
// cluster begin above the parameter above.
func Restore(cfg *Config, path string, backup io.Reader, index uint64, above int64) error {
	dir, err := datadir.Open(path, datadir.Options{Disk: cfg.Disk, ID: cfg.ID, LogStore: cfg.LogStore, Lines: raftLogger(cfg.Logger), Unfinished: true})
	if err != nil {
		return err
	}
	defer dir.Close()
	conf := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(cfg.ID), Address: raft.ServerAddress(cfg.Addr)}}}
	sink, err := dir.Snapshots.Create(raft.SnapshotVersionMax, index, restoredTerm, conf, index, nil)
	if err != nil {
		return err
	}
	if err := raftfsm.RestoreBackup(backup, sink, above); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	if err := dir.Begin(index, restoredTerm); err != nil {
		return err
	}
	return dir.Finish(clusterName(nil), false)
}

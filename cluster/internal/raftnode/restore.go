package raftnode

import (
	"io"

	"github.com/lockstep-io/lockstep/raftfsm"
)

// restoredTerm is the term of a cluster that begins with a backup.
const restoredTerm = 1

// Restore writes a backup to a new directory as the snapshot at index, for a cluster with this node as its only member. The tokens of that
// cluster begin above the parameter above.
func Restore(cfg *Config, path string, backup io.Reader, index uint64, above int64) error {
	return begin(cfg, path, index, restoredTerm, func(w io.Writer) error { return raftfsm.RestoreBackup(backup, w, above) })
}

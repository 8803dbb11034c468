package datadir

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockstep/raftfsm"
)

// openSnapshots verifies every snapshot in the directory and lists those that are sound. It deletes unfinished snapshots. Damaged
// snapshots, and those that the disk cannot read, are not listed. openSnapshots fails if a newer program has written a snapshot, or if
// the system does not let this process read one.
func openSnapshots(base string, fs Files, log hclog.Logger) (*Snapshots, error) {
	s := &Snapshots{dir: filepath.Join(base, snapshotDir), disk: fs, log: log, read: map[uint64]time.Duration{}}
	if err := fs.Mkdir(s.dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasSuffix(name, unfinished) {
			if err := fs.Remove(filepath.Join(s.dir, name)); err != nil {
				return nil, err
			}
			continue
		}
		if _, _, number, ok := parseSnapshotID(name); !ok {
			continue // not a snapshot
		} else {
			s.number = max(s.number, number+1)
		}
		meta, err := s.verify(name)
		if err := s.found(name, meta, err); err != nil {
			return nil, err
		}
	}
	s.sort()
	return s, nil
}

// found takes a snapshot into the list if err, the result of verify, is nil. Otherwise the snapshot counts as spoiled, and is deleted
// when the next snapshot is complete. found fails if the snapshot may be sound all the same: then it must not be deleted, and the node
// must not start.
func (s *Snapshots) found(name string, meta snapshotMeta, err error) error {
	switch {
	case err == nil:
		s.list = append(s.list, meta)
		return nil
	case isBroken(err):
		s.log.Error("a snapshot cannot be read from disk and is not used; look after the disk", "snapshot", name, "error", err)
		s.unread = cmp.Or(s.unread, err)
	case errors.Is(err, raftfsm.ErrNewer), isBarred(err), isScarce(err), isRefused(err):
		return fmt.Errorf("snapshot %s: %w", name, err)
	default:
		s.log.Error("a snapshot is damaged and is not used; look after the disk", "snapshot", name, "error", err)
	}
	s.spoiled = append(s.spoiled, name)
	return nil
}

// lacking returns the error for a log whose snapshot is not there. If the disk could not read a snapshot, the error says which file could
// not be read, and why, because that snapshot may be the one that is missing.
func (s *Snapshots) lacking(err error) error {
	if s.unread == nil {
		return err
	}
	return fmt.Errorf("%w: %w", s.unread, err)
}

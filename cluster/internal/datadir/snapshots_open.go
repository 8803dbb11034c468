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

// openSnapshots verifies every snapshot in the directory. It deletes unfinished ones, and leaves damaged ones, and those that the
// disk cannot read, out of the list. It fails on a snapshot of a newer program, and on one that this process may not open.
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

// found takes a snapshot into the list, unless err, the result of verify, says that it is not to be used. It fails if the node must
// not start: what is not known to be damaged must not be deleted as damaged when the next snapshot is complete.
func (s *Snapshots) found(name string, meta snapshotMeta, err error) error {
	switch {
	case err == nil:
		s.list = append(s.list, meta)
		return nil
	case errors.Is(err, raftfsm.ErrNewer), isBarred(err), isScarce(err):
		return fmt.Errorf("snapshot %s: %w", name, err)
	case isBroken(err):
		s.log.Error("a snapshot cannot be read from disk and is not used; look after the disk", "snapshot", name, "error", err)
		s.unread = cmp.Or(s.unread, err)
	default:
		s.log.Error("a snapshot is damaged and is not used; look after the disk", "snapshot", name, "error", err)
	}
	s.spoiled = append(s.spoiled, name)
	return nil
}

// lacking returns the error for a log whose snapshot is not there. If snapshots could not be read, the error says which file
// the disk could not read, and why: that one may be the snapshot.
func (s *Snapshots) lacking(err error) error {
	if s.unread == nil {
		return err
	}
	return fmt.Errorf("%w: %w", s.unread, err)
}

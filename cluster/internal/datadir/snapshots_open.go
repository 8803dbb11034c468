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

	"github.com/lockstep-io/lockstep/raftfsm"
)

// openSnapshots lists the sound snapshots, and deletes unfinished ones. It fails if one is of a newer program, or may not be read.
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

// found lists a snapshot if err, from verify, is nil, or else notes it as spoiled. It fails if the snapshot may be sound.
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

// lacking returns the error for a log without its snapshot. It adds why the disk could not read one, perhaps the missing one.
func (s *Snapshots) lacking(err error) error {
	if s.unread == nil {
		return err
	}
	return fmt.Errorf("%w: %w", s.unread, err)
}

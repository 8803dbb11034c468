package datadir

import (
	"errors"
	"fmt"
	"path/filepath"
)

const (
	// roomKept is how much of the disk is left to short entries: a longer one is not written if it would leave less, and neither
	// is a snapshot. It covers the steps in which a segment reserves its room, and the beginning of the next segment.
	roomKept = 1 << 20
	// plenty is more room than any entry needs.
	plenty = 1 << 40
)

// Room returns how long an entry may be so that the disk has room for it, and roomKept more. What Room returns may be too much: of some
// limits (quotas of users) only an append finds out. An append that did not fit bounds Room until the disk has room for it.
func (g *Log) Room() int64 {
	free, err := g.snaps.disk.Free(g.snaps.dir)
	if err != nil {
		free = plenty // an append will find out
	}
	room := free - roomKept
	if least := g.trouble.least.Load(); least > 0 {
		room = min(room, least-1)
	}
	return max(room, 0)
}

// leavesRoom returns ErrNoRoom if a snapshot that goes on for syncBytes would leave the log less than roomKept.
func (s *Snapshots) leavesRoom() error {
	if free, err := s.disk.Free(s.dir); err == nil && free < roomKept+syncBytes {
		return fmt.Errorf("%w and a snapshot: %d bytes are left", ErrNoRoom, free)
	}
	return nil
}

// probeFile is the file with which hasRoom finds out whether there is room. If the process ends before it has deleted the file,
// the next start takes the file for an unfinished snapshot, and deletes it.
const probeFile = "probe" + unfinished

// hasRoom reports whether the disk has room for so many bytes: it reserves them in a file and deletes the file. An error of any kind
// means no: the trouble, which the operator knows, goes on.
func (s *Snapshots) hasRoom(bytes int64) bool {
	path := filepath.Join(s.dir, probeFile)
	f, err := s.disk.Create(path)
	if err == nil {
		err = errors.Join(f.Reserve(0, bytes, false), f.Close())
	}
	return errors.Join(err, s.disk.Remove(path)) == nil
}

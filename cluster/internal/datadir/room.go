package datadir

import (
	"errors"
	"fmt"
	"path/filepath"
)

const (
	// roomKept is how many bytes of the disk longer entries and snapshots leave for short entries and for the next segment.
	roomKept = 1 << 20
	// plenty is more room than any entry needs.
	plenty = 1 << 40
)

// Room returns how long an entry may be if roomKept stays free. Room knows no quotas, but stays below the smallest append that failed.
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

// leavesRoom returns ErrNoRoom if another syncBytes of a snapshot would leave the log less room than roomKept.
func (s *Snapshots) leavesRoom() error {
	if free, err := s.disk.Free(s.dir); err == nil && free < roomKept+syncBytes {
		return fmt.Errorf("%w and a snapshot: %d bytes are left", ErrNoRoom, free)
	}
	return nil
}

// probeFile is the file with which hasRoom looks for room. After a crash, the next start deletes it.
const probeFile = "probe" + unfinished

// hasRoom reports whether the disk has room for so many bytes; false after any error.
func (s *Snapshots) hasRoom(bytes int64) bool {
	path := filepath.Join(s.dir, probeFile)
	f, err := s.disk.Create(path)
	if err == nil {
		err = errors.Join(f.Reserve(0, bytes, false), f.Close())
	}
	return errors.Join(err, s.disk.Remove(path)) == nil
}

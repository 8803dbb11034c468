package datadir

import (
	"errors"
	"fmt"
	"path/filepath"
)

const (
	// roomKept is how many bytes of the disk are left to short entries. A longer entry is not written if it would leave less, and neither
	// is a snapshot. The steps in which a segment reserves its room, and the beginning of the next segment, fit in roomKept.
	roomKept = 1 << 20
	// plenty is more room than any entry needs.
	plenty = 1 << 40
)

// Room returns how long an entry may be if the disk is to have roomKept left after it. The result may be too high: some limits,
// such as quotas of users, are known only when an append fails. After such a failure, Room returns less than the length of the
// entry that did not fit, until the disk has room for that entry.
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

// probeFile is the file with which hasRoom finds out whether there is room. If the process ends before it has deleted the file,
// the next start takes the file for an unfinished snapshot, and deletes it.
const probeFile = "probe" + unfinished

// hasRoom reports whether the disk has room for so many bytes: it reserves them in a file and deletes the file. It returns false on any
// error. Then the trouble goes on, and the operator knows of that trouble already.
func (s *Snapshots) hasRoom(bytes int64) bool {
	path := filepath.Join(s.dir, probeFile)
	f, err := s.disk.Create(path)
	if err == nil {
		err = errors.Join(f.Reserve(0, bytes, false), f.Close())
	}
	return errors.Join(err, s.disk.Remove(path)) == nil
}

package cluster

import (
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/store"
)

// A leader refuses long requests for which a majority has no disk room. Otherwise each node in turn would lead, store nothing, and be
// deposed.

// roomlessEvery is the least time between two log lines of tooLong.
const roomlessEvery = time.Minute

// roomForEntry returns how many bytes of writes an entry may have: as many as a majority has room for, within fixed bounds.
func (n *Node) roomForEntry() int {
	return int(min(max(n.peers.Room(), raftnode.ShortEntry), maxEntryBytes))
}

// expiryRoom returns how many bytes of an entry may delete expired keys, and the longest name of such a key. Keys with longer names
// stay.
func (s *sequencer) expiryRoom() (bytes, longest int) {
	if s.room == maxEntryBytes {
		return maxBatchBytes, maxEntryBytes
	}
	bytes = min(maxBatchBytes, s.room/2)
	return bytes, bytes / 4 // a deletion and its events repeat the name
}

// expiryPause is the least pause before an idle leader looks for expired keys. Where room is short, each look may find the same keys.
func (s *sequencer) expiryPause() time.Duration {
	if s.room < maxEntryBytes {
		return 20 * time.Millisecond
	}
	return time.Millisecond
}

// tooLong returns the error for a request that is too long even for an entry of its own.
func (s *sequencer) tooLong(txn *store.Txn) store.Error {
	if txn.Writes().Size() > maxEntryBytes {
		return txn.ErrTooBig()
	}
	if now := s.node.cfg.Time.Monotonic(); s.roomless == 0 || now-s.roomless >= roomlessEvery {
		s.roomless = max(now, 1)
		s.log.Warn("A command is refused, because the disks of a majority of the nodes have no room for what it writes: make room", "bytes", txn.Writes().Size(), "room", s.room)
	}
	return ErrNoRoom
}

// diskFull returns the function for the field store.Env.DiskFull, or nil if there is no quota.
func (n *Node) diskFull() func(size int64) (data, most int64, full bool) {
	if n.cfg.DataQuota == 0 {
		return nil
	}
	return n.cons.Full
}

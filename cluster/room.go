package cluster

import (
	"time"

	"lockstep/cluster/internal/raftnode"
	"lockstep/store"
)

// A leader proposes no entry for which the disks of a majority have no room. Otherwise each node in turn would lead, try to
// store the entry, and be deposed, and the next entry of that size would do the same again. Instead, the client gets an error,
// and the leader goes on with the requests for which there is room.

// roomlessEvery is the least time between two log lines of tooLong.
const roomlessEvery = time.Minute

// roomForEntry returns how many bytes of writes an entry may have so that a majority has room for it. The result is at least
// raftnode.ShortEntry and at most maxEntryBytes.
func (n *Node) roomForEntry() int {
	return int(min(max(n.peers.Room(), raftnode.ShortEntry), maxEntryBytes))
}

// expiryRoom returns how many bytes of an entry may delete expired keys, and how long the names of these keys may be. No request causes these
// deletions, so the leader cannot refuse one instead. Where room is short, keys with long names stay, and clients do not see them.
func (s *sequencer) expiryRoom() (bytes, longest int) {
	if s.room == maxEntryBytes {
		return maxBatchBytes, maxEntryBytes
	}
	bytes = min(maxBatchBytes, s.room/2)
	return bytes, bytes / 4 // a deletion and its events repeat the name
}

// expiryPause is how long an idle leader waits at least before it looks for expired keys again. The pause is longer where room is short:
// expired keys with long names stay there, and the leader would find the same keys each time.
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

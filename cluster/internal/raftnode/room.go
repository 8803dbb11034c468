package raftnode

import "sync/atomic"

// room is how much may still be proposed before the disk of this node is full. It is measured at the start and once in every troubleTick.
// The node adds up the bytes of all entries that it proposes. A measurement finds out at which value of that sum the disk will be full.
// Entries whose outcome was not known at the measurement may not be on the disk yet, so they count as bytes that are still to be written.
type room struct {
	begun atomic.Int64 // bytes that this node has proposed
	done  atomic.Int64 // bytes of those proposed entries whose outcome is known
	until atomic.Int64 // the value of begun at which the disk will be full
}

// ShortEntry is the number of bytes up to which an entry is proposed whatever is known of the room on the disks. So locks are granted as
// long as there is room for them.
const ShortEntry = 64 << 10

func (r *Node) measureRoom() {
	done := r.room.done.Load()
	r.room.until.Store(done + r.dir.Log.Room())
}

// proposing notes that an entry of so many bytes is proposed. The caller calls the result when the outcome is known.
func (r *Node) proposing(bytes int64) (ended func()) {
	r.quota.added.Add(bytes)
	r.room.begun.Add(bytes)
	return func() { r.room.done.Add(bytes) }
}

// yields hands over leadership if an entry has more than 2*ShortEntry bytes and the disk of this node has no room for it. It
// reports whether it did. If this node proposed the entry, Raft would depose this node. Package cluster proposes an entry only if
// a majority has room for it.
func (r *Node) yields(bytes int) bool {
	return bytes > 2*ShortEntry && r.room.begun.Load()+int64(bytes) > r.room.until.Load() && r.handOver()
}

// Proposed returns how many bytes this node has proposed, and of how many of them the outcome is known.
func (r *Node) Proposed() (begun, done int64) { return r.room.begun.Load(), r.room.done.Load() }

// RoomUntil returns at how many proposed bytes the disk of this node will be full.
func (r *Node) RoomUntil() int64 { return r.room.until.Load() }

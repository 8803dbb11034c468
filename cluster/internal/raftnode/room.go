package raftnode

import "sync/atomic"

// room is how much may be proposed before this node's disk is full. Proposals of unknown outcome count as bytes still to be
// written.
type room struct {
	begun atomic.Int64 // bytes that this node has proposed
	done  atomic.Int64 // bytes of those proposed entries whose outcome is known
	until atomic.Int64 // the value of begun at which the disk will be full
}

// ShortEntry is the number of bytes up to which an entry is proposed whatever the known room, because locks must still be
// granted.
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

// yields hands over leadership if this node's disk has no room for a long entry: Raft would depose this node. It reports whether
// it did.
func (r *Node) yields(bytes int) bool {
	return bytes > 2*ShortEntry && r.room.begun.Load()+int64(bytes) > r.room.until.Load() && r.handOver()
}

// Proposed returns how many bytes this node has proposed, and of how many of them the outcome is known.
func (r *Node) Proposed() (begun, done int64) { return r.room.begun.Load(), r.room.done.Load() }

// RoomUntil returns at how many proposed bytes the disk of this node will be full.
func (r *Node) RoomUntil() int64 { return r.room.until.Load() }

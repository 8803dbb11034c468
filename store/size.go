package store

import "unsafe"

// The size of the data, and what is refused when it is too large.
//
// The size is an estimate from lengths alone, so it is the same on every node, after a restart, and before the commit. Only the leader
// checks the limit, at evaluation.

// Names of the cluster parameters that limit data.
const (
	ParamMaxMemory = "maxmemory"
	ParamMaxEntry  = "max-entry-size"
)

// Limits are the limits in a node's configuration. ParamMaxMemory and ParamMaxEntry, if set, replace Memory and Entry.
type Limits struct {
	Memory int64 // bytes of data above which nothing may be added; 0 means no limit
	Reply  int64 // bytes of one reply; 0 means DefaultMaxReply
	Entry  int64 // bytes that one command, script or transaction may write; 0 means DefaultMaxEntry
}

const (
	// DefaultMaxEntry is the default limit, in bytes, for the writes of one command, script or transaction: other commands wait until they
	// are applied.
	DefaultMaxEntry = 8 << 20
	// DefaultMaxReply is the default limit, in bytes, for one reply. There is a limit because the
	// server builds, encodes and sends a reply as a whole.
	DefaultMaxReply = 256 << 20
	// MaxEntry is the largest max-entry-size, in bytes. A log entry holds more than one command's writes, but at most 64 MiB.
	MaxEntry = 32 << 20
	// entryRoom is how many bytes a command may write in addition to max-entry-size, because a value alone
	// may have max-entry-size bytes.
	entryRoom = MinEntry
	// MinEntry is the smallest value, in bytes, of max-entry-size, because a write needs room in addition
	// to its data.
	MinEntry = 64 << 10
)

// A command, script or transaction may copy copiesPerEntry times the bytes that it may write.
const copiesPerEntry = 256

// emptySize is how many bytes count against the limit in addition to the data. So the smallest limit
// refuses even the first key, as in Redis.
const emptySize = 1 << 20

// entrySize is the memory of a key without name and value, with its pointers in index and deadlines.
const entrySize = int64(unsafe.Sizeof(Entry{})) + int64(unsafe.Sizeof(slot{}))*3/2 + int64(unsafe.Sizeof(&Entry{}))*3/2

// The memory of an element without its bytes. The factors 3/2, and 2 for lists, are for unused capacity (room.go).
const (
	fieldSize      = int64(unsafe.Sizeof(Field{}))
	treeFieldSize  = fieldSize * 3 / 2
	listElemSize   = int64(unsafe.Sizeof(listElem{})) * 2
	intSize        = int64(unsafe.Sizeof(int64(0)))
	treeMemberSize = int64(unsafe.Sizeof(member{})) * 3 / 2
	scoredSize     = int64(unsafe.Sizeof(Scored{}))
	treeScoredSize = scoredSize*3/2 + int64(unsafe.Sizeof(scoredName{}))*3/2
	treeSize       = 112 // memory of a tree without its elements
	collectionSize = int64(unsafe.Sizeof(elements{})) + 64
)

// size returns the estimated memory of the key. It takes constant time, except for a hash in its
// small form.
func (e *Entry) size() int64 {
	n := entrySize + allocated(len(e.key))
	if e.elems == nil || e.elems.collection == nil {
		return n + allocated(len(e.str))
	}
	return n + collectionSize + e.elems.size()
}

// DataSize returns the size of the keys of all databases, the pinned scripts, the function
// libraries and the users.
func (s *Store) DataSize() int64 {
	n := s.scripts.pinnedSize + s.libs.size() + s.accounts.size
	for _, ks := range s.dbs {
		n += ks.size
	}
	return n
}

// MemoryLimit returns the limit of data in force: that of the cluster parameter or, if the parameter is not set, l.Memory.
func (s *Store) MemoryLimit(l Limits) int64 { return s.config.memoryLimit(l) }

// OutOfMemory reports whether the data has reached its limit.
func (s *Store) OutOfMemory(l Limits) bool { return full(s.DataSize(), s.config.memoryLimit(l)) }

// MaxEntry returns the limit for the writes of one command, script or transaction.
func (s *Store) MaxEntry(l Limits) int64 { return s.config.maxEntry(l) }

func (c *config) memoryLimit(l Limits) int64 {
	if c.memorySet {
		return c.memory
	}
	return l.Memory
}

func (c *config) maxEntry(l Limits) int64 {
	switch {
	case c.entry > 0:
		return c.entry
	case l.Entry > 0:
		return l.Entry
	}
	return DefaultMaxEntry
}

// full reports whether data of a size has reached a limit.
func full(size, limit int64) bool { return limit > 0 && size+emptySize > limit }

// OutOfMemory reports whether the data, including pending writes, or the disk has reached its
// limit.
func (t *Txn) OutOfMemory() bool {
	return !t.fitsReserve(0)
}

// ErrNoRoom returns the error for a command that adds data when OutOfMemory is true.
func (t *Txn) ErrNoRoom() Error {
	if full(t.size, t.config.memoryLimit(t.env.Limits)) {
		return ErrOutOfMemory
	}
	return ErrQuota
}

// MaxEntry returns the limit for the writes of one command, script or transaction.
func (t *Txn) MaxEntry() int64 { return t.config.maxEntry(t.env.Limits) }

// MaxReply returns the limit for one reply.
func (t *Txn) MaxReply() int64 { return t.env.Limits.MaxReply() }

// MaxReply returns the limit for one reply.
func (l Limits) MaxReply() int64 {
	if l.Reply > 0 {
		return l.Reply
	}
	return DefaultMaxReply
}

// ErrReply returns the error for a command whose reply exceeds the limit.
func (t *Txn) ErrReply() Error { return ErrReplyTooBig(t.MaxReply()) }

// tooMany refuses a reply of n elements, before it is built, if the elements would exceed the limit
// even without the bytes of their strings.
func (t *Txn) tooMany(n int64) (refusal Reply, refused bool) {
	if n <= t.MaxReply()/int64(ReplySize) {
		return Reply{}, false
	}
	return Err(t.ErrReply()), true
}

// Outsized reports whether a reply is too large.
func (t *Txn) Outsized(r *Reply) bool {
	if r.Elems == nil {
		return int64(len(r.Str)) > t.MaxReply()
	}
	limit := int(t.MaxReply())
	return Extent(r.Elems, limit) > limit
}

// Wrote reports whether the current command, script or transaction has written anything.
func (t *Txn) Wrote() bool { return t.ws.Size() != t.from.writes }

// BeginCall marks the start of a command, script or transaction. MaxEntry limits all writes from here
// to the next BeginCall together.
func (t *Txn) BeginCall() {
	t.from, t.moved, t.copies, t.find.moved = extent{writes: t.ws.Size(), size: t.size, created: t.from.created[:0]}, 0, 0, 0
}

// extent is the size of the writes and the size of the data at the start of a command, script or transaction.
type extent struct {
	writes int
	size   int64
	users  bool // the command sets many users (Txn.setUsers)

	created []ReadyKey // names of the new keys that noteCreated has recorded
}

// limit returns how many bytes the current command, script or transaction may write.
func (t *Txn) limit() int64 {
	if t.from.users {
		return max(t.MaxEntry(), maxUsersSize) + entryRoom
	}
	return t.MaxEntry() + entryRoom
}

// tooBig reports whether the call has exceeded its limit: in the log, in the data, or in work that every node repeats (copies, and searches
// and shifts in compact forms).
func (t *Txn) tooBig() bool {
	limit := t.limit()
	return int64(t.ws.Size()-t.from.writes) > limit || t.size-t.from.size > limit || t.moved+t.find.moved/shiftShare > copiesPerEntry*limit
}

// Call runs a command, and ends it as soon as it has written too much. Overrun then returns the same error.
func (c *Ctx) Call(run func(*Ctx) Reply) (r Reply) {
	w := &c.ws
	w.most = c.from.writes + int(c.limit())
	defer func() {
		if w.most = 0; w.full {
			recover()
			w.full, r = false, Err(c.ErrTooBig())
		}
	}()
	return run(c)
}

// HasRoom reports whether the current command, script or transaction may write this number of bytes more.
func (t *Txn) HasRoom(bytes int) bool {
	return int64(t.ws.Size()-t.from.writes+bytes) <= t.limit()
}

// ErrTooBig returns the error for a call that exceeds its limit.
func (t *Txn) ErrTooBig() Error { return ErrEntryTooBig(t.MaxEntry()) }

package store

import "unsafe"

// What the data takes, and what is refused when it takes too much.
//
// Each database knows the size of its keys, and each write changes it by what
// the write adds or removes, without looking at anything else: see
// target.grow. The figure is an estimate from lengths alone, so it is the same
// on every node, after a restart, and in a transaction that has not been
// committed. The leader compares it with the limit when it evaluates; nobody
// asks again when the write is applied.

// Names of the parameters of the cluster that limit data.
const (
	ParamMaxMemory = "maxmemory"
	ParamMaxEntry  = "max-entry-size"
)

// Limits are the limits of data that hold as long as nobody sets them for the
// cluster.
type Limits struct {
	Memory int64 // bytes of data from which on nothing may be added; 0: no limit
	Reply  int64 // bytes of one reply; 0: DefaultMaxReply
	Entry  int64 // bytes that one command, script or transaction may write; 0: DefaultMaxEntry
}

const (
	// DefaultMaxEntry is what one command, script or transaction may write. While an entry is written,
	// sent and applied, nobody else is served.
	DefaultMaxEntry = 8 << 20
	// DefaultMaxReply is how large one reply may be: it is built, encoded and sent as a whole.
	DefaultMaxReply = 256 << 20
	// MaxEntry is the most that it can be set to: an entry holds more than the writes
	// of one command, and the log store takes no more than 64 MiB.
	MaxEntry = 32 << 20
	// entryRoom is what a write may take beside its value, which may be as long as an
	// entry.
	entryRoom = MinEntry
	// MinEntry is the least: what is needed beside the data has to fit, too.
	MinEntry = 64 << 10
)

// reserveShare is which part of the limit is a reserve beyond it: see Overrun.
const reserveShare = 16

// emptySize is what counts for a node without any data, so that the smallest
// limit refuses the first key, as Redis does.
const emptySize = 1 << 20

// entrySize is what a key takes apart from its name and value: the entry, its
// places in the index and among the deadlines.
const entrySize = int64(unsafe.Sizeof(Entry{})) + int64(unsafe.Sizeof(slot{}))*3/2 + int64(unsafe.Sizeof(&Entry{}))*3/2

// What an element takes apart from its bytes; a node of a tree is about two
// thirds full.
const (
	fieldSize      = int64(unsafe.Sizeof(Field{}))
	treeFieldSize  = fieldSize * 3 / 2
	listElemSize   = int64(unsafe.Sizeof(listElem{})) * 2 // which grows at its ends, so its nodes are half full
	intSize        = int64(unsafe.Sizeof(int64(0)))
	treeMemberSize = int64(unsafe.Sizeof(member{})) * 3 / 2
	scoredSize     = int64(unsafe.Sizeof(Scored{}))
	treeScoredSize = scoredSize*3/2 + int64(unsafe.Sizeof(scoredName{}))*3/2
	treeSize       = 112 // a tree, however small
	collectionSize = int64(unsafe.Sizeof(elements{})) + 64
)

// size is what the key takes. It does not depend on the number of elements how
// long this takes, but for a hash in its small form.
func (e *Entry) size() int64 {
	n := entrySize + allocated(len(e.key))
	if e.elems == nil || e.elems.collection == nil {
		return n + allocated(len(e.str))
	}
	return n + collectionSize + e.elems.size()
}

// DataSize returns what the keys of all databases take, with the scripts that stay until
// SCRIPT FLUSH, the function libraries, and the users.
func (s *Store) DataSize() int64 {
	n := s.scripts.pinnedSize + s.libs.size() + s.accounts.size
	for _, ks := range s.dbs {
		n += ks.size
	}
	return n
}

// MemoryLimit returns the limit of data in force, given those that hold while the
// cluster has none.
func (s *Store) MemoryLimit(l Limits) int64 { return s.config.memoryLimit(l) }

// OutOfMemory reports whether the data is at its limit.
func (s *Store) OutOfMemory(l Limits) bool { return full(s.DataSize(), s.config.memoryLimit(l)) }

// MaxEntry returns what one command, script or transaction may write.
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

// full reports whether data of a size is at a limit.
func full(size, limit int64) bool { return limit > 0 && size+emptySize > limit }

// OutOfMemory reports whether the data, with what is pending, is at its limit, or the disk.
func (t *Txn) OutOfMemory() bool {
	return full(t.size, t.config.memoryLimit(t.env.Limits)) || t.env.DiskFull != nil && t.env.DiskFull()
}

// ErrNoRoom is the answer to who would add data then.
func (t *Txn) ErrNoRoom() Error {
	if full(t.size, t.config.memoryLimit(t.env.Limits)) {
		return ErrOutOfMemory
	}
	return ErrQuota
}

// MaxEntry returns what one command, script or transaction may write.
func (t *Txn) MaxEntry() int64 { return t.config.maxEntry(t.env.Limits) }

// MaxReply returns how large one reply may be.
func (t *Txn) MaxReply() int64 { return t.env.Limits.MaxReply() }

// MaxReply returns how large one reply may be.
func (l Limits) MaxReply() int64 {
	if l.Reply > 0 {
		return l.Reply
	}
	return DefaultMaxReply
}

// ErrReply is the answer to who asks for more than a reply may hold.
func (t *Txn) ErrReply() Error { return ErrReplyTooBig(t.MaxReply()) }

// tooMany refuses a reply of n elements that would be too large without their bytes, before
// it is built.
func (t *Txn) tooMany(n int64) (refusal Reply, refused bool) {
	if n <= t.MaxReply()/int64(replySize) {
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

// Wrote reports whether the present command, script or transaction has written anything.
func (t *Txn) Wrote() bool { return t.ws.Size() != t.from.writes }

// BeginCall marks where the writes of a command, script or transaction begin, which
// count against MaxEntry together.
func (t *Txn) BeginCall() { t.from = extent{t.ws.Size(), t.size} }

// extent is how much has been written, and how much data there is.
type extent struct {
	writes int
	size   int64
}

// tooBig reports whether the present command, script or transaction has written more
// than one may: in bytes of the log, or by what the data has grown, because COPY and
// SETRANGE write much with few.
func (t *Txn) tooBig() bool {
	limit := t.MaxEntry() + entryRoom
	return int64(t.ws.Size()-t.from.writes) > limit || t.size-t.from.size > limit
}

// ErrTooBig is the answer to who would write too much.
func (t *Txn) ErrTooBig() Error { return ErrEntryTooBig(t.MaxEntry()) }

// NoRoom refuses a command that may add data while there is no room for any. Counting
// something that is there is not refused, although Redis does: it takes no room, and a
// lock that counts how often its owner has it is released that way.
func (c *Ctx) NoRoom() (refusal Reply, denied bool) {
	if c.Cmd.Flags&DenyOOM == 0 || !c.OutOfMemory() || c.countsOnly() {
		return Reply{}, false
	}
	return Err(c.ErrNoRoom()), true
}

// Overrun is asked after a command, and returns the error of one that has written too
// much, which must not take effect. Beyond the limit some commands may still add data:
// in a script that has begun to write, or that says "allow-oom", and those that Redis
// never refuses, as RENAME to a long name. They may add a reserve, and no more.
func (c *Ctx) Overrun() Error {
	switch t := c.Txn; {
	case !t.Wrote():
		return ""
	case t.tooBig():
		return t.ErrTooBig()
	case t.size > t.from.size && t.beyondReserve() && !c.countsOnly():
		return ErrOutOfMemory
	}
	return ""
}

// beyondReserve reports whether the data is beyond its limit by more than the reserve.
func (t *Txn) beyondReserve() bool {
	limit := t.config.memoryLimit(t.env.Limits)
	return limit > 0 && full(t.size, limit+max(limit/reserveShare, DefaultMaxEntry))
}

// countsOnly reports whether the command changes a number that is there already.
func (c *Ctx) countsOnly() bool {
	switch c.Cmd.Name {
	case "incr", "decr", "incrby", "decrby", "incrbyfloat":
		e := c.Lookup(c.DB, c.Args[1])
		return e != nil && e.typ == TypeString
	case "hincrby", "hincrbyfloat":
		e := c.Lookup(c.DB, c.Args[1])
		if e == nil || e.typ != TypeHash {
			return false
		}
		_, ok := e.Fields().Get(bytesToString(c.Args[2]))
		return ok
	}
	return false
}

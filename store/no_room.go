package store

import (
	"slices"
	"time"
)

// When the data or its directory is at its limit, NoRoom refuses commands that may add data, but not those that set again what is there
// (replaces), because renewals of locks must go on. Writes that are not refused may use the reserve (Overrun), a part of which is only for
// keys that expire soon (temporary).

// The reserve beyond the limit of data is limit/reserveShare, but at least DefaultMaxEntry. Its last quarter (releaseShare) is for keys
// that expire within temporaryFor: some clients release a lock with them.
const (
	reserveShare = 16
	releaseShare = 4
	temporaryFor = time.Minute
)

// mostTemporary is the largest number of new keys that the method temporary looks at. If a call has created more, temporary returns
// false.
const mostTemporary = 8

// NoRoom refuses a command that may add data when there is no room, except countsOnly and replaces, by which clients renew and release
// locks.
func (c *Ctx) NoRoom() (refusal Reply, denied bool) {
	if c.Cmd.Flags&DenyOOM == 0 || !c.OutOfMemory() || c.countsOnly() || c.replaces() {
		return Reply{}, false
	}
	return Err(c.ErrNoRoom()), true
}

// Overrun returns an error if the command, script or transaction has written too much. The caller must then undo the writes.
func (c *Ctx) Overrun() Error {
	if c.grows() && !c.fitsReserve(releaseShare-1) && !c.temporary() {
		return c.ErrNoRoom()
	}
	return c.OverrunSoFar()
}

// OverrunSoFar is Overrun for a script that has not ended: new keys may still become temporary, so it allows the whole reserve.
func (c *Ctx) OverrunSoFar() Error {
	switch {
	case !c.Wrote():
		return ""
	case c.tooBig():
		return c.ErrTooBig()
	case c.grows() && !c.fitsReserve(releaseShare):
		return c.ErrNoRoom()
	}
	return ""
}

// grows reports whether the data has grown. Users of an ACL file do not count.
func (c *Ctx) grows() bool { return c.size > c.from.size && !c.from.users }

// fitsReserve reports whether the data fits its limit plus the given quarters of the reserve. For a full data directory, its reserve counts
// likewise.
func (t *Txn) fitsReserve(quarters int64) bool {
	limit := t.config.memoryLimit(t.env.Limits)
	if limit > 0 && full(t.size, limit+max(limit/reserveShare, DefaultMaxEntry)/releaseShare*quarters) {
		return false
	}
	if t.env.DiskFull == nil {
		return true
	}
	data, most, full := t.env.DiskFull(t.from.size)
	return !full || quarters > 0 && t.size <= data+(most-data)/releaseShare*quarters
}

// temporary reports whether all data that the current command, script or transaction has added is in keys that expire within
// temporaryFor.
func (t *Txn) temporary() bool {
	if len(t.from.created) > mostTemporary {
		return false
	}
	left, last := t.size-t.from.size, t.now.Lease+temporaryFor.Milliseconds()
	for _, k := range t.from.created {
		e := t.peek(k.DB, k.Key)
		if e == nil {
			continue
		}
		if at, _ := e.until(); at != 0 && at <= last {
			left -= e.size()
		}
	}
	return left <= 0
}

// noteCreated records the name of a new key for the method temporary. It does so only while there is no room for more data.
func (t *Txn) noteCreated(db int, key string) {
	k := ReadyKey{DB: db, Key: key}
	if len(t.from.created) <= mostTemporary && !t.fitsReserve(0) && !slices.Contains(t.from.created, k) {
		t.from.created = append(t.from.created, k)
	}
}

// countsOnly reports whether the command only changes an existing number.
func (c *Ctx) countsOnly() bool {
	switch c.Cmd.Name {
	case "incr", "decr", "incrby", "decrby", "incrbyfloat", "lock.fence":
		return c.existing(TypeString) != nil
	case "hincrby", "hincrbyfloat", lockAcquire:
		if e := c.existing(TypeLock); e != nil {
			return e.holder(bytesToString(c.Args[2])) != nil
		}
		e := c.existing(TypeHash)
		if e == nil {
			return false
		}
		_, ok := c.fieldOf(e.Fields(), bytesToString(c.Args[2]))
		return ok
	}
	return false
}

// replaces reports whether the command will only set again what is there, change a score, or, with SET and XX or IFEQ, set a string that is
// no longer (ShedLock's renewal). A SET whose IFEQ or IFNE is not met passes: it sets nothing, and its nil tells the client that the lock
// is lost. A SET with unknown options passes, too: clients try IFDEQ, and expect a syntax error.
func (c *Ctx) replaces() bool {
	switch c.Cmd.Name {
	case "set":
		o, ok := parseStringOptions(c.Args[3:], setWords)
		return !ok || !o.has(optNX) && c.setsAgain(c.Args[2], o.has(optXX|optIfEq)) || o.has(compareWords) && !c.fulfils(o)
	case "getset":
		return c.setsAgain(c.Args[2], false)
	case "setex", "psetex":
		return c.setsAgain(c.Args[3], false)
	case "hset", "hmset":
		if e := c.existing(TypeHash); e != nil && len(c.Args) == 4 {
			old, ok := c.fieldOf(e.Fields(), bytesToString(c.Args[2]))
			return ok && bytesToString(c.Args[3]) == old
		}
	case "zadd":
		var f zaddFlags
		pairs := f.parse(c.Args[2:])
		return len(pairs) == 2 && c.hasMember(pairs[1])
	case "zincrby":
		return c.hasMember(c.Args[3])
	}
	return false
}

// hasMember reports whether the key of the command is a sorted set that has the member.
func (c *Ctx) hasMember(name []byte) (ok bool) {
	if e := c.existing(TypeSortedSet); e != nil {
		_, ok = c.scoreOf(e.Scores(), bytesToString(name))
	}
	return ok
}

// setsAgain reports whether the key holds the string value or, if other is true, any string at least as long.
func (c *Ctx) setsAgain(value []byte, other bool) bool {
	e := c.existing(TypeString)
	return e != nil && (bytesToString(value) == e.str || other && len(value) <= len(e.str))
}

// fulfils reports whether the key meets IFEQ or IFNE. It returns false for a key of another type, to which SET replies with an error.
func (c *Ctx) fulfils(o stringOptions) bool {
	e := c.Txn.Lookup(c.DB, c.Args[1])
	return (e == nil || e.typ == TypeString) && o.allow(e)
}

// existing returns the entry of the command's first key if the key has the type typ, else nil.
func (c *Ctx) existing(typ Type) *Entry {
	if e := c.Txn.Lookup(c.DB, c.Args[1]); e != nil && e.typ == typ {
		return e
	}
	return nil
}

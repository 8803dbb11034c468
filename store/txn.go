package store

import (
	"math"
	"sort"
)

// Time is the instant at which a batch is evaluated, by both clocks.
type Time struct {
	Lease int64 // ms on the lease clock, which decides expiry
	Wall  int64 // Unix µs, for what is defined in Unix time
}

// Env is what evaluation may know beyond the keyspace. Its zero value is
// enough for tests.
type Env struct {
	// Grace returns by how many milliseconds a deadline set by write set seq
	// is honoured longer, because that write set was acknowledged so much
	// after the time it was evaluated at. A lease counts from its reply.
	Grace func(seq uint64) int64
	// Receivers returns how many subscribers a message reaches.
	Receivers func(kind PublishKind, channel string) int
	// Limits are those of data.
	Limits Limits
	// DiskFull, if not nil, reports whether the data directory of the node is at its quota:
	// nothing may be added then, either.
	DiskFull func() bool
	// Older, if not nil, reports whether some node may run version 0.1.0, which would end
	// at a write that it does not know.
	Older func() bool
	// SameOwnerNX has SET … NX answer OK where the value that it sets is there.
	SameOwnerNX bool
	// FoundOwn, if not nil, is called where SameOwnerNX would have made a difference.
	FoundOwn func()
	// ACL is what the node adds to the users of the state.
	ACL ACLEnv
}

// view is one database as a Txn sees it: the committed keys, unless the Txn
// has flushed them, under the pending entries (nil: deleted).
type view struct {
	base *keyspace
	over map[string]*Entry
}

// Txn evaluates commands against a store without changing it.
type Txn struct {
	s     *Store
	env   Env
	now   Time
	seq   uint64 // the sequence number that the write set will get
	views [Databases]view
	ws    WriteSet
	size  int64  // of the data, with what is pending
	from  extent // when the present call began

	scripts      map[string]script // pending loads
	scriptsReset bool              // a pending SCRIPT FLUSH hides the committed ones

	users       map[string]*Account // pending; nil: deleted
	caller      *Account            // the committed one that was asked for last …
	callerAt    uint64              // … at this version of the users
	defaultUser *User               // if the state has none
	denied      []Denial            // see AttachDenials
	libs        *librarySet         // the function libraries; nil: those that are committed

	ready   []ReadyKey // see TakeReady
	swapped bool
	deleted []string // users, by this transaction …
	told    int      // … of which TakeDeletedUsers has told so many

	swappedDBs uint16      // databases that were swapped, as bits …
	lapsed     []lapsedKey // … and keys that have expired: see Version
	config     config      // pending, or that of the store
	events     eventClass  // keyspace notifications in force

	leases bool // a deadline counts from now

	generation uint32 // of the latest savepoint
	saved      int    // savepoints in force: the journal is kept while > 0
	journal    []func()
	undone     int // see TakeUndone
	copies     int // see TakeCopied
}

// Begin starts a transaction on the committed state; seq is the sequence
// number that its write set will have when it is applied. Once something else
// has been applied, all that can be done with it is Restart.
func (s *Store) Begin(now Time, seq uint64, env Env) *Txn {
	t := &Txn{s: s, env: env}
	t.Restart(now, seq)
	return t
}

// keepPending is how many pending entries a Txn keeps room for when it is used again,
// keepWrites how many bytes of writes.
const (
	keepPending = 1024
	keepWrites  = 1 << 20
)

// Restart begins anew on the present committed state and keeps the memory.
// Everything pending and every savepoint is forgotten.
func (t *Txn) Restart(now Time, seq uint64) {
	t.now, t.seq = now, seq
	for i := range t.views {
		v := &t.views[i]
		v.base = t.s.dbs[i]
		if len(v.over) > keepPending {
			v.over = nil
		}
		clear(v.over)
	}
	t.size = t.s.DataSize()
	t.ws.Reset()
	t.BeginCall()
	if cap(t.ws.buf) > keepWrites {
		t.ws.buf = nil
	}
	t.scripts, t.scriptsReset, t.libs = nil, false, nil
	t.users, t.deleted, t.told, t.denied = nil, nil, 0, nil
	t.ready, t.swapped, t.swappedDBs = nil, false, 0
	if cap(t.lapsed) > keepPending {
		t.lapsed = nil
	}
	clear(t.lapsed)
	t.lapsed = t.lapsed[:0]
	t.config, t.events = t.s.config, t.s.config.events
	if cap(t.journal) > keepPending {
		t.journal = nil
	}
	clear(t.journal)
	t.saved, t.journal = 0, t.journal[:0]
}

// On reports whether the transaction is on s.
func (t *Txn) On(s *Store) bool { return t.s == s }

// Now returns the time of the transaction.
func (t *Txn) Now() Time { return t.now }

// SetNow moves the transaction's time, for a batch that takes in requests
// while it is evaluated.
func (t *Txn) SetNow(now Time) { t.now = now }

// Writes returns what has been written.
func (t *Txn) Writes() *WriteSet { return &t.ws }

// UnixMilli returns the wall clock in milliseconds.
func (t *Txn) UnixMilli() int64 { return t.now.Wall / 1000 }

// DeadlineIn returns the lease deadline ms milliseconds from now.
func (t *Txn) DeadlineIn(ms int64) int64 {
	t.leases = true
	return addSaturating(t.now.Lease, ms)
}

// DeadlineAt converts a Unix time in ms to a lease deadline.
func (t *Txn) DeadlineAt(unixMs int64) int64 {
	return addSaturating(unixMs-t.UnixMilli(), t.now.Lease)
}

// UnixAt converts a lease deadline to Unix ms.
func (t *Txn) UnixAt(deadline int64) int64 {
	return addSaturating(deadline-t.now.Lease, t.UnixMilli())
}

func addSaturating(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	if b < 0 && a < math.MinInt64-b {
		return math.MinInt64
	}
	return a + b
}

// dead reports whether an entry's deadline has passed. As in Redis a key lives
// through the millisecond of its deadline.
func (t *Txn) dead(e *Entry) bool {
	if e.deadline == 0 || t.now.Lease <= e.deadline {
		return false
	}
	return t.env.Grace == nil || t.now.Lease-e.deadline > t.env.Grace(e.leased)
}

// peek returns the entry of a key, dead or alive, for reading.
func (t *Txn) peek(db int, key string) *Entry {
	v := &t.views[db]
	if e, ok := v.over[key]; ok {
		return e
	}
	if v.base == nil {
		return nil
	}
	return v.base.get(key)
}

// Lookup returns the entry of a key, nil if it is absent or has expired.
func (t *Txn) Lookup(db int, key []byte) *Entry {
	e := t.peek(db, bytesToString(key))
	if e == nil || t.dead(e) {
		return nil
	}
	return e
}

// LookupWrite is Lookup for a command that is about to write the key: an
// expired one is deleted first, as a write of its own.
func (t *Txn) LookupWrite(db int, key []byte) *Entry {
	e := t.peek(db, bytesToString(key))
	if e != nil && t.dead(e) {
		t.expire(db, e.key)
		return nil
	}
	return e
}

func (t *Txn) expire(db int, key string) {
	t.ws.begin(opExpire, db)
	t.ws.str(key)
	t.remove(db, key)
	t.lapse(lapsedKey{db, key})
	t.notify(eventExpired, "expired", db, key)
}

// ExpireDue deletes keys whose deadline has passed, at most limit of them,
// and returns how many it deleted.
func (t *Txn) ExpireDue(limit int) int {
	var due []*Entry
	for db := range t.views {
		ks := t.views[db].base
		if ks == nil || len(due) >= limit {
			continue
		}
		from := len(due)
		ks.deadlines.before(t.now.Lease, func(e *Entry) bool {
			due = append(due, e)
			return len(due) < limit
		})
		kept := due[:from]
		for _, x := range due[from:] {
			if e := t.peek(db, x.key); e != nil && t.dead(e) {
				t.expire(db, x.key)
				kept = append(kept, x)
			}
		}
		due = kept
	}
	return len(due)
}

// Older reports whether some node may run version 0.1.0, as Env.Older says.
func (t *Txn) Older() bool { return t.env.Older != nil && t.env.Older() }

// SetString makes key a string with a deadline (0: none).
func (t *Txn) SetString(db int, key []byte, value string, deadline int64) {
	k := bytesToString(key)
	t.ws.begin(opSet, db)
	t.ws.str(k)
	t.ws.str(value)
	t.ws.int(deadline)
	setString(t, db, k, value, deadline)
}

// KeepString makes a key a string that keeps the deadline of the key, if it has one.
// Who sets the deadline anew to what it was takes the lateness from it that belongs to
// it: it would end early.
func (t *Txn) KeepString(db int, key []byte, value string) {
	k := bytesToString(key)
	e := t.peek(db, k)
	if e == nil || e.deadline == 0 {
		t.SetString(db, key, value, 0)
		return
	}
	if t.Older() {
		// The lateness is added to the deadline for good: late is safe.
		at := e.deadline
		if t.env.Grace != nil {
			at += t.env.Grace(e.leased)
		}
		t.SetString(db, key, value, at)
		return
	}
	t.ws.begin(opKeep, db)
	t.ws.newer = true
	t.ws.str(k)
	t.ws.str(value)
	keepString(t, db, k, value)
}

// Patch overwrites a string from an offset on, creating the key or filling the
// gap with zero bytes. The key must not hold another type.
func (t *Txn) Patch(db int, key []byte, offset int64, patch string) {
	k := bytesToString(key)
	t.ws.begin(opPatch, db)
	t.ws.str(k)
	t.ws.int(offset)
	t.ws.str(patch)
	patchString(t, db, k, offset, patch)
}

// Reform has OBJECT ENCODING show another form of a string, which must exist.
func (t *Txn) Reform(db int, key []byte, form strForm) {
	k := bytesToString(key)
	e := t.peek(db, k)
	other := *e
	if other.form = form; other.encoding() == e.encoding() || t.Older() {
		return
	}
	t.ws.begin(opForm, db)
	t.ws.newer = true
	t.ws.str(k)
	t.ws.int(int64(form))
	formString(t, db, k, form)
}

// Delete deletes a key; it must exist.
func (t *Txn) Delete(db int, key []byte) {
	t.ws.begin(opDelete, db)
	t.ws.str(bytesToString(key))
	t.remove(db, bytesToString(key))
}

// SetDeadline changes the deadline of an existing key; 0 removes it.
func (t *Txn) SetDeadline(db int, key []byte, at int64) {
	t.ws.begin(opDeadline, db)
	t.ws.str(bytesToString(key))
	t.ws.int(at)
	t.setDeadline(db, bytesToString(key), at)
}

// Publish sends a message with the write set and returns how many subscribers
// it reaches.
func (t *Txn) Publish(kind PublishKind, channel, message string) int {
	t.message(kind, channel, message)
	if t.env.Receivers == nil {
		return 0
	}
	return t.env.Receivers(kind, channel)
}

func (t *Txn) message(kind PublishKind, channel, message string) {
	t.ws.begin(opPublish, t.ws.db)
	t.ws.int(int64(kind))
	t.ws.str(channel)
	t.ws.str(message)
}

// Note sends a message of the leader's to a node with the write set.
func (t *Txn) Note(node, message string) {
	t.message(Note, node, message)
}

// Flush empties a database.
func (t *Txn) Flush(db int) {
	if t.Size(db) == 0 && t.views[db].base.empty() && len(t.views[db].over) == 0 {
		return
	}
	t.ws.begin(opFlush, db)
	old := t.views[db]
	t.size -= old.size()
	t.undo(func() { t.views[db] = old })
	t.views[db] = view{}
}

// size is what the database takes, with what is pending.
func (v *view) size() int64 {
	n := int64(0)
	if v.base != nil {
		n = v.base.size
	}
	for key, e := range v.over {
		if e != nil {
			n += e.size()
		}
		if v.base == nil {
			continue
		}
		if old := v.base.get(key); old != nil {
			n -= old.size()
		}
	}
	return n
}

// flushEmpty is Flush of a database that has no keys.
func (t *Txn) flushEmpty(db int) { t.ws.begin(opFlush, db) }

func (ks *keyspace) empty() bool { return ks == nil || ks.keys.size == 0 }

// Swap exchanges two databases.
func (t *Txn) Swap(a, b int) {
	t.ws.begin(opSwap, t.ws.db)
	t.ws.int(int64(a))
	t.ws.int(int64(b))
	swap := func() { t.views[a], t.views[b] = t.views[b], t.views[a] }
	swap()
	t.swapped = true
	dbs := t.swappedDBs
	t.swappedDBs |= 1<<a | 1<<b
	t.undo(func() {
		swap()
		t.swappedDBs = dbs
	})
}

// Move moves an existing key, with its deadline, to another database or name
// and replaces what is there.
func (t *Txn) Move(db int, key []byte, toDB int, name []byte) {
	t.relocate(opMove, db, key, toDB, name)
}

// Copy is Move that keeps the source.
func (t *Txn) Copy(db int, key []byte, toDB int, name []byte) {
	t.relocate(opCopy, db, key, toDB, name)
}

func (t *Txn) relocate(o op, db int, key []byte, toDB int, name []byte) {
	t.ws.begin(o, db)
	t.ws.int(int64(toDB))
	t.ws.str(bytesToString(key))
	t.ws.str(bytesToString(name))
	moveKey(t, db, bytesToString(key), toDB, bytesToString(name), o == opCopy)
}

// Size returns the number of live keys in a database.
func (t *Txn) Size(db int) int {
	v := &t.views[db]
	n := 0
	if v.base != nil {
		n = v.base.keys.size
		v.base.deadlines.before(t.now.Lease, func(e *Entry) bool {
			if t.dead(e) {
				n--
			}
			return true
		})
	}
	for key, e := range v.over {
		if v.base != nil {
			if old := v.base.get(key); old != nil && !t.dead(old) {
				n--
			}
		}
		if e != nil && !t.dead(e) {
			n++
		}
	}
	return n
}

// Ascend calls fn for the live keys of a database from a place in the
// iteration order on, until it returns false.
func (t *Txn) Ascend(db int, from uint64, fn func(*Entry) bool) {
	v := &t.views[db]
	pending := v.pending(from)
	visit := func(e *Entry) bool { return t.dead(e) || fn(e) }
	goOn := true
	if v.base != nil {
		v.base.keys.ascend(from, func(s slot) bool {
			for len(pending) > 0 && goOn && slotLess(pending[0], s) {
				goOn = visit(pending[0].Entry)
				pending = pending[1:]
			}
			if _, replaced := v.over[s.key]; goOn && !replaced {
				goOn = visit(s.Entry)
			}
			return goOn
		})
	}
	for _, s := range pending {
		if !goOn {
			return
		}
		goOn = visit(s.Entry)
	}
}

// pending returns the entries over the base from a place on, in order.
func (v *view) pending(from uint64) []slot {
	var list []slot
	for _, e := range v.over {
		if e == nil {
			continue
		}
		if s := (slot{e.hash(), e}); s.hash >= from {
			list = append(list, s)
		}
	}
	sort.Slice(list, func(i, j int) bool { return slotLess(list[i], list[j]) })
	return list
}

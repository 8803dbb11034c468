package store

import "math"

// Time is the instant of a batch's evaluation, on the lease clock and on the wall clock.
type Time struct {
	Lease int64 // ms on the lease clock, which decides expiry
	Wall  int64 // Unix µs, for values that are defined in Unix time
}

// Env is what evaluation uses beyond the keyspace. Its zero value is enough for tests.
type Env struct {
	// Grace, if not nil, returns how many ms after the deadlines of the write set seq the keys expire: a lease counts from the reply.
	Grace func(seq uint64) int64
	// Receivers returns the number of subscribers that receive a message.
	Receivers func(kind PublishKind, channel string) int
	// Limits are the limits of data, writes and replies from the node's own configuration.
	Limits Limits
	// DiskFull, if not nil, reports whether the data directory is full, the size of the data when the directory became full, and the size
	// that the reserve allows. The argument size is that before the present call.
	DiskFull func(size int64) (data, most int64, full bool)
	// Older, if not nil, reports whether some node may run version 0.1.0. Such a node would stop at
	// a write that it does not know.
	Older func() bool
	// SameOwnerNX makes SET … NX reply OK if the key already has the value (see sameOwner).
	SameOwnerNX bool
	// Corrected, if not nil, returns the number of the write set whose leases the write set seq has only lengthened, or seq.
	Corrected func(seq uint64) uint64
	// Queued, if not nil, reports whether clients wait for the lock at a key.
	Queued func(db int, key []byte) bool
	// GiveUp, if not nil, ends the tickets that an owner has for the lock at a key.
	GiveUp func(db int, key, owner string)
	// Waiting, if not nil, returns how many clients wait for the lock at a key, and Blocked how many are blocked on a list or sorted set.
	// EachWaiter, if not nil, calls fn for each of the ones or the others, in order, until fn returns false.
	Waiting, Blocked func(db int, key string) int
	EachWaiter       func(db int, key string, lock bool, fn func(Waiter) bool)
	// Held, if not nil, returns since when an owner holds the lock with a token, in ms on the lease clock, and the number of the client that has
	// taken it. Client says on which node that client is, its id there, and whether the process of that time still runs.
	Held   func(db int, token uint64, owner string) (since int64, client uint64, known bool)
	Client func(number uint64) (node string, id uint64, alive bool)
	// AskedInVain, if not nil, notes that a client has asked in vain for a lock with a token, without waiting for it; EachPoller calls fn for
	// those that have done so again and again.
	AskedInVain func(db int, key string, token uint64, owner, user string)
	EachPoller  func(db int, key string, token uint64, fn func(Waiter) bool)
	// Subscribers counts this node's subscribers of a channel, without patterns. Node is the node's id.
	Subscribers func(kind PublishKind, channel string) int
	Node        string
	// FoundOwn, if not nil, is called when SameOwnerNX is off but would have changed the reply.
	FoundOwn func()
	// Missed, if not nil, is called when a command does not get a lock, and does not wait for it. If a batch is evaluated again, it is called again.
	Missed func(kind string)
	// ACL is what the node's own configuration adds to the users that the replicated state contains.
	ACL ACLEnv
}

// view is one database as a Txn sees it: pending entries (nil: deleted) over the committed keys, if no flush hides these.
type view struct {
	base *keyspace
	over map[string]*Entry

	sorted []slot // the result of Txn.pending, kept for its next call
	at     uint64 // the value of Txn.edits when sorted was made
}

// Txn evaluates commands against a store without changing it.
type Txn struct {
	s     *Store
	env   Env
	now   Time
	seq   uint64 // the sequence number of the future write set
	views [Databases]view
	ws    WriteSet
	size  int64  // size of the data, including pending writes
	from  extent // size of the data and of the writes at the last BeginCall

	scripts      map[string]script // the pending scripts, by SHA-1
	scriptsReset bool              // true if a pending SCRIPT FLUSH hides the committed scripts
	pinned       int64             // memory of the pinned scripts among the pending ones

	users       map[string]*Account // pending accounts by name; nil means deleted
	grown       crowd               // what the pending users add to the number and the size of the users of the state
	caller      *Account            // the committed account that the last lookup has found
	callerAt    uint64              // the version of the users at that lookup
	defaultUser *User               // the default user if the state has none
	denied      []Denial            // the denials that the next AttachDenials returns
	libs        *librarySet         // the pending function libraries; nil means the committed ones

	ready   []ReadyKey      // the keys that the next TakeReady returns
	swapped bool            // any key may be ready
	freeing bool            // see NoteFree
	deleted []string        // names of the users that this transaction has deleted
	told    int             // TakeDeletedUsers has returned this many of the names in the field deleted
	gone    map[string]bool // true for the names in the field deleted

	swappedDBs  uint16                 // databases that were swapped, one bit each; for Version
	lapsed      map[lapsedKey]struct{} // keys that have expired in this write set; for Version
	flushed     flushed                // what Flush has removed; for Version
	replaced    Replaced               // names that may belong to another key than before
	seen        []lapsedKey            // expired keys that foundDead has found, for ExpireSeen; a key may be in it twice
	seenHolders []LeasedKey            // the same for holders of locks, by foundHolding
	deadLock    *Entry                 // the lock that lockDead has found dead last
	config      config                 // the cluster parameters, with the pending changes
	tokens      tokens                 // those of the store, with the pending grants
	events      eventClass             // keyspace notifications in force

	leases bool // the result of the next TakeLeases

	generation uint32 // number of the latest savepoint
	saved      int    // number of savepoints; while there are any, journal records how to undo each change
	journal    []func()
	undone     int   // the result of the next TakeUndone
	copies     int   // the result of the next TakeCopied
	moved      int64 // the same as copies, but TakeCopied does not reset it
	held       int   // the result of Held
	find       finder
	edits      uint64 // grows when pending entries come or go
	looked     int    // how many elements lockKind has looked at
}

// Begin starts a transaction whose write set gets the number seq. After another write set, only Restart may be called.
func (s *Store) Begin(now Time, seq uint64, env Env) *Txn {
	t := &Txn{s: s, env: env}
	t.Restart(now, seq)
	return t
}

// A reused Txn keeps memory for at most keepPending pending entries and keepWrites bytes of writes.
const (
	keepPending = 1024
	keepWrites  = 1 << 20
)

// Restart starts a new transaction on the current committed state. It drops all pending writes and savepoints, and
// reuses their memory.
func (t *Txn) Restart(now Time, seq uint64) {
	t.now, t.seq = now, seq
	for i := range t.views {
		v := &t.views[i]
		v.base = t.s.dbs[i]
		if len(v.over) > keepPending {
			v.over = nil
		}
		clear(v.over)
		v.sorted = nil
	}
	t.size, t.held = t.s.DataSize(), 0
	t.ws.Reset()
	t.find = finder{}
	t.BeginCall()
	if cap(t.ws.buf) > keepWrites {
		t.ws.buf = nil
	}
	t.scripts, t.scriptsReset, t.pinned, t.libs = nil, false, 0, nil
	t.users, t.deleted, t.gone, t.told, t.denied = nil, nil, nil, 0, nil
	t.grown = crowd{}
	t.ready, t.swapped, t.swappedDBs = nil, false, 0
	t.leases = false // a failed call may have left it true
	if len(t.lapsed) > keepPending {
		t.lapsed = nil
	}
	clear(t.lapsed)
	t.flushed, t.replaced = flushed{}, Replaced{}
	if cap(t.seen) > keepPending {
		t.seen = nil
	}
	t.seen, t.seenHolders, t.deadLock = t.seen[:0], nil, nil
	t.config, t.events, t.tokens = t.s.config, t.s.config.events, t.s.tokens
	if cap(t.journal) > keepPending {
		t.journal = nil
	}
	clear(t.journal)
	t.saved, t.journal = 0, t.journal[:0]
}

// On reports whether s is the transaction's store.
func (t *Txn) On(s *Store) bool { return t.s == s }

// Sequence returns the number of the future write set.
func (t *Txn) Sequence() uint64 { return t.seq }

// Now returns the time of the transaction.
func (t *Txn) Now() Time { return t.now }

// SetNow changes the transaction's time, for a batch that accepts more requests during its
// evaluation.
func (t *Txn) SetNow(now Time) { t.now = now }

// Writes returns the writes so far.
func (t *Txn) Writes() *WriteSet { return &t.ws }

// UnixMilli returns the wall clock time in Unix milliseconds.
func (t *Txn) UnixMilli() int64 { return t.now.Wall / 1000 }

// DeadlineIn returns the lease deadline that is ms milliseconds from now. It makes TakeLeases return true.
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

// dead reports whether an entry's deadline and its grace have passed, or those of all holders of a lock.
func (t *Txn) dead(e *Entry) bool {
	if e.typ == TypeLock {
		return t.lockDead(e)
	}
	return t.past(e.deadline, e.leased)
}

// past reports whether a deadline that the write set seq has set and its grace have passed. As in Redis, a key still exists in the
// millisecond of its deadline.
func (t *Txn) past(deadline int64, seq uint64) bool {
	if deadline == 0 || t.now.Lease <= deadline || seq == t.seq {
		return false // if this write set has set the deadline (the last case), the client has no reply yet
	}
	return t.env.Grace == nil || t.now.Lease-deadline > t.env.Grace(seq)
}

// peek returns the entry of a key, even if expired. If a reply may call the key missing, use Lookup or foundDead, which record expired
// keys.
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

// Lookup returns the entry of a key, or nil if the key does not exist or has expired.
func (t *Txn) Lookup(db int, key []byte) *Entry {
	e := t.peek(db, bytesToString(key))
	if e != nil && t.foundDead(db, e) {
		return nil
	}
	return e
}

// foundDead is dead that records an expired key for ExpireSeen. Use it if a reply may call the key missing.
func (t *Txn) foundDead(db int, e *Entry) bool {
	if !t.dead(e) {
		return false
	}
	x := lapsedKey{db, e.key}
	if n := len(t.seen); n < maxSeen && (n == 0 || t.seen[n-1] != x) {
		t.seen = append(t.seen, x)
	}
	return true
}

// LookupWrite is Lookup for a command that will write the key. It first deletes an expired key, and settles holders of a lock whose time is
// over, as separate writes.
func (t *Txn) LookupWrite(db int, key []byte) *Entry {
	e := t.peek(db, bytesToString(key))
	if e != nil && t.dead(e) {
		t.expire(db, e.key)
		return nil
	}
	if e != nil && e.typ == TypeLock {
		return t.settleDue(db, e, settleBytes)
	}
	return e
}

// Older reports whether some node may run version 0.1.0, as Env.Older says. A leader that has just begun has not heard of all nodes yet; but
// where tokens are counted, no such node can be there: it would have stopped at the write that began to count them.
func (t *Txn) Older() bool { return !t.tokens.counted() && t.env.Older != nil && t.env.Older() }

// SetString makes key a string with a deadline; 0 means none.
func (t *Txn) SetString(db int, key []byte, value string, deadline int64) {
	k := bytesToString(key)
	t.ws.begin(opSet, db)
	t.ws.str(k)
	t.ws.str(value)
	t.ws.int(deadline)
	setString(t, db, k, value, deadline)
}

// SetLock is SetString for a string that is a lock. A cluster that may have nodes of version 0.1.0 does not tell locks from other strings.
func (t *Txn) SetLock(db int, key []byte, value string, deadline int64) {
	if t.Older() {
		t.SetString(db, key, value, deadline)
		return
	}
	k := bytesToString(key)
	t.ws.takes()
	t.ws.begin(opLock, db)
	t.ws.newer = true
	t.ws.str(k)
	t.ws.str(value)
	t.ws.int(deadline)
	setLock(t, db, k, value, deadline)
}

// Mark adds marks (formMarks) to an existing key.
func (t *Txn) Mark(db int, key []byte, marks strForm) {
	if t.Older() {
		return
	}
	k := bytesToString(key)
	t.ws.takes()
	t.ws.begin(opMark, db)
	t.ws.newer = true
	t.ws.str(k)
	t.ws.int(int64(marks))
	addMarks(t, db, k, marks)
}

// KeepString makes key a string and keeps its deadline, because a deadline set anew would lose its grace.
func (t *Txn) KeepString(db int, key []byte, value string) {
	k := bytesToString(key)
	e := t.peek(db, k)
	if e == nil || e.deadline == 0 {
		t.SetString(db, key, value, 0)
		return
	}
	if t.Older() {
		// The grace becomes part of the deadline: a late expiry is safe.
		at := e.deadline
		if t.env.Grace != nil {
			at = addSaturating(at, t.env.Grace(e.leased))
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

// Patch overwrites a string from an offset on, and creates a missing key. The key must not have another type.
func (t *Txn) Patch(db int, key []byte, offset int64, patch string) {
	k := bytesToString(key)
	t.ws.begin(opPatch, db)
	t.ws.str(k)
	t.ws.int(offset)
	t.ws.str(patch)
	patchString(t, db, k, offset, patch)
}

// Reform changes what OBJECT ENCODING shows for an existing string, unless a node may run version 0.1.0 (Older).
func (t *Txn) Reform(db int, key []byte, form strForm) {
	k := bytesToString(key)
	e := t.peek(db, k)
	other := *e
	if other.form = form | e.form&formMarks; other.encoding() == e.encoding() || t.Older() {
		return
	}
	t.ws.begin(opForm, db)
	t.ws.newer = true
	t.ws.str(k)
	t.ws.int(int64(form))
	formString(t, db, k, form)
}

// Delete deletes a key. The key must exist.
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

// Publish adds a message to the write set and returns the number of subscribers that receive it.
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

// Note adds to the write set a message from the leader to a node.
func (t *Txn) Note(node, message string) {
	t.message(Note, node, message)
}

// Flush empties a database. It writes nothing if the database has neither committed keys nor pending entries.
func (t *Txn) Flush(db int) {
	if t.views[db].base.empty() && len(t.views[db].over) == 0 {
		return
	}
	t.ws.begin(opFlush, db)
	old := t.views[db]
	t.size -= old.size()
	t.noteFlushed(db, old)
	t.noteEmptied(db)
	t.undo(func() { t.views[db] = old })
	t.views[db] = view{}
	t.swapped = t.swapped || t.freeing
}

// size returns the size of the database, including pending writes.
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

// flushEmpty writes a flush of a database that has no keys.
func (t *Txn) flushEmpty(db int) { t.ws.begin(opFlush, db) }

func (ks *keyspace) empty() bool { return ks == nil || ks.keys.size == 0 }

// Swap exchanges two databases.
func (t *Txn) Swap(a, b int) {
	t.ws.begin(opSwap, t.ws.db)
	t.ws.int(int64(a))
	t.ws.int(int64(b))
	swap := func() {
		t.views[a], t.views[b] = t.views[b], t.views[a]
		t.swapSeen(a, b)
	}
	swap()
	t.tokens.swap(a, b)
	t.noteEmptied(a, b)
	t.swapped = true
	dbs := t.swappedDBs
	t.swappedDBs |= 1<<a | 1<<b
	t.undo(func() {
		swap()
		t.swappedDBs = dbs
	})
}

// Move moves an existing key with its deadline to another database or name. It replaces an existing
// key there.
func (t *Txn) Move(db int, key []byte, toDB int, name []byte) {
	t.relocate(opMove, db, key, toDB, name)
}

// Copy is Move, but keeps the source.
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

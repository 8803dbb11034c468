package store

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// All clients wait while the witness works, so its work on one write set is bounded. At a bound it stops, and the event LockGap says so. All
// nodes stop at the same write.
const (
	// mostWitnessed is of how many owners of one lock one write can tell.
	mostWitnessed = 1000
	// mostLockEvents is how many events one write set can have.
	mostLockEvents = 1 << 16
	// witnessSteps is how many steps the witness takes for a write set, besides one for each byte of it. A step is to look at an owner, or
	// the work on hashedAtOnce bytes.
	witnessSteps = 1 << 16
	hashedAtOnce = 32
)

// tooManyLockEvents is why the events of the rest of a write set are missing.
const tooManyLockEvents = "a write set with too many events"

// witness finds the events of locks.
type witness struct {
	s      *Store
	wanted bool
	txn    *Txn // reads the committed state
	events []LockEvent
	left   int          // how many steps are left for the write set
	over   bool         // they did not suffice
	places [2]lockPlace // the keys that the present write concerns
	used   int          // how many of them it concerns
	spare  []lockHolder
	known  bool    // places[0] is what the last write has left
	taker  uint64  // the client that takes the locks of the following writes
	by     verdict // from LOCK.FORCE: who ends holds of the lock, until the command publishes what it has done
}

// lockPlace is a key that a write concerns.
type lockPlace struct {
	db    int
	key   string
	owner string // the only owner concerned; "": all
	all   bool   // held has all owners
	kind  string // "": no lock
	typed bool   // the key is of type lock
	limit int64
	held  []lockHolder
	more  bool   // held lacks owners, because they are too many
	short string // the key as events show it; "": not known yet
}

// Witness says whether ApplyVersion finds the events of locks from now on.
func (s *Store) Witness(wanted bool) {
	if s.witness == nil && wanted {
		s.witness = newWitness(s)
	}
	if s.witness != nil {
		s.witness.wanted = wanted
	}
}

func newWitness(s *Store) *witness {
	w := &witness{s: s, txn: s.Begin(Time{}, 0, Env{})}
	for db := range w.txn.views {
		w.txn.views[db].base = nil // it would keep the keys after FLUSHALL
	}
	return w
}

// LockEvents returns the events of the last write set.
func (s *Store) LockEvents() []LockEvent {
	if s.witness == nil {
		return nil
	}
	return s.witness.events
}

// watching returns the witness for the next write set, which has that many bytes, or nil.
func (s *Store) watching(bytes int) *witness {
	w := s.witness
	if w == nil {
		return nil
	}
	clear(w.events)
	w.events, w.by, w.known, w.taker = w.events[:0], verdict{}, false, 0
	if cap(w.events) > keepPending {
		w.events = nil
	}
	for i := range w.places {
		w.places[i] = lockPlace{held: emptied(w.places[i].held)} // the names share memory with the last write set
	}
	w.left, w.over = witnessSteps+bytes, false
	if !w.wanted {
		return nil
	}
	return w
}

// step takes steps, and reports whether the witness goes on.
func (w *witness) step(n int) bool {
	if w.left -= n; w.left < 0 {
		w.stop()
	}
	return !w.over
}

// stop leaves out what the rest of the write set does to locks.
func (w *witness) stop() {
	if w.over {
		return
	}
	w.over, w.used, w.known = true, 0, false
	w.events = append(w.events, LockEvent{How: LockGap, Reason: tooManyLockEvents})
}

// look notes who holds the locks that the next write concerns. d stands behind the operation.
func (w *witness) look(o op, d decoder, db int) {
	if w == nil || w.over {
		return
	}
	w.used = 0
	switch o {
	case opOrigin, opScriptLoad, opScriptFlush, opConfig, opUserSet, opUserDelete, opTokens, opTell, opForm:
	case opTaker:
		w.taker = uint64(d.int())
	case opPublish:
		w.by = verdict{}
		if kind := PublishKind(d.int()); kind == Audit {
			d.Str()
			w.judge(d.Str())
		}
	case opFlush:
		w.known = false
		w.tell(LockEvent{How: LockFlushed, DB: db})
	case opSwap:
		w.known = false
		a, b := d.db(), d.db()
		w.tell(LockEvent{How: LockSwapped, DB: a, Holds: int64(b)})
	case opMove, opCopy:
		to, key := d.db(), d.Str()
		w.watch(db, key, "")
		w.watch(to, d.Str(), "")
	case opHashSet, opHashDelete, opScoreSet, opScoreSetLarge, opScoreRemove, opHold, opDrop, opLapse:
		key := d.Str()
		w.watch(db, key, d.Str())
	case opDelete, opExpire:
		w.watch(db, d.Str(), "")
		w.gone(o)
	case opDeadline:
		w.watch(db, d.Str(), "")
		w.ends(d.deadline())
	default:
		if o.known() && strings.HasPrefix(shapes[o], "k") || o == opMark {
			w.watch(db, d.Str(), "")
		}
	}
}

// gone notes that a write will delete the key that it concerns.
func (w *witness) gone(o op) {
	p := &w.places[0]
	for _, h := range p.held {
		h.holds = 0
		w.note(p, w.ending(p, o, h, true), p.kind, p.limit, h)
	}
	if p.more {
		w.stop()
	}
	p.held = emptied(p.held)
	w.used, w.known = 0, false
}

// ends notes that a write will set the deadline of the key that it concerns.
func (w *witness) ends(deadline int64) {
	p := &w.places[0]
	for i := range p.held {
		h := &p.held[i]
		if before := h.until; p.typed || !w.later(before, deadline) {
			continue // the deadlines of a lock of type lock are those of its holders
		}
		h.until = deadline
		w.note(p, LockRenewed, p.kind, p.limit, *h)
	}
	w.used, w.known = 0, p.kind != "" && !w.over
}

// later reports whether a deadline is later than the one before. 0 is none: a lease that gets its first deadline, or loses it, counts, too.
func (w *witness) later(before, now int64) bool {
	return now != before && (now == 0 || before == 0 || now > before)
}

// judge reads who ends holds of a lock, and why.
func (w *witness) judge(text string) {
	var v verdict
	if json.Unmarshal([]byte(text), &v) != nil || v.DB < 0 || v.DB >= Databases {
		return
	}
	how := LockRevoked
	if v.How == LockForced.String() {
		if how = LockForced; owned(v.Kind) {
			w.by = v
			return
		}
	}
	w.tell(LockEvent{How: how, DB: v.DB, Key: string(v.Key), Kind: v.Kind, User: v.User, Reason: v.Reason, Holds: int64(v.Owners)})
}

// watch notes who holds the lock at a key, or whether and how one owner holds it.
func (w *witness) watch(db int, key, owner string) {
	p := &w.places[w.used]
	w.used++
	if w.known && w.used == 1 && p.all && len(p.held) <= fewHolders && p.db == db && p.key == key {
		return // from the write before, which has concerned the same key
	}
	w.known = false
	p.db, p.key, p.owner, p.short = db, key, owner, ""
	e := w.s.dbs[db].get(key)
	p.all = owner == "" || e == nil || e.typ == TypeString || e.typ == TypeHash && e.Fields().Len() <= fewHolders || e.typ == TypeSortedSet && e.Scores().Len() <= fewHolders
	p.held = w.holders(p, emptied(p.held))
}

// fewHolders is up to how many elements of a key the witness looks at all of them, even if a write concerns only one.
const fewHolders = 4

// holders finds the kind of a lock, and returns its owners as far as a place concerns them.
func (w *witness) holders(p *lockPlace, held []lockHolder) []lockHolder {
	p.kind, p.limit, p.typed, p.more = "", 0, false, false
	ks := w.s.dbs[p.db]
	e := ks.get(p.key)
	if e == nil || e.typ == TypeString && e.form&formLock == 0 {
		return held
	}
	if p.kind = w.kindOf(p.db, ks, e); p.kind == "" || !w.step(1) {
		p.kind = ""
		return held
	}
	add := func(h lockHolder) bool {
		if p.more = len(held) == mostWitnessed; p.more || !w.step(1) {
			return false
		}
		held = append(held, h)
		return true
	}
	switch {
	case e.typ == TypeLock:
		p.typed = true
		l := e.Lock()
		p.limit, _ = l.mode.limit()
		p.limit = max(p.limit, 0)
		w.each(l, p, func(h *holder) bool {
			return add(lockHolder{h.owner, h.holds, h.permits, max(h.token, w.s.tokens.swaps[p.db]), h.deadline, h.leased})
		})
	case p.all:
		w.members(p.db, e, add)
	default:
		w.member(p.db, e, p.owner, add)
	}
	return held
}

// kindOf returns the kind of a lock that has owners, or "".
func (w *witness) kindOf(db int, ks *keyspace, e *Entry) string {
	w.txn.views[db].base, w.txn.looked = ks, 0
	kind := w.txn.lockKind(db, e)
	w.txn.views[db].base = nil
	w.left -= w.txn.looked
	if kind == kindSemaphore && e.form&formSemaphore == 0 {
		return kindPlain // a lock whose value is a number, whatever another key says: no event would tell when that key comes or goes
	}
	if !owned(kind) {
		return ""
	}
	return kind
}

// owned reports whether the locks of a kind have owners that the key itself names. The numbers of semaphores and latches have none, and those of
// Redisson's lock of several values hold parts of it.
func owned(kind string) bool {
	return kind != "" && kind != kindSemaphore && kind != kindLatch && kind != kindGroup
}

// holderOf returns what all owners of a lock in a string, a hash or a sorted set have.
func (w *witness) holderOf(db int, e *Entry) lockHolder {
	return lockHolder{holds: 1, permits: 1, token: w.s.tokens.of(db, e), until: e.deadline}
}

// members calls fn for the owners that a string, a hash or a sorted set names.
func (w *witness) members(db int, e *Entry, fn func(h lockHolder) bool) {
	of := w.holderOf(db, e)
	switch e.typ {
	case TypeString:
		of.owner = e.str
		fn(of)
	case TypeHash:
		e.Fields().Each(func(f Field) bool { return !of.named(f.Name, f.Value) || fn(of) })
	case TypeSortedSet:
		e.Scores().Each(0, func(m Scored) bool {
			of.owner = m.Member
			return m.Member == symfonyWrite || fn(of)
		})
	}
}

// member is members for one element of a hash or a sorted set, which may be large.
func (w *witness) member(db int, e *Entry, name string, fn func(h lockHolder) bool) {
	of := w.holderOf(db, e)
	switch e.typ {
	case TypeHash:
		if value, ok := e.Fields().Get(name); ok && of.named(name, value) {
			fn(of)
		}
	case TypeSortedSet:
		if _, ok := e.Scores().Score(name); ok && name != symfonyWrite {
			of.owner = name
			fn(of)
		}
	}
}

// named sets the owner from a field of a hash. It returns false for the field mode, and for an owner that has just lost the lock.
func (h *lockHolder) named(field, value string) bool {
	n, ok := redistext.ParseInt(stringBytes(value))
	h.owner, h.holds = field, n
	return ok && n != 0
}

// each calls fn for the holders of a lock of type lock, those whose leases are over included: only a write ends a hold.
func (w *witness) each(l *Lock, p *lockPlace, fn func(h *holder) bool) {
	holds := func(h *holder) bool { return h == nil || h.holds == 0 || fn(h) }
	if !p.all {
		holds(l.get(p.owner))
		return
	}
	l.byOwner.Scan(holds)
}

// seen compares who holds the locks now, after the write.
func (w *witness) seen(o op) {
	if w == nil || w.over {
		return
	}
	w.known = false
	for i := range w.places[:w.used] {
		p := &w.places[i]
		if p.kind == "" && !o.makesLock() {
			continue
		}
		before := *p
		p.held = w.holders(p, w.spare[:0])
		w.compare(&before, p, o, i == 0)
		if (p.kind == "") != (before.kind == "") && !(before.all && p.all) {
			w.others(&before, p)
		}
		w.spare = emptied(before.held)
		w.known = i == 0 && w.used == 1 && p.kind != "" && !w.over
	}
	w.used = 0
}

// others notes the other owners of a hash, or sorted set, that one element has made a lock, or no lock.
func (w *witness) others(before, after *lockPlace) {
	e := w.s.dbs[after.db].get(after.key)
	if e == nil {
		return
	}
	how, kind, n := LockGranted, after.kind, 0
	if kind == "" {
		how, kind = LockReplaced, before.kind
	}
	w.members(after.db, e, func(h lockHolder) bool {
		noted := func(n lockHolder) bool { return n.same(h) }
		if h.owner != before.owner && !slices.ContainsFunc(before.held, noted) && !slices.ContainsFunc(after.held, noted) {
			if how == LockReplaced {
				h.holds = 0
			}
			w.note(after, how, kind, 0, h)
		}
		if n++; n > mostWitnessed {
			w.stop()
		}
		return w.step(1)
	})
}

// emptied returns the memory of a list for the next one, unless the list was long.
func emptied(list []lockHolder) []lockHolder {
	if len(list) > 16 {
		return nil
	}
	clear(list)
	return list[:0]
}

// makesLock reports whether a write can make a key a lock that was none.
func (o op) makesLock() bool {
	switch o {
	case opSet, opKeep, opPatch, opDrop, opLapse:
		return false
	}
	return true
}

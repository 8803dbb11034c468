package store

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"lockstep/store/redistext"
)

// What happens to locks, told from the applied writes: each node finds the same events in the same order, and the log holds nothing more
// for them.

// LockHow says what has happened to a lock.
type LockHow uint8

const (
	// LockGranted: an owner has got the lock, or holds it once more.
	LockGranted LockHow = iota + 1
	// LockRenewed: the lease of an owner ends later.
	LockRenewed
	// LockReleased: an owner holds the lock less often, or no longer.
	LockReleased
	// LockExpired: the lease of an owner is over.
	LockExpired
	// LockForced: LOCK.FORCE has ended the lock for an owner.
	LockForced
	// LockRevoked: LOCK.REVOKE has asked the owners for the lock.
	LockRevoked
	// LockReplaced: another command than one for locks has overwritten the key.
	LockReplaced
	// LockMoved: the key has got another name.
	LockMoved
	// LockFlushed: all keys of a database were deleted.
	LockFlushed
	// LockSwapped: two databases have exchanged their keys. LockEvent.Holds is the number of the other one.
	LockSwapped
	// LockGap: events are missing.
	LockGap
)

var lockHows = [...]string{LockGranted: "granted", LockRenewed: "renewed", LockReleased: "released", LockExpired: "expired", LockForced: "forced",
	LockRevoked: "revoked", LockReplaced: "replaced", LockMoved: "moved", LockFlushed: "flushed", LockSwapped: "swapped", LockGap: "gap"}

func (h LockHow) String() string { return lockHows[h] }

// LockHowOf returns what a word says; ok is false for an unknown word.
func LockHowOf(word string) (h LockHow, ok bool) {
	i := slices.Index(lockHows[:], strings.ToLower(word))
	return LockHow(max(i, 0)), i > 0
}

// Ends reports whether an owner may no longer hold the lock.
func (h LockHow) Ends() bool {
	return h == LockReleased || h == LockExpired || h == LockForced || h == LockReplaced || h == LockMoved
}

// LockEvent is an event of a lock. Names are valid only until the next write set is applied.
type LockEvent struct {
	How          LockHow
	DB           int
	Key          string
	Kind         string
	Owner        string
	Token        uint64
	Holds        int64 // how often the owner holds the lock now
	Permits      int64
	Limit        int64  // of a lock with permits: how many there are
	Deadline     int64  // ms on the lease clock; 0: none
	User, Reason string // who has forced or revoked the lock, and why
}

// LockSink receives the events of locks.
type LockSink interface {
	// Wanted reports whether the events of the next write set are wanted.
	Wanted() bool
	// Locked receives the events of the write set seq, perhaps none. The write set was evaluated at the time at. Locked must not block, and
	// must copy what it keeps.
	Locked(seq uint64, at Time, events []LockEvent)
	// Lost reports that a snapshot with the state after the write set seq has replaced the state: the events until then are unknown.
	Lost(seq uint64, at Time)
}

// Audit is the kind of a message that says who ends a lock, and why. It is for the history of locks, and not for clients.
const Audit PublishKind = 17

// verdict is the text of such a message.
type verdict struct {
	DB     int    `json:"db"`
	Key    []byte `json:"key"` // shortened
	Kind   string `json:"kind"`
	How    string `json:"how"`
	User   string `json:"user"`
	Reason string `json:"reason"`
	Owners int    `json:"owners"`
}

// judged writes into the log who ends the lock, and why, before the lock is ended.
func (c *Ctx) judged(how LockHow, kind string, reason []byte, owners int) {
	c.message(Audit, "", message(verdict{c.DB, []byte(ShortName(string(c.Args[1]))), kind, how.String(), valid([]byte(c.Caller)), ShortName(valid(reason)), owners}))
}

// mostWitnessed is how many owners of one lock one write can concern. Events of others are left out.
const mostWitnessed = 1000

// witness finds the events of locks.
type witness struct {
	s      *Store
	wanted bool
	txn    *Txn // reads the committed state
	events []LockEvent
	places [2]lockPlace // the keys that the present write concerns
	used   int          // how many of them it concerns
	spare  []lockHolder
	known  bool    // places[0] is what the last write has left
	by     verdict // from LOCK.FORCE: who ends the next by.Owners holds of the lock
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
}

// Witness says whether ApplyVersion finds the events of locks from now on.
func (s *Store) Witness(wanted bool) {
	if s.witness == nil && wanted {
		s.witness = &witness{s: s, txn: s.Begin(Time{}, 0, Env{})}
	}
	if s.witness != nil {
		s.witness.wanted = wanted
	}
}

// LockEvents returns the events of the last write set.
func (s *Store) LockEvents() []LockEvent {
	if s.witness == nil {
		return nil
	}
	return s.witness.events
}

// watching returns the witness for the next write set, or nil.
func (s *Store) watching() *witness {
	w := s.witness
	if w == nil {
		return nil
	}
	clear(w.events)
	w.events, w.by, w.known = w.events[:0], verdict{}, false
	if cap(w.events) > keepPending {
		w.events = nil
	}
	if !w.wanted {
		return nil
	}
	return w
}

// look notes who holds the locks that the next write concerns. d stands behind the operation.
func (w *witness) look(o op, d decoder, db int) {
	if w == nil {
		return
	}
	w.used = 0
	switch o {
	case opOrigin, opScriptLoad, opScriptFlush, opConfig, opUserSet, opUserDelete, opTokens, opTell, opForm:
	case opPublish:
		if kind := PublishKind(d.int()); kind == Audit {
			d.Str()
			w.judge(d.Str())
		}
	case opFlush:
		w.known = false
		w.events = append(w.events, LockEvent{How: LockFlushed, DB: db})
	case opSwap:
		w.known = false
		a, b := d.db(), d.db()
		w.events = append(w.events, LockEvent{How: LockSwapped, DB: a, Holds: int64(b)})
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
	w.used, w.known = 0, p.kind != ""
}

// later reports whether a deadline is later than the one before; 0 is never.
func (w *witness) later(before, now int64) bool {
	return now > before && before != 0 || now == 0 && before != 0 || before == 0 && now != 0
}

// judge reads who ends the next holds of a lock, and why.
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
	w.events = append(w.events, LockEvent{How: how, DB: v.DB, Key: string(v.Key), Kind: v.Kind, User: v.User, Reason: v.Reason, Holds: int64(v.Owners)})
}

// watch notes who holds the lock at a key, or whether and how one owner holds it.
func (w *witness) watch(db int, key, owner string) {
	p := &w.places[w.used]
	w.used++
	if w.known && w.used == 1 && p.all && p.db == db && p.key == key {
		return // from the write before, which has concerned the same key
	}
	w.known = false
	p.db, p.key, p.owner = db, key, owner
	e := w.s.dbs[db].get(key)
	p.all = owner == "" || e == nil || e.typ == TypeString || e.typ == TypeHash && e.Fields().Len() <= fewHolders || e.typ == TypeSortedSet && e.Scores().Len() <= fewHolders
	p.held = w.holders(p, emptied(p.held))
}

// fewHolders is up to how many elements of a key the witness looks at all of them, even if a write concerns only one.
const fewHolders = 4

// holders finds the kind of a lock, and returns its owners as far as a place concerns them.
func (w *witness) holders(p *lockPlace, held []lockHolder) []lockHolder {
	p.kind, p.limit, p.typed = "", 0, false
	ks := w.s.dbs[p.db]
	e := ks.get(p.key)
	if e == nil || e.typ == TypeString && e.form&formLock == 0 {
		return held
	}
	w.txn.views[p.db].base = ks
	if p.kind = w.txn.lockKind(p.db, e); !owned(p.kind) {
		p.kind = ""
		return held
	}
	switch e.typ {
	case TypeString:
		return append(held, lockHolder{owner: e.str, holds: 1, permits: 1, token: w.s.tokens.of(p.db, e), until: e.deadline})
	case TypeLock:
		p.typed = true
		l := e.Lock()
		p.limit, _ = l.mode.limit()
		p.limit = max(p.limit, 0)
		w.each(l, p, func(h *holder) bool {
			held = append(held, lockHolder{h.owner, h.holds, h.permits, max(h.token, w.s.tokens.swaps[p.db]), h.deadline, h.leased})
			return len(held) < mostWitnessed
		})
		return held
	}
	w.members(p.db, e, func(h lockHolder) bool {
		if p.all || p.owner == h.owner {
			held = append(held, h)
		}
		return len(held) < mostWitnessed && (p.all || len(held) == 0)
	})
	return held
}

// owned reports whether the locks of a kind have owners that the key itself names. The numbers of semaphores and latches have none, and those of
// Redisson's lock of several values hold parts of it.
func owned(kind string) bool {
	return kind != "" && kind != kindSemaphore && kind != kindLatch && kind != kindGroup
}

// members calls fn for the owners that a hash or a sorted set names.
func (w *witness) members(db int, e *Entry, fn func(h lockHolder) bool) {
	of := lockHolder{holds: 1, permits: 1, token: w.s.tokens.of(db, e), until: e.deadline}
	switch e.typ {
	case TypeHash:
		e.Fields().Each(func(f Field) bool {
			n, ok := redistext.ParseInt(stringBytes(f.Value))
			if !ok || n == 0 {
				return true // the field mode, or an owner that has just lost the lock
			}
			of.owner, of.holds = f.Name, n
			return fn(of)
		})
	case TypeSortedSet:
		e.Scores().Each(0, func(m Scored) bool {
			of.owner = m.Member
			return m.Member == symfonyWrite || fn(of)
		})
	}
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
	if w == nil {
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
		w.known = i == 0 && w.used == 1 && p.kind != ""
	}
	w.used = 0
}

// others notes the other owners of a hash, or sorted set, that one element has made a lock, or no lock.
func (w *witness) others(before, after *lockPlace) {
	e := w.txn.peek(after.db, after.key)
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
		n++
		return n < mostWitnessed
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

// compare notes what a write has changed for the owners of a lock. source says that the write reads the key before it writes another one.
func (w *witness) compare(before, after *lockPlace, o op, source bool) {
	for _, h := range before.held {
		if !slices.ContainsFunc(after.held, h.same) {
			h.holds = 0
			w.note(before, w.ending(before, o, h, source), before.kind, before.limit, h)
		}
	}
	for _, n := range after.held {
		at := slices.IndexFunc(before.held, n.same)
		switch {
		case at < 0, n.holds > before.held[at].holds, after.typed && before.kind != after.kind: // the owner now shares the lock, or no longer
			w.note(after, LockGranted, after.kind, after.limit, n)
		case n.holds < before.held[at].holds:
			w.note(after, LockReleased, after.kind, after.limit, n)
		case w.later(before.held[at].until, n.until):
			w.note(after, LockRenewed, after.kind, after.limit, n)
		}
	}
}

// same reports whether two holders are one owner that has not lost the lock in between.
func (h lockHolder) same(other lockHolder) bool {
	return h.owner == other.owner && h.token == other.token
}

// ending says how an owner has lost a lock by a write.
func (w *witness) ending(p *lockPlace, o op, h lockHolder, source bool) LockHow {
	switch {
	case w.by.Owners > 0 && w.by.DB == p.db && string(w.by.Key) == ShortName(p.key):
		return LockForced
	case o == opExpire || o == opLapse || o == opHold && w.lapsed(p, h):
		return LockExpired
	case (o == opMove || o == opCopy) && source:
		return LockMoved
	case o == opDelete || o == opHashDelete || o == opHashSet || o == opDrop || o == opHold:
		return LockReleased
	}
	return LockReplaced
}

// lapsed reports whether an owner that has lost a lock by opHold keeps its place because its lease is over, and not because it was cut off.
func (w *witness) lapsed(p *lockPlace, h lockHolder) bool {
	now := w.s.dbs[p.db].get(p.key).holder(h.owner)
	return now != nil && now.deadline == h.until
}

// recent is how many events note looks at for the grant to which a deadline belongs: most clients set it right after they have got a lock.
const recent = 4

func (w *witness) note(p *lockPlace, how LockHow, kind string, limit int64, h lockHolder) {
	e := LockEvent{How: how, DB: p.db, Key: ShortName(p.key), Kind: kind, Owner: ShortName(h.owner), Token: h.token, Holds: h.holds, Permits: h.permits,
		Limit: limit, Deadline: h.until}
	switch how {
	case LockForced:
		w.by.Owners--
		e.User, e.Reason = w.by.User, w.by.Reason
	case LockRenewed:
		for i := len(w.events) - 1; i >= max(len(w.events)-recent, 0); i-- {
			if g := &w.events[i]; g.How == LockGranted && g.Token == e.Token && g.DB == e.DB && g.Key == e.Key && g.Owner == e.Owner {
				g.Deadline = e.Deadline
				return
			}
		}
	}
	w.events = append(w.events, e)
}

// ShortName replaces the end of a long name by a part of its SHA-256, as events do, so that they take little memory.
func ShortName(name string) string {
	if len(name) <= MaxLockName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(name[:MaxLockName-40], "") + "…" + hex.EncodeToString(sum[:16])
}

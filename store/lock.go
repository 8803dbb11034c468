package store

import (
	"strings"
	"unsafe"
)

// Lock is the value of a key of type lock: a native lock whose holders each have a lease of their own. A lock with one holder at a time and
// nothing else to remember has the form of other clients' locks instead (cmd_lock_acquire.go).
type Lock struct {
	mode    lockMode
	asked   uint64 // holders with a token up to this one have been asked for the lock (LOCK.REVOKE)
	used    int64  // the permits of all holders
	byOwner *tree[*holder]
	byNext  *tree[*holder]
	bytes   int64 // estimated memory of the holders
}

// lockMode says who may hold a lock at once: one owner, any number, or owners with so many permits together.
type lockMode int64

const (
	lockExclusive lockMode = iota
	lockShared
	lockLimit // lockLimit + n: n permits
)

// limitOf returns the mode of a lock with n permits.
func limitOf(n int64) lockMode { return lockLimit + lockMode(n) }

// limit returns the number of permits of a lock; ok is false if it has no such limit.
func (m lockMode) limit() (n int64, ok bool) { return int64(m - lockLimit), m > lockLimit }

// valid reports whether a mode from the log or a snapshot exists.
func (m lockMode) valid() bool {
	return m >= lockExclusive && m != lockLimit && m <= lockLimit+maxPermits
}

// maxPermits is the largest number of permits of a lock: a double holds each number up to it.
const maxPermits = 1 << 53

// holder is an owner of a lock, with its lease. It does not change, because copies of a Lock share it.
//
// A holder that has not released the lock keeps its place for the time delay after its lease. It has lapsed then.
type holder struct {
	owner    string
	permits  int64
	holds    int64 // how often it holds the lock; 0: it has lapsed
	deadline int64
	told     int64 // the time until which its owner holds the lock by the last reply: the deadline, or an earlier time if MAXHOLD cuts the lease
	delay    int64
	most     int64  // the latest deadline that its owner may ask for (MAXHOLD); 0: no limit
	token    uint64 // its own, which also tells it from a former holder of the same name
	leased   uint64 // number of the write set that set the deadline
	changed  uint64 // number of the last write set that changed the holder
}

// end returns the time at which the holder's place becomes free.
func (h *holder) end() int64 { return addSaturating(h.deadline, h.delay) }

// next returns the time at which the holder lapses, or loses its place.
func (h *holder) next() int64 {
	if h.holds > 0 {
		return h.deadline
	}
	return h.end()
}

func holderByOwner(a, b *holder) bool { return a.owner < b.owner }

func holderByNext(a, b *holder) bool {
	if x, y := a.next(), b.next(); x != y {
		return x < y
	}
	return a.owner < b.owner
}

// holderSize is the memory of a holder without its name.
const holderSize = int64(unsafe.Sizeof(holder{})) + 2*int64(unsafe.Sizeof(&holder{}))*3/2

func (h *holder) size() int64 { return holderSize + allocated(len(h.owner)) }

func newLock() *Lock {
	return &Lock{byOwner: newTree(holderByOwner), byNext: newTree(holderByNext)}
}

// Lock returns the value of a key of type lock, or nil for another type.
func (e *Entry) Lock() *Lock { l, _ := e.collection().(*Lock); return l }

// Len returns the number of holders.
func (l *Lock) Len() int { return l.byOwner.Len() }

func (l *Lock) clone() collection {
	c := *l
	c.byOwner, c.byNext = l.byOwner.Copy(), l.byNext.Copy()
	return &c
}

func (l *Lock) size() int64 { return 2*treeSize + l.bytes }

// get returns the holder with a name, or nil.
func (l *Lock) get(owner string) *holder {
	h, _ := l.byOwner.Get(&holder{owner: owner})
	return h
}

// first returns the holder that lapses or loses its place first, and last the last one. The lock must have holders.
func (l *Lock) first() *holder { h, _ := l.byNext.Min(); return h }
func (l *Lock) last() *holder  { h, _ := l.byNext.Max(); return h }

// set adds a holder, or replaces the one of the same name.
func (l *Lock) set(h holder) {
	if old := l.get(h.owner); old != nil {
		h.owner = old.owner
		l.remove(old)
	} else {
		h.owner = strings.Clone(h.owner)
	}
	l.byOwner.Set(&h)
	l.byNext.Set(&h)
	l.used += h.permits
	l.bytes += h.size()
}

// remove removes a holder of the lock.
func (l *Lock) remove(h *holder) {
	l.byOwner.Delete(h)
	l.byNext.Delete(h)
	l.used -= h.permits
	l.bytes -= h.size()
}

// The two primitive writes of a lock. They return false and do nothing if the write is impossible, as it may be in a corrupt log.

// setHolder makes an owner a holder of a lock, or changes what it holds. leased says that this write set has set the deadline. The fields
// token, leased and changed of h do not matter: a new holder gets a new token. An exclusive lock of another form becomes
// a lock that its owner shares, and keeps its token.
func setHolder(t target, db int, key string, mode lockMode, h holder, leased bool) bool {
	e := t.mutable(db, key)
	fresh := e == nil
	if fresh {
		e = Entry{key: ownKey(key), typ: TypeLock}.holding(newLock())
		t.grant(e, true)
	}
	before, other := e.size(), e.typ != TypeLock
	if other {
		becomeLock(e)
	}
	l := e.Lock()
	old := l.get(h.owner)
	switch {
	case old != nil:
		h.token = old.token
	case fresh || other:
		h.token = e.token
	default:
		var next Entry
		t.grant(&next, true)
		h.token = next.token
	}
	if old != nil && !leased {
		h.leased = old.leased
	}
	if fresh {
		e.deadline = h.next()
	}
	t.stamp(e, leased)
	if leased {
		h.leased = e.leased
	}
	h.changed = e.changed
	l.mode = mode
	l.set(h)
	if fresh {
		t.put(db, e)
		return true
	}
	t.grow(db, e.size()-before)
	t.setDeadline(db, key, l.first().next())
	return true
}

// becomeLock makes a lock of another form a lock without holders.
func becomeLock(e *Entry) {
	if e.paired() {
		e.key = ownKey(e.key)
	}
	l := newLock()
	if e.form&formTold != 0 {
		l.asked = e.token
	}
	e.typ, e.str, e.form = TypeLock, "", formByValue
	if e.elems == nil {
		e.elems = &elements{}
	}
	e.elems.collection = l
}

// dropHolder removes a holder, and the key with its last holder.
func dropHolder(t target, db int, key, owner string) bool {
	e := t.mutable(db, key)
	if e == nil || e.typ != TypeLock {
		return e == nil
	}
	l := e.Lock()
	h := l.get(owner)
	if h == nil {
		return true
	}
	before := e.size()
	l.remove(h)
	t.stamp(e, false)
	t.grow(db, e.size()-before)
	if l.Len() == 0 {
		t.remove(db, key)
		return true
	}
	t.setDeadline(db, key, l.first().next())
	return true
}

// tellHolders marks that the holders of a lock have been asked to release it; token is the last one that was given.
func tellHolders(t target, db int, key string, token uint64) bool {
	e := t.mutable(db, key)
	switch {
	case e == nil:
	case e.typ == TypeLock:
		e.Lock().asked = token
	case e.typ == TypeString || e.typ == TypeHash:
		e.form |= formTold
	default:
		return false
	}
	return true
}

// applyLock decodes a write to a lock completely before it changes anything.
func applyLock(t target, o op, d *decoder, db int) {
	key := d.Str()
	switch o {
	case opHold:
		mode, h, leased := d.holder()
		if !d.Bad {
			h.owner = string([]byte(h.owner))
			d.Bad = !setHolder(t, db, key, mode, h, leased)
		}
	case opDrop, opLapse:
		if owner := d.Str(); !d.Bad {
			d.Bad = !dropHolder(t, db, key, owner)
		}
	case opTell:
		if token := d.Uvarint(); !d.Bad {
			d.Bad = !tellHolders(t, db, key, token)
		}
	}
}

// holder decodes the arguments of opHold behind the key.
func (d *decoder) holder() (mode lockMode, h holder, leased bool) {
	h.owner = d.Str()
	mode = lockMode(d.int())
	h.permits, h.holds, h.deadline, h.told, h.delay, h.most = d.int(), d.int(), d.int(), d.int(), d.int(), d.int()
	n := d.int()
	d.Bad = d.Bad || !mode.valid() || n > 1 || !h.valid()
	return mode, h, n == 1
}

// valid reports whether the numbers of a holder from the log or a snapshot are those of a holder.
func (h *holder) valid() bool {
	return h.permits >= 1 && h.permits <= maxPermits && h.holds >= 0 && h.holds <= maxHolds && h.deadline > 0 && h.told > 0 && h.delay >= 0 && h.most >= 0
}

func (w *WriteSet) hold(key string, mode lockMode, h *holder, leased bool) {
	w.str(key)
	w.str(h.owner)
	for _, n := range [...]int64{int64(mode), h.permits, h.holds, h.deadline, h.told, h.delay, h.most, Flag(leased).Int} {
		w.int(n)
	}
}

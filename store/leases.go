package store

import (
	"cmp"
	"maps"
	"slices"
)

// LeasedKey is a key that got a deadline from a write set, or a holder of a lock.
type LeasedKey struct {
	DB       int
	Key      string
	Owner    string // the holder of a lock whose holders have leases of their own, else ""
	Deadline int64
}

// Mark is a position in a write set: an index in its bytes, and the database of the writes that follow.
type Mark struct{ at, db int }

// Compare orders positions.
func (m Mark) Compare(n Mark) int { return cmp.Compare(m.at, n.at) }

// Mark returns the position of the next write.
func (w *WriteSet) Mark() Mark { return Mark{len(w.buf), w.db} }

// deadlineVisitor has the functions that visitDeadlines calls for the writes that change deadlines.
type deadlineVisitor struct {
	set  func(at int, k LeasedKey) // at is where the write begins; the deadline is 0 if the key gets none or is deleted, or the holder goes
	move func(db int, key string, to int, name string, copies bool)
	swap func(a, b int)
	wipe func(db int)
}

// visitDeadlines tells v the writes that affect deadlines, except expiries and removals of last elements. It ends at an unknown operation.
func visitDeadlines(writes []byte, from, to Mark, v deadlineVisitor) {
	db := from.db
	d := newDecoder(writes[from.at:to.at])
	for len(d.B) > 0 && !d.Bad {
		at := to.at - len(d.B)
		switch o := d.op(); o {
		case opDB:
			db = d.db()
		case opSet, opLock:
			key := d.Str()
			d.Str()
			v.set(at, LeasedKey{DB: db, Key: key, Deadline: d.int()})
		case opDeadline:
			key := d.Str()
			v.set(at, LeasedKey{DB: db, Key: key, Deadline: d.int()})
		case opDelete:
			v.set(at, LeasedKey{DB: db, Key: d.Str()})
		case opHold:
			key := d.Str()
			if _, h, leased := d.holder(); leased {
				v.set(at, LeasedKey{db, key, h.owner, h.deadline})
			}
		case opDrop, opLapse:
			v.set(at, LeasedKey{DB: db, Key: d.Str(), Owner: d.Str()})
		case opFlush:
			v.wipe(db)
		case opMove, opCopy:
			to, key, name := d.db(), d.Str(), d.Str()
			v.move(db, key, to, name, o == opCopy)
		case opSwap:
			a, b := d.db(), d.db()
			v.swap(a, b)
		default:
			if !o.known() {
				return
			}
			d.skip(shapes[o])
		}
	}
}

// leases are the deadlines of the keys of each database, and of the holders of locks.
type leases [Databases]struct {
	keys    map[string]int64
	holders map[string]map[string]int64 // by key and owner
}

// at returns the deadline that put has recorded, or 0.
func (l *leases) at(k LeasedKey) int64 {
	if k.Owner != "" {
		return l[k.DB].holders[k.Key][k.Owner]
	}
	return l[k.DB].keys[k.Key]
}

// put records the deadline of a key, which has no holders then, or that of a holder. If the deadline is 0, put drops the record.
func (l *leases) put(k LeasedKey) {
	of := &l[k.DB]
	switch {
	case k.Owner != "":
		l.putHolder(k)
		return
	case k.Deadline == 0:
		delete(of.keys, k.Key)
	case of.keys == nil:
		of.keys = map[string]int64{k.Key: k.Deadline}
	default:
		of.keys[k.Key] = k.Deadline
	}
	delete(of.holders, k.Key)
}

func (l *leases) putHolder(k LeasedKey) {
	of := &l[k.DB]
	delete(of.keys, k.Key)
	switch {
	case k.Deadline == 0:
		delete(of.holders[k.Key], k.Owner)
		return
	case of.holders == nil:
		of.holders = map[string]map[string]int64{}
	}
	if of.holders[k.Key] == nil {
		of.holders[k.Key] = map[string]int64{}
	}
	of.holders[k.Key][k.Owner] = k.Deadline
}

// follow records the deadlines that part of a write set sets, if counts agrees; at is the write's beginning. Records follow moved and
// copied keys; locks with holders are neither moved nor copied.
func (l *leases) follow(writes []byte, from, to Mark, counts func(at int, k LeasedKey) bool) {
	visitDeadlines(writes, from, to, deadlineVisitor{
		set: func(at int, k LeasedKey) {
			if !counts(at, k) {
				k.Deadline = 0
			}
			l.put(k)
		},
		move: func(db int, key string, to int, name string, copies bool) {
			l.put(LeasedKey{DB: to, Key: name, Deadline: l[db].keys[key]})
			if !copies {
				l.put(LeasedKey{DB: db, Key: key})
			}
		},
		swap: func(a, b int) { l[a], l[b] = l[b], l[a] },
		wipe: func(db int) { l[db].keys, l[db].holders = nil, nil },
	})
}

// list returns the keys and holders, sorted by database and name.
func (l *leases) list() []LeasedKey {
	var list []LeasedKey
	for db, of := range l {
		for _, key := range slices.Sorted(maps.Keys(of.keys)) {
			list = append(list, LeasedKey{DB: db, Key: key, Deadline: of.keys[key]})
		}
		for _, key := range slices.Sorted(maps.Keys(of.holders)) {
			for _, owner := range slices.Sorted(maps.Keys(of.holders[key])) {
				list = append(list, LeasedKey{db, key, owner, of.holders[key][owner]})
			}
		}
	}
	return list
}

// LeasedBetween lists the keys that get a deadline between from and to and have one at end, as they are at end. A key that has lost its
// last element may be among them. The names share memory with writes.
func LeasedBetween(writes []byte, from, to, end Mark) []LeasedKey {
	var l leases
	l.follow(writes, from, end, func(at int, k LeasedKey) bool { return at < to.at || l.at(k) != 0 })
	return l.list()
}

// Span is a part of a write set.
type Span struct{ From, To Mark }

// Leased lists the keys that have a lease after a write set: a deadline set within one of the spans, which must be in order, or a deadline
// of anew. A lease follows its key to another name or database, and to a copy. To set the same deadline later does not end a lease:
// KeepString does so for version 0.1.0. The names share memory with writes.
func Leased(writes []byte, spans []Span, anew []LeasedKey) []LeasedKey {
	renewed := map[LeasedKey]bool{}
	for _, k := range anew {
		renewed[k] = true
	}
	var l leases
	l.follow(writes, Mark{}, Mark{at: len(writes)}, func(at int, k LeasedKey) bool {
		for len(spans) > 0 && at >= spans[0].To.at {
			spans = spans[1:]
		}
		kept := k.Deadline != 0 && l.at(k) == k.Deadline
		return len(spans) > 0 && at >= spans[0].From.at || renewed[k] || kept
	})
	return l.list()
}

// skip decodes the arguments of a write, whose shape is given (see shapes), and ignores them.
func (d *decoder) skip(shape string) {
	for i := range len(shape) {
		switch shape[i] {
		case 'i':
			d.int()
		case '*':
			for n := d.int(); n > 0 && !d.Bad; n-- {
				d.skip(shape[i+1:])
			}
			return
		default:
			d.Str()
		}
	}
}

// TakeLeases reports whether a command has asked for a time to live since the last call of TakeLeases. A deadline in Unix time does
// not count.
func (t *Txn) TakeLeases() bool {
	asked := t.leases
	t.leases = false
	return asked
}

// Lengthen moves a deadline that the write set seq has set by ms milliseconds, unless the deadline passed more than max(ms, 0) ago.
func (t *Txn) Lengthen(k LeasedKey, seq uint64, ms int64) {
	e := t.peek(k.DB, k.Key)
	if k.Owner != "" {
		t.lengthenHolder(k, e, seq, ms)
		return
	}
	if e == nil || e.typ == TypeLock || e.deadline == 0 || e.leased != seq || t.now.Lease-e.deadline > max(ms, 0) {
		return
	}
	t.SetDeadline(k.DB, stringBytes(k.Key), addSaturating(e.deadline, ms))
}

// Renew lets a lease count from now, because its owner receives the reply only now. The lease was requested at the lease time at; k is its
// key after the write set seq, which granted it (k.Deadline is 0 if seq also removed or replaced the key); token is the last token that had
// been given by then, or 0 if tokens were not counted. alive is false if the key is gone, or may be another one.
//
// Renew sets the deadline to until: the end of a lease from now or, if later, the present deadline with its grace. If a later command has
// removed the deadline or made it earlier, Renew does not set it.
func (t *Txn) Renew(k LeasedKey, seq, token uint64, at int64) (until int64, alive bool) {
	e := t.Lookup(k.DB, stringBytes(k.Key))
	switch {
	case e == nil || k.Deadline == 0 || t.swappedSince(k.DB, seq):
		return 0, false
	case k.Owner != "":
		return t.renewHolder(k, e, seq, token, at)
	case e.typ == TypeLock || e.token > max(seq, token):
		return 0, false
	}
	until = addSaturating(k.Deadline, max(t.now.Lease-at, 0))
	if e.deadline >= k.Deadline {
		// Set even a deadline that is late enough: if this reply is late, too, the leader lengthens only deadlines of this write set. The
		// new deadline contains the grace of the old one.
		until = max(t.graced(e), until)
		t.SetDeadline(k.DB, stringBytes(k.Key), until)
	}
	return until, true
}

package store

import "errors"

// lock writes the mode and the holders of a lock.
func (w *snapWriter) lock(l *Lock) {
	w.int(uint64(l.mode))
	w.int(l.asked)
	w.int(uint64(l.Len()))
	l.byOwner.Scan(func(h *holder) bool {
		w.str(h.owner)
		for _, n := range [...]int64{h.permits, h.holds, h.deadline, h.told, h.delay, h.most} {
			w.int(uint64(n))
		}
		w.int(h.token)
		w.int(h.leased)
		w.int(h.changed)
		return true
	})
}

// lock reads a lock, whose key has the given deadline.
func (r *snapReader) lock(deadline int64) *Lock {
	l := newLock()
	if l.mode = lockMode(r.Uvarint()); !l.mode.valid() && r.Err == nil {
		r.Err = errors.New("the mode of a lock")
	}
	l.asked = r.Uvarint()
	r.each(func() {
		h := holder{owner: r.Str()}
		for _, n := range [...]*int64{&h.permits, &h.holds, &h.deadline, &h.told, &h.delay, &h.most} {
			*n = int64(r.Uvarint())
		}
		h.token, h.leased, h.changed = r.Uvarint(), r.Uvarint(), r.Uvarint()
		switch {
		case r.Err != nil:
		case !h.valid() || l.get(h.owner) != nil:
			r.Err = errors.New("a holder of a lock")
		default:
			l.set(h)
		}
	})
	if r.Err == nil && l.Len() > 0 && l.first().next() != deadline {
		r.Err = errors.New("the deadline of a lock is not that of its first holder")
	}
	return l
}

// holders notes the numbers of a lock's holders.
func (r *snapReader) holders(s *Store, l *Lock) {
	l.byOwner.Scan(func(h *holder) bool {
		s.leased, s.newest, r.token = max(s.leased, h.leased), max(s.newest, h.leased, h.changed), max(r.token, h.token)
		return true
	})
}

// marks reads the marks of the last key.
func (r *snapReader) marks() {
	n := r.Uvarint()
	if r.Err == nil && (r.last == nil || n == 0 || n&^uint64(formMarks) != 0) {
		r.Err = errors.New("the marks of a key")
	}
	if r.Err == nil {
		r.last.form |= strForm(n)
	}
}

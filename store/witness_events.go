package store

import "slices"

// compare notes what a write has changed for the owners of a lock. source says that the write reads the key before it writes another one.
func (w *witness) compare(before, after *lockPlace, o op, source bool) {
	for i, h := range before.held {
		if w.find(after, h, i) < 0 {
			h.holds = 0
			w.note(before, w.ending(before, o, h, source), before.kind, before.limit, h)
		}
	}
	for i, n := range after.held {
		at := w.find(before, n, i)
		switch {
		case at < 0, n.holds > before.held[at].holds, after.typed && before.kind != after.kind: // the owner now shares the lock, or no longer
			w.note(after, LockGranted, after.kind, after.limit, n)
		case n.holds < before.held[at].holds:
			w.note(after, LockReleased, after.kind, after.limit, n)
		case w.later(before.held[at].until, n.until):
			w.note(after, LockRenewed, after.kind, after.limit, n)
		}
	}
	if before.more || after.more {
		w.stop()
	}
}

// find returns the place of an owner in a list, which is likely the given one, or -1.
func (w *witness) find(in *lockPlace, h lockHolder, likely int) int {
	list := in.held
	switch {
	case likely < len(list) && list[likely].same(h):
		return likely
	case !in.typed && len(list) > 0 && list[0].token != h.token:
		return -1 // all owners have the token of the key
	case len(list) > fewHolders && !w.step(len(list)/fewHolders):
		return -1
	}
	return slices.IndexFunc(list, h.same)
}

// same reports whether two holders are one owner that has not lost the lock in between.
func (h lockHolder) same(other lockHolder) bool {
	return h.token == other.token && h.owner == other.owner
}

// ending says how an owner has lost a lock by a write.
func (w *witness) ending(p *lockPlace, o op, h lockHolder, source bool) LockHow {
	switch {
	case w.by.How != "" && w.by.DB == p.db && string(w.by.Key) == w.name(p):
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
	name := w.name(p)
	if len(h.owner) > MaxLockName && !w.step(len(h.owner)/hashedAtOnce) {
		return
	}
	e := LockEvent{How: how, DB: p.db, Key: name, Kind: kind, Owner: ShortName(h.owner), Token: h.token, Holds: h.holds, Permits: h.permits,
		Limit: limit, Deadline: h.until}
	switch how {
	case LockGranted:
		e.Client = w.taker
	case LockForced:
		e.User, e.Reason = w.by.User, w.by.Reason
	case LockRenewed:
		for i := len(w.events) - 1; i >= max(len(w.events)-recent, 0); i-- {
			if g := &w.events[i]; g.How == LockGranted && g.Token == e.Token && g.DB == e.DB && g.Key == e.Key && g.Owner == e.Owner {
				g.Deadline = e.Deadline
				return
			}
		}
	}
	w.tell(e)
}

// name returns the key of a place as events show it.
func (w *witness) name(p *lockPlace) string {
	if p.short == "" {
		w.left -= len(p.key) / hashedAtOnce // the write set has these bytes
		p.short = ShortName(p.key)
	}
	return p.short
}

// tell adds an event, if the write set may have one more.
func (w *witness) tell(e LockEvent) {
	switch {
	case w.over:
	case len(w.events) == mostLockEvents || !w.step(1):
		w.stop()
	default:
		w.events = append(w.events, e)
	}
}

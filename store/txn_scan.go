package store

import (
	"slices"
	"sort"
)

// Size returns the number of keys in a database that have not expired.
func (t *Txn) Size(db int) int { return t.countKeys(db, func(int) {}) }

// Size is Txn.Size, but counts steps of work for each entry that it visits.
func (c *Ctx) Size(db int) int { return c.countKeys(db, c.work) }

func (t *Txn) countKeys(db int, work func(steps int)) int {
	v := &t.views[db]
	n := 0
	if v.base != nil {
		n = v.base.keys.size
		v.base.deadlines.before(t.now.Lease, func(e *Entry) bool {
			work(1)
			if t.foundDead(db, e) {
				n--
			}
			return true
		})
	}
	for key, e := range v.over {
		work(keySteps)
		if v.base != nil {
			if old := v.base.get(key); old != nil && !t.dead(old) {
				n--
			}
		}
		if e != nil && !t.foundDead(db, e) {
			n++
		}
	}
	return n
}

// Ascend calls fn for the keys of a database that have not expired, from a position in the
// iteration order on, until fn returns false.
func (t *Txn) Ascend(db int, from uint64, fn func(*Entry) bool) {
	t.ascend(db, from, func(int) {}, func(e *Entry) bool { return t.foundDead(db, e) || fn(e) })
}

// ascend is Ascend with expired keys. First it calls work with the steps of sorting the pending entries.
func (t *Txn) ascend(db int, from uint64, work func(steps int), visit func(*Entry) bool) {
	v := &t.views[db]
	pending := t.pending(v, work)
	pending = pending[sort.Search(len(pending), func(i int) bool { return pending[i].hash >= from }):]
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

// pending returns the pending entries of a view in iteration order, without deleted keys. It caches the list until Txn.edits
// changes.
func (t *Txn) pending(v *view, work func(steps int)) []slot {
	if v.sorted != nil && v.at == t.edits {
		return v.sorted
	}
	list := make([]slot, 0, len(v.over))
	for _, e := range v.over {
		work(1)
		if e != nil {
			list = append(list, slot{e.hash(), e})
		}
	}
	slices.SortFunc(list, func(a, b slot) int {
		work(1)
		return compareSlots(a, b)
	})
	v.sorted, v.at = list, t.edits
	return list
}

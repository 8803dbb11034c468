package store

// LeasedKey is a key that a write set has given a deadline.
type LeasedKey struct {
	DB       int
	Key      string
	Deadline int64
}

// Mark is a place in a write set.
type Mark struct{ at, db int }

// Mark returns the place that the next write will have.
func (w *WriteSet) Mark() Mark { return Mark{len(w.buf), w.db} }

// LeasedBetween lists the keys that an encoded write set gives a deadline
// between two places. Some of them may lose it again. The keys point into writes.
func LeasedBetween(writes []byte, from, to Mark) []LeasedKey {
	var list []LeasedKey
	db := from.db
	d := decoder{b: writes[from.at:to.at]}
	for len(d.b) > 0 && !d.bad {
		o := op(d.b[0])
		d.b = d.b[1:]
		switch o {
		case opDB:
			db = d.db()
		case opSet:
			key := d.str()
			d.str()
			if at := d.int(); at != 0 {
				list = append(list, LeasedKey{db, key, at})
			}
		case opDeadline:
			key := d.str()
			if at := d.int(); at != 0 {
				list = append(list, LeasedKey{db, key, at})
			}
		case opMove, opCopy:
			to, key, name := d.db(), d.str(), d.str()
			for _, k := range list {
				if k.DB == db && k.Key == key {
					list = append(list, LeasedKey{to, name, k.Deadline})
				}
			}
		case opSwap:
			a, b := d.db(), d.db()
			for i := range list {
				switch list[i].DB {
				case a:
					list[i].DB = b
				case b:
					list[i].DB = a
				}
			}
		default:
			if !o.known() {
				return list
			}
			d.skip(shapes[o])
		}
	}
	return list
}

// skip reads arguments that nobody wants to know.
func (d *decoder) skip(shape string) {
	for i := range len(shape) {
		switch shape[i] {
		case 'i':
			d.int()
		case '*':
			for n := d.int(); n > 0 && !d.bad; n-- {
				d.skip(shape[i+1:])
			}
			return
		default:
			d.str()
		}
	}
}

// TakeLeases reports whether a deadline was asked for since the last call that
// counts from now, not one in Unix time.
func (t *Txn) TakeLeases() bool {
	asked := t.leases
	t.leases = false
	return asked
}

// Lengthen moves a deadline that was set by write set seq by ms, unless it has
// passed by more than that. Less than 0 makes it earlier.
func (t *Txn) Lengthen(k LeasedKey, seq uint64, ms int64) {
	e := t.peek(k.DB, k.Key)
	if e == nil || e.deadline == 0 || e.leased != seq || t.now.Lease-e.deadline > max(ms, 0) {
		return
	}
	t.SetDeadline(k.DB, stringBytes(k.Key), addSaturating(e.deadline, ms))
}

// Renew has a lease that was asked for at a lease time begin now, because only
// now its owner hears of it, and returns until when. It reports false if the key
// that write set seq has leased is no more. What has been changed since to end
// earlier stays so.
func (t *Txn) Renew(k LeasedKey, seq uint64, at int64) (until int64, alive bool) {
	e := t.Lookup(k.DB, stringBytes(k.Key))
	if e == nil || e.created > seq {
		return 0, false
	}
	until = addSaturating(k.Deadline, max(t.now.Lease-at, 0))
	if e.deadline >= k.Deadline {
		// Even if it lasts as long already, by a clock that has been set back: if
		// this reply is late, too, this write set is what is lengthened.
		t.SetDeadline(k.DB, stringBytes(k.Key), max(e.deadline, until))
	}
	return until, true
}

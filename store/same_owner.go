package store

// minOwner is the least length, in bytes, of a value that identifies a lock's owner. Shorter ones may belong to several owners.
const minOwner = 16

// sameOwner reports whether SET … NX succeeds although the key exists, because the key has this value already (Env.SameOwnerNX): the first
// reply was lost, or the client asks every node. sameOwner renews the lease, because OK promises the time to live from now on, but never
// shortens it.
//
// The request must have a time to live if, and only if, the key has one. Scripts and SETNX get Redis's reply.
func (c *Ctx) sameOwner(old *Entry, value []byte, o stringOptions, when int64) bool {
	if len(value) < minOwner || old.typ != TypeString || old.str != bytesToString(value) || c.InScript || c.Cmd.Name != "set" {
		return false
	}
	leased := o.expire != nil
	if leased != (old.deadline != 0) || o.has(optKeepTTL) || leased && c.passed(when) {
		return false
	}
	if !c.env.SameOwnerNX {
		if c.env.FoundOwn != nil {
			c.env.FoundOwn()
		}
		return false
	}
	if leased {
		c.SetDeadline(c.DB, c.Args[1], max(c.DeadlineAt(when), c.graced(old)))
		c.eventOn(eventGeneric, "expire")
	}
	return true
}

// graced returns the time at which an entry with a deadline expires, including the grace of its
// lease.
func (t *Txn) graced(e *Entry) int64 { return t.gracedAt(e.deadline, e.leased) }

// gracedAt is graced for a deadline that the write set seq has set.
func (t *Txn) gracedAt(deadline int64, seq uint64) int64 {
	if t.env.Grace == nil {
		return deadline
	}
	return addSaturating(deadline, t.env.Grace(seq))
}

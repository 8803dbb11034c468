package store

// minOwner is the least length, in bytes, of a value that identifies the owner of a lock. The values that clients
// generate for each attempt are longer; "1", "locked" and most host names are shorter, and may be the values of several owners.
const minOwner = 16

// sameOwner reports whether SET … NX succeeds although the key exists, because the key already has this
// value (Env.SameOwnerNX). Such a request is a repetition: its first reply was lost, or its client
// treats the nodes of a cluster as independent servers. sameOwner renews the lease, because OK
// promises the whole time to live from this reply on. It never shortens a lease.
//
// The request must have a time to live if the key has one, and none if the key has none. Scripts
// and SETNX get Redis's reply.
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
func (t *Txn) graced(e *Entry) int64 {
	if t.env.Grace == nil {
		return e.deadline
	}
	return addSaturating(e.deadline, t.env.Grace(e.leased))
}

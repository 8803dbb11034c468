package store

// minOwner is how long a value is at least that names its owner: what clients draw for
// each attempt is longer, while "1", "locked" and the names of most hosts are shorter.
const minOwner = 16

// sameOwner reports whether SET … NX of the value that is there is answered OK
// (Env.SameOwnerNX): the same request again, because its reply was lost or because its
// client takes the nodes of a cluster for servers of their own. It renews the lease,
// for OK promises the whole time to live from this reply on, and makes none shorter.
//
// It is the same request only if it wants what is there: a key with a time to live, or
// one without. Scripts and SETNX get Redis's answer.
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

// graced is when an entry with a deadline ends, the lateness of its lease included.
func (c *Ctx) graced(e *Entry) int64 {
	if c.env.Grace == nil {
		return e.deadline
	}
	return addSaturating(e.deadline, c.env.Grace(e.leased))
}

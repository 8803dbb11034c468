package store

import (
	"github.com/lockstep-io/lockstep/store/redistext"
)

// expireCommands are the commands on deadlines.
var expireCommands = []Command{
	{
		Name: "expire", Arity: -3, Flags: Write | Fast, Group: "generic", Since: "1.0.0",
		Keys:    firstKey(KeyRW | KeyUpdate),
		Summary: "Sets the time to live of a key in seconds.",
		Usage:   "key seconds [NX | XX | GT | LT]", Run: cmdExpire,
	},
	{
		Name: "pexpire", Arity: -3, Flags: Write | Fast, Group: "generic", Since: "2.6.0",
		Keys:    firstKey(KeyRW | KeyUpdate),
		Summary: "Sets the time to live of a key in milliseconds.",
		Usage:   "key milliseconds [NX | XX | GT | LT]", Run: cmdPExpire,
	},
	{
		Name: "expireat", Arity: -3, Flags: Write | Fast, Group: "generic", Since: "1.2.0",
		Keys:    firstKey(KeyRW | KeyUpdate),
		Summary: "Sets the Unix time in seconds at which a key expires.",
		Usage:   "key unix-time-seconds [NX | XX | GT | LT]", Run: cmdExpireAt,
	},
	{
		Name: "pexpireat", Arity: -3, Flags: Write | Fast, Group: "generic", Since: "2.6.0",
		Keys:    firstKey(KeyRW | KeyUpdate),
		Summary: "Sets the Unix time in milliseconds at which a key expires.",
		Usage:   "key unix-time-milliseconds [NX | XX | GT | LT]", Run: cmdPExpireAt,
	},
	{
		Name: "ttl", Arity: 2, Flags: ReadOnly | Fast, Group: "generic", Since: "1.0.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Tips:    []string{"nondeterministic_output"},
		Summary: "Returns the time to live of a key in seconds.",
		Usage:   "key", Run: cmdTTL,
	},
	{
		Name: "pttl", Arity: 2, Flags: ReadOnly | Fast, Group: "generic", Since: "2.6.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Tips:    []string{"nondeterministic_output"},
		Summary: "Returns the time to live of a key in milliseconds.",
		Usage:   "key", Run: cmdPTTL,
	},
	{
		Name: "expiretime", Arity: 2, Flags: ReadOnly | Fast, Group: "generic", Since: "7.0.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Returns the Unix time in seconds at which a key expires.",
		Usage:   "key", Run: cmdExpireTime,
	},
	{
		Name: "pexpiretime", Arity: 2, Flags: ReadOnly | Fast, Group: "generic", Since: "7.0.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Returns the Unix time in milliseconds at which a key expires.",
		Usage:   "key", Run: cmdPExpireTime,
	},
	{
		Name: "persist", Arity: 2, Flags: Write | Fast, Group: "generic", Since: "2.2.0",
		Keys:    firstKey(KeyRW | KeyUpdate),
		Summary: "Removes the time to live of a key.",
		Usage:   "key", Run: cmdPersist,
	},
}

func cmdExpire(c *Ctx) Reply { return c.expireKey(unitEX) }

func cmdPExpire(c *Ctx) Reply { return c.expireKey(unitPX) }

func cmdExpireAt(c *Ctx) Reply { return c.expireKey(unitEXAT) }

func cmdPExpireAt(c *Ctx) Reply { return c.expireKey(unitPXAT) }

// expireFlags are the conditions of the EXPIRE family.
type expireFlags uint8

const (
	expireNX expireFlags = 1 << iota
	expireXX
	expireGT
	expireLT
)

func parseExpireFlags(args [][]byte) (f expireFlags, e Error) {
	for _, arg := range args {
		switch {
		case equalFold(arg, "nx"):
			f |= expireNX
		case equalFold(arg, "xx"):
			f |= expireXX
		case equalFold(arg, "gt"):
			f |= expireGT
		case equalFold(arg, "lt"):
			f |= expireLT
		default:
			return 0, ErrUnsupportedOption(string(arg))
		}
	}
	switch {
	case f&expireNX != 0 && f != expireNX:
		return 0, ErrNXAndOther
	case f&expireGT != 0 && f&expireLT != 0:
		return 0, ErrGTAndLT
	}
	return f, ""
}

// expireKey implements the EXPIRE family: it checks the options, then the time, then the key. A
// time in the past deletes the key.
func (c *Ctx) expireKey(u timeUnit) Reply {
	var flags expireFlags
	if len(c.Args) > 3 {
		var e Error
		if flags, e = parseExpireFlags(c.Args[3:]); e != "" {
			return Err(e)
		}
	}
	n, ok := redistext.ParseInt(c.Args[2])
	if !ok {
		return notInteger
	}
	when, ok := c.unixMs(n, u)
	if !ok {
		return Err(ErrInvalidExpire(c.Cmd.FullName()))
	}
	e := c.LookupWrite(c.DB, c.Args[1])
	switch {
	case e == nil:
		return Zero
	case e.typ == TypeLock:
		return lockExpires
	case flags != 0 && !c.expireAllowed(e, when, flags):
		return Zero
	}
	if c.passed(when) {
		c.Delete(c.DB, c.Args[1])
		c.eventOn(eventGeneric, "del")
	} else {
		at := c.DeadlineAt(when)
		if flags&expireGT != 0 {
			// GT must not shorten a lease. If the reply that granted the lease was late, the lease ends later than the key's
			// deadline.
			at = max(at, c.graced(e))
			// A lease that this write set has granted has no grace yet: if its reply is late, the leader must move the new deadline, too.
			c.leases = c.leases || e.deadline != 0 && e.leased == c.seq
		}
		c.SetDeadline(c.DB, c.Args[1], at)
		c.eventOn(eventGeneric, "expire")
	}
	return One
}

// expireAllowed reports whether the conditions in f (NX, XX, GT, LT) hold. A key without a deadline counts as one that
// never expires.
func (c *Ctx) expireAllowed(e *Entry, when int64, f expireFlags) bool {
	if e.deadline == 0 {
		return f&(expireXX|expireGT) == 0
	}
	now := c.UnixAt(e.deadline)
	return f&expireNX == 0 &&
		(f&expireGT == 0 || when > now) &&
		(f&expireLT == 0 || when < now)
}

func cmdTTL(c *Ctx) Reply { return seconds(cmdPTTL(c)) }

func cmdPTTL(c *Ctx) Reply {
	e, missing := c.deadline()
	if e == nil {
		return missing
	}
	// In its grace a key still exists, and the reply is the rest of the grace: Redisson's multi-lock renews only if some time is left.
	at, seq := e.until()
	left := at - c.Now().Lease
	if left <= 0 && c.env.Grace != nil {
		left += c.env.Grace(seq)
	}
	return Int(max(left, 0)) // left may be negative in the batch that has set the deadline, but the replies -1 and -2 have other meanings
}

func cmdExpireTime(c *Ctx) Reply { return seconds(cmdPExpireTime(c)) }

func cmdPExpireTime(c *Ctx) Reply {
	e, missing := c.deadline()
	if e == nil {
		return missing
	}
	at, _ := e.until()
	return Int(c.UnixAt(at))
}

// deadline returns the key's entry if it has a deadline, else the reply for a missing key or a
// missing deadline.
func (c *Ctx) deadline() (e *Entry, missing Reply) {
	e = c.Lookup(c.DB, c.Args[1])
	switch {
	case e == nil:
		return nil, Int(-2)
	case e.deadline == 0:
		return nil, Int(-1)
	}
	return e, Reply{}
}

// seconds rounds a reply in milliseconds to the nearest second. Negative replies are codes and
// stay.
func seconds(r Reply) Reply {
	if r.Int >= 0 {
		r.Int = int64((uint64(r.Int) + 500) / 1000) // the sum may need the 64th bit
	}
	return r
}

func cmdPersist(c *Ctx) Reply {
	e := c.LookupWrite(c.DB, c.Args[1])
	switch {
	case e == nil || e.deadline == 0:
		return Zero
	case e.typ == TypeLock:
		return lockExpires
	}
	c.SetDeadline(c.DB, c.Args[1], 0)
	c.eventOn(eventGeneric, "persist")
	return One
}

// lockExpires refuses to change the time to live of a lock whose holders have leases of their own.
var lockExpires = Err(ErrLockExpires)

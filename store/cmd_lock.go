package store

import (
	"strconv"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// lockCommands are the commands about the tokens of locks (tokens.go).
var lockCommands = []Command{
	{
		Name: "lock.token", Arity: -2, Flags: ReadOnly | Fast, Group: "lock", Since: "0.2.0", Newer: true,
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Returns the fencing token of a lock.",
		Usage:   "key [OWNER owner]", Run: cmdLockToken,
	},
	{
		Name: "lock.check", Arity: -3, Flags: ReadOnly | Fast, Group: "lock", Since: "0.2.0", Newer: true,
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Tells whether a lock still has a token.",
		Usage:   "key token [OWNER owner]", Run: cmdLockCheck,
	},
	{
		Name: "lock.fence", Arity: -3, Flags: Write | DenyOOM | Fast, Group: "lock", Since: "0.2.0", Newer: true,
		Keys:    firstKey(KeyRW | KeyAccess | KeyUpdate),
		Summary: "Accepts a token for a resource, unless the resource has seen a higher one.",
		Usage:   "resource token [PX milliseconds]", Run: cmdLockFence,
	},
}

// cmdLockToken replies nil if the key is missing, or if it is not a lock of the owner.
func cmdLockToken(c *Ctx) Reply {
	e, owner, fault := c.lockOf(2)
	switch {
	case fault != nil:
		return *fault
	case e == nil:
		return Nil
	}
	return Int(int64(c.tokenOf(e, owner)))
}

func cmdLockCheck(c *Ctx) Reply {
	token, fault := parseToken(c.Args[2])
	if fault != nil {
		return *fault
	}
	e, owner, fault := c.lockOf(3)
	if fault != nil {
		return *fault
	}
	return Flag(e != nil && c.tokenOf(e, owner) == uint64(token))
}

// lockOf looks up the key at Args[1]. Behind Args[:from], the words OWNER owner may follow; e is nil if the key is not that owner's.
func (c *Ctx) lockOf(from int) (e *Entry, owner string, fault *Reply) {
	rest := c.Args[from:]
	switch {
	case len(rest) == 2 && equalFold(rest[0], "owner"):
		owner = string(rest[1])
	case len(rest) > 0:
		return nil, "", &syntaxError
	}
	if !c.TokensCounted() {
		return nil, "", &noTokens
	}
	e = c.Lookup(c.DB, c.Args[1])
	if e == nil {
		return nil, "", nil
	}
	owned := true
	switch {
	case e.typ == TypeLock:
		if len(rest) == 0 {
			if e.Lock().mode != lockExclusive {
				return nil, "", &whichOwner
			}
			owner = e.Lock().last().owner
		}
		owned = c.foundHolding(c.DB, e, owner) != nil
	case len(rest) > 0:
		var ok bool
		if owned, ok = e.owned(owner); !ok {
			return nil, "", &wrongType
		}
	}
	if !owned {
		return nil, "", nil
	}
	return e, owner, nil
}

// owned reports whether a lock is the owner's: a string has the owner as its value, a collection as a field or member. ok is false for a
// list, which has no owners.
func (e *Entry) owned(owner string) (owned, ok bool) {
	switch e.typ {
	case TypeString:
		owned = e.str == owner
	case TypeHash:
		_, owned = e.Fields().Get(owner)
	case TypeSet:
		owned = e.Members().Has(owner)
	case TypeSortedSet:
		_, owned = e.Scores().Score(owner)
	default:
		return false, false
	}
	return owned, true
}

// cmdLockFence keeps the highest token of a resource in a string. It replies 1 and the token if it accepts the token, and otherwise 0 and
// the higher token that the resource has seen.
func cmdLockFence(c *Ctx) Reply {
	token, fault := parseToken(c.Args[2])
	if fault != nil {
		return *fault
	}
	var expire []byte
	if rest := c.Args[3:]; len(rest) == 2 && equalFold(rest[0], "px") {
		expire = rest[1]
	} else if len(rest) > 0 {
		return syntaxError
	}
	when, ok, e := c.expireTime(expire, unitPX)
	if !ok {
		return Err(e)
	}
	key := c.Args[1]
	old, ok := c.write(TypeString)
	if !ok {
		return wrongType
	}
	if old != nil {
		seen, ok := redistext.ParseInt(stringBytes(old.str))
		if !ok {
			return notInteger
		}
		if seen > token {
			return List(Zero, Int(seen))
		}
		if seen == token && expire == nil {
			return List(One, Int(token))
		}
	}
	value := strconv.FormatInt(token, 10)
	switch {
	case expire != nil:
		c.SetString(c.DB, key, value, c.DeadlineAt(when))
		c.eventOn(eventString, "set")
		c.eventOn(eventGeneric, "expire")
	default:
		c.KeepString(c.DB, key, value)
		c.eventOn(eventString, "set")
	}
	return List(One, Int(token))
}

// parseToken parses a token. Tokens of other systems may be larger than maxToken.
func parseToken(arg []byte) (token int64, fault *Reply) {
	token, ok := redistext.ParseInt(arg)
	if !ok || token < 0 {
		return 0, &badToken
	}
	return token, nil
}

var (
	badToken = Err(ErrToken)
	noTokens = Err(ErrNoTokens)
	// whichOwner refuses to choose among the tokens of several holders.
	whichOwner = Err(ErrWhichOwner)
)

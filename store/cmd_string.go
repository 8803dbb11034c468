package store

// stringCommands are the commands that read and replace whole strings.
var stringCommands = []Command{
	{
		Name: "set", Arity: -3, Flags: Write | DenyOOM, Group: "string", Since: "1.0.0",
		Keys:    []KeySpec{{Begin: 1, Step: 1, Flags: KeyRW | KeyAccess | KeyUpdate | KeyVariable, Notes: "the GET option makes it a read, too"}},
		Summary: "Sets a key to a string, with conditions and a time to live.",
		Usage:   "key value [NX | XX | IFEQ ifeq-value | IFNE ifne-value] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]", Run: cmdSet,
	},
	{
		Name: "setnx", Arity: 3, Flags: Write | DenyOOM | Fast, Group: "string", Since: "1.0.0",
		Keys:    firstKey(KeyOW | KeyInsert),
		Summary: "Sets a key only if it does not exist.",
		Usage:   "key value", Run: cmdSetNX,
	},
	{
		Name: "setex", Arity: 4, Flags: Write | DenyOOM, Group: "string", Since: "2.0.0",
		Keys:    firstKey(KeyOW | KeyUpdate),
		Summary: "Sets a key with a time to live in seconds.",
		Usage:   "key seconds value", Run: cmdSetEX,
	},
	{
		Name: "psetex", Arity: 4, Flags: Write | DenyOOM, Group: "string", Since: "2.6.0",
		Keys:    firstKey(KeyOW | KeyUpdate),
		Summary: "Sets a key with a time to live in milliseconds.",
		Usage:   "key milliseconds value", Run: cmdPSetEX,
	},
	{
		Name: "get", Arity: 2, Flags: ReadOnly | Fast, Group: "string", Since: "1.0.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Returns the string stored at a key.",
		Usage:   "key", Run: cmdGet,
	},
	{
		Name: "getset", Arity: 3, Flags: Write | DenyOOM | Fast, Group: "string", Since: "1.0.0",
		Keys:       firstKey(KeyRW | KeyAccess | KeyUpdate),
		Deprecated: "6.2.0", ReplacedBy: "`SET` with the `!GET` argument",
		Summary: "Sets a key and returns the string it held before.",
		Usage:   "key value", Run: cmdGetSet,
	},
	{
		Name: "getdel", Arity: 2, Flags: Write | Fast, Group: "string", Since: "6.2.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyDelete),
		Summary: "Returns the string of a key and deletes the key.",
		Usage:   "key", Run: cmdGetDel,
	},
	{
		Name: "delex", Arity: -2, Flags: Write | Fast, Group: "string", Since: "8.4.0", Newer: true,
		Keys:    []KeySpec{{Begin: 1, Step: 1, Flags: KeyRW | KeyAccess | KeyDelete | KeyVariable, Notes: "a condition makes it a read, too"}},
		Summary: "Deletes a key; with a condition only if its string equals, or differs from, a value.",
		Usage:   "key [IFEQ ifeq-value | IFNE ifne-value]", Run: cmdDelEx,
	},
	{
		Name: "delifeq", Arity: 3, Flags: Write | Fast, Group: "string", Since: "9.0.0", Newer: true,
		Keys:    firstKey(KeyRW | KeyAccess | KeyDelete),
		Summary: "Deletes a key if its string equals a value.",
		Usage:   "key value", Run: cmdDelIfEq,
	},
	{
		Name: "getex", Arity: -2, Flags: Write | Fast, Group: "string", Since: "6.2.0",
		Keys:    []KeySpec{{Begin: 1, Step: 1, Flags: KeyRW | KeyAccess | KeyUpdate, Notes: "it changes the time to live"}},
		Summary: "Returns the string of a key and changes its time to live.",
		Usage:   "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]", Run: cmdGetEX,
	},
	{
		Name: "mset", Arity: -3, Flags: Write | DenyOOM, Group: "string", Since: "1.0.1",
		Keys:    []KeySpec{{Begin: 1, Last: -1, Step: 2, Flags: KeyOW | KeyUpdate}},
		Tips:    []string{"request_policy:multi_shard", "response_policy:all_succeeded"},
		Summary: "Sets several keys at once.",
		Usage:   "key value [key value ...]", Run: cmdMSet,
	},
	{
		Name: "msetnx", Arity: -3, Flags: Write | DenyOOM, Group: "string", Since: "1.0.1",
		Keys:    []KeySpec{{Begin: 1, Last: -1, Step: 2, Flags: KeyOW | KeyInsert}},
		Tips:    []string{"request_policy:multi_shard", "response_policy:agg_min"},
		Summary: "Sets several keys at once, if none of them exists.",
		Usage:   "key value [key value ...]", Run: cmdMSetNX,
	},
	{
		Name: "mget", Arity: -2, Flags: ReadOnly | Fast, Group: "string", Since: "1.0.0",
		Keys:    []KeySpec{{Begin: 1, Last: -1, Step: 1, Flags: KeyRO | KeyAccess}},
		Tips:    []string{"request_policy:multi_shard"},
		Summary: "Returns the strings of several keys.",
		Usage:   "key [key ...]", Run: cmdMGet,
	},
}

// cmdSet checks in Redis's order: the options, the time, the type that GET, IFEQ and IFNE need, and
// last the condition.
func cmdSet(c *Ctx) Reply {
	if len(c.Args) == 3 {
		c.LookupWrite(c.DB, c.Args[1]) // deletes an expired key, so that the new key gets its own creation number
		c.SetString(c.DB, c.Args[1], c.Arg(2), 0)
		c.eventOn(eventString, "set")
		return OK
	}
	o, ok := parseStringOptions(c.Args[3:], setWords)
	if !ok {
		return Err(ErrSyntax)
	}
	when, ok, e := c.expireTime(o.expire, o.unit)
	if !ok {
		return Err(e)
	}
	return c.set(c.Args[2], o, when)
}

// set implements all forms of SET. when is a Unix time in ms, used only if the options have a time.
func (c *Ctx) set(value []byte, o stringOptions, when int64) Reply {
	key := c.Args[1]
	old := c.LookupWrite(c.DB, key)
	if o.has(optGet|compareWords) && old != nil && old.typ != TypeString {
		return wrongType
	}
	reply := OK
	if o.has(optGet) {
		reply = stringOrNil(old, true)
		if old == nil {
			c.notify(eventMiss, "keymiss", c.DB, string(key))
		}
	}
	if !o.allow(old) {
		if o.has(optNX) {
			if !o.has(optGet) && c.sameOwner(old, value, o, when) {
				return OK
			}
			c.missed(old)
			if !c.InScript && old.form&formLock != 0 { // of scripts, AfterScript looks after
				c.askedInVain(old, bytesToString(value))
			}
		}
		if o.has(optGet) {
			return reply
		}
		return Nil
	}
	switch {
	case o.expire != nil && c.passed(when):
		// The new value would expire before any client could read it.
		if old != nil {
			c.Delete(c.DB, key)
		} else {
			c.eventOn(eventNew, "new")
		}
		c.eventOn(eventString, "set")
		c.eventOn(eventGeneric, "expire")
		c.eventOn(eventExpired, "expired")
	case o.expire != nil:
		c.setFresh(o.has(optNX) || old == nil && c.wasMissing(key), string(value), c.DeadlineAt(when))
		c.eventOn(eventString, "set")
		c.eventOn(eventGeneric, "expire")
	case o.has(optKeepTTL) && old != nil:
		c.KeepString(c.DB, key, string(value))
		c.eventOn(eventString, "set")
	default:
		c.setFresh(o.has(optNX), string(value), 0)
		c.eventOn(eventString, "set")
	}
	return reply
}

// setFresh sets the string.
func (c *Ctx) setFresh(lock bool, value string, deadline int64) {
	if lock {
		c.SetLock(c.DB, c.Args[1], value, deadline)
		return
	}
	c.SetString(c.DB, c.Args[1], value, deadline)
}

func cmdSetNX(c *Ctx) Reply {
	r := c.set(c.Args[2], stringOptions{flags: optNX}, 0)
	return Flag(r.Kind != Null)
}

func cmdSetEX(c *Ctx) Reply { return c.setFor(unitEX) }

func cmdPSetEX(c *Ctx) Reply { return c.setFor(unitPX) }

func (c *Ctx) setFor(u timeUnit) Reply {
	when, ok, e := c.expireTime(c.Args[2], u)
	if !ok {
		return Err(e)
	}
	return c.set(c.Args[3], stringOptions{expire: c.Args[2], unit: u}, when)
}

func cmdGet(c *Ctx) Reply {
	e, ok := c.read(TypeString)
	if e == nil {
		c.foundMissing(c.Args[1])
	}
	return stringOrNil(e, ok)
}

func stringOrNil(e *Entry, ok bool) Reply {
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return Nil
	}
	return Str(e.str)
}

func cmdGetSet(c *Ctx) Reply {
	e, ok := c.update(TypeString)
	reply := stringOrNil(e, ok)
	if ok {
		c.SetString(c.DB, c.Args[1], c.Arg(2), 0)
		c.eventOn(eventString, "set")
	}
	return reply
}

func cmdGetDel(c *Ctx) Reply {
	e, ok := c.update(TypeString)
	reply := stringOrNil(e, ok)
	if ok && e != nil {
		c.Delete(c.DB, c.Args[1])
		c.eventOn(eventGeneric, "del")
	}
	return reply
}

// cmdDelEx checks the condition before it looks up the key, as Valkey does. Redis looks up the key first, and so replies 0 to a wrong word if
// the key does not exist.
func cmdDelEx(c *Ctx) Reply {
	if len(c.Args) == 2 {
		return cmdDel(c)
	}
	if len(c.Args) != 4 {
		return Err(ErrWrongArgs(c.Cmd.FullName()))
	}
	o, ok := parseStringOptions(c.Args[2:], delexWords)
	if !ok {
		return Err(ErrSyntax)
	}
	return c.deleteIf(o)
}

func cmdDelIfEq(c *Ctx) Reply {
	return c.deleteIf(stringOptions{flags: optIfEq, compare: c.Args[2]})
}

// deleteIf deletes the key if it exists and the condition allows that.
func (c *Ctx) deleteIf(o stringOptions) Reply {
	old, ok := c.write(TypeString)
	switch {
	case !ok:
		return wrongType
	case old == nil || !o.allow(old):
		return Zero
	}
	c.Delete(c.DB, c.Args[1])
	c.eventOn(eventGeneric, "del")
	return One
}

// cmdGetEX looks up the key before it checks the time, as Redis does: for a missing key a bad time
// is no error.
func cmdGetEX(c *Ctx) Reply {
	o, ok := parseStringOptions(c.Args[2:], getexWords)
	if !ok {
		return Err(ErrSyntax)
	}
	e, ok := c.update(TypeString)
	if !ok || e == nil {
		return stringOrNil(e, ok)
	}
	when, ok, fault := c.expireTime(o.expire, o.unit)
	if !ok {
		return Err(fault)
	}
	reply := Str(e.str)
	switch {
	case o.expire != nil && c.passed(when):
		c.Delete(c.DB, c.Args[1])
		c.eventOn(eventGeneric, "del")
	case o.expire != nil:
		c.SetDeadline(c.DB, c.Args[1], c.DeadlineAt(when))
		c.eventOn(eventGeneric, "expire")
	case o.has(optPersist) && e.deadline != 0:
		c.SetDeadline(c.DB, c.Args[1], 0)
		c.eventOn(eventGeneric, "persist")
	}
	return reply
}

func cmdMSet(c *Ctx) Reply {
	if len(c.Args)%2 == 0 {
		return Err(ErrWrongArgs(c.Cmd.FullName()))
	}
	c.setAll()
	return OK
}

func cmdMSetNX(c *Ctx) Reply {
	if len(c.Args)%2 == 0 {
		return Err(ErrWrongArgs(c.Cmd.FullName()))
	}
	for i := 1; i < len(c.Args); i += 2 {
		c.work(keySteps)
		if c.LookupWrite(c.DB, c.Args[i]) != nil {
			return Zero
		}
	}
	c.setAll()
	return One
}

func (c *Ctx) setAll() {
	for i := 1; i < len(c.Args); i += 2 {
		c.work(keySteps + len(c.Args[i+1])/64)
		c.LookupWrite(c.DB, c.Args[i])
		c.SetString(c.DB, c.Args[i], c.Arg(i+1), 0)
		c.event(eventString, "set", c.Args[i])
	}
}

// cmdMGet replies nil, not an error, for a key of another type.
func cmdMGet(c *Ctx) Reply {
	if refusal, refused := c.tooMany(int64(len(c.Args) - 1)); refused {
		return refusal
	}
	elems := make([]Reply, len(c.Args)-1)
	for i, key := range c.Args[1:] {
		c.work(keySteps)
		if e := c.Lookup(c.DB, key); e != nil && e.typ == TypeString {
			elems[i] = Str(e.str)
		} else {
			elems[i] = Nil
		}
	}
	return List(elems...)
}

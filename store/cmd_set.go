package store

// setCommands are the commands on sets.
var setCommands = []Command{
	{
		Name: "sadd", Arity: -3, Flags: Write | DenyOOM | Fast, Group: "set", Since: "1.0.0",
		Keys:    firstKey(KeyRW | KeyInsert),
		Summary: "Adds members to a set, creating it if needed.",
		Usage:   "key member [member ...]", Run: cmdSAdd,
	},
	{
		Name: "srem", Arity: -3, Flags: Write | Fast, Group: "set", Since: "1.0.0",
		Keys:    firstKey(KeyRW | KeyDelete),
		Summary: "Removes members from a set.",
		Usage:   "key member [member ...]", Run: cmdSRem,
	},
	{
		Name: "sismember", Arity: 3, Flags: ReadOnly | Fast, Group: "set", Since: "1.0.0",
		Keys:    firstKey(KeyRO),
		Summary: "Tells whether something is a member of a set.",
		Usage:   "key member", Run: cmdSIsMember,
	},
	{
		Name: "smismember", Arity: -3, Flags: ReadOnly | Fast, Group: "set", Since: "6.2.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Tells which of several things are members of a set.",
		Usage:   "key member [member ...]", Run: cmdSMIsMember,
	},
	{
		Name: "smembers", Arity: 2, Flags: ReadOnly, Group: "set", Since: "1.0.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Tips:    []string{"nondeterministic_output_order"},
		Summary: "Returns all members of a set.",
		Usage:   "key", Run: cmdSMembers,
	},
	{
		Name: "scard", Arity: 2, Flags: ReadOnly | Fast, Group: "set", Since: "1.0.0",
		Keys:    firstKey(KeyRO),
		Summary: "Counts the members of a set.",
		Usage:   "key", Run: cmdSCard,
	},
	{
		Name: "smove", Arity: 4, Flags: Write | Fast, Group: "set", Since: "1.0.0",
		Keys:    []KeySpec{{Begin: 1, Step: 1, Flags: KeyRW | KeyAccess | KeyDelete}, {Begin: 2, Step: 1, Flags: KeyRW | KeyInsert}},
		Summary: "Moves a member from one set to another.",
		Usage:   "source destination member", Run: cmdSMove,
	},
}

func cmdSAdd(c *Ctx) Reply {
	e, ok := c.write(TypeSet)
	if !ok {
		return wrongType
	}
	n := int64(0)
	for i, arg := range c.Args[2:] {
		name := bytesToString(arg)
		c.work(stepsOf(name))
		if e == nil || !e.Members().Has(name) {
			c.SetAdd(c.DB, c.Args[1], name)
			if n++; n == 1 && i+3 < len(c.Args) {
				e = c.Txn.Lookup(c.DB, c.Args[1]) // get the new entry: the first write created or copied it
			}
		}
	}
	if n > 0 {
		c.eventOn(eventSet, "sadd")
	}
	return Int(n)
}

func cmdSRem(c *Ctx) Reply {
	e, ok := c.write(TypeSet)
	if !ok {
		return wrongType
	}
	n := int64(0)
	for _, arg := range c.Args[2:] {
		if e == nil {
			break
		}
		name := bytesToString(arg)
		c.work(stepsOf(name))
		if e.Members().Has(name) {
			c.SetRemove(c.DB, c.Args[1], name)
			n++
			e = c.Txn.Lookup(c.DB, c.Args[1]) // get the new entry: it is a copy now, or was deleted with its last member
		}
	}
	if n > 0 {
		c.eventOn(eventSet, "srem")
		c.eventIfGone(c.Args[1])
	}
	return Int(n)
}

func cmdSIsMember(c *Ctx) Reply {
	e, ok := c.read(TypeSet)
	if !ok {
		return wrongType
	}
	return Flag(e != nil && e.Members().Has(bytesToString(c.Args[2])))
}

func cmdSMIsMember(c *Ctx) Reply {
	e, ok := c.read(TypeSet)
	if !ok {
		return wrongType
	}
	if refusal, refused := c.tooMany(int64(len(c.Args) - 2)); refused {
		return refusal
	}
	elems := make([]Reply, len(c.Args)-2)
	for i, name := range c.Args[2:] {
		c.work(stepsOf(bytesToString(name)))
		elems[i] = Flag(e != nil && e.Members().Has(bytesToString(name)))
	}
	return List(elems...)
}

func cmdSMembers(c *Ctx) Reply {
	e, ok := c.read(TypeSet)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return Reply{Kind: Set}
	}
	return c.setReply(e.Members())
}

func (c *Ctx) setReply(s *MemberSet) Reply {
	if refusal, refused := c.tooMany(int64(s.Len())); refused {
		return refusal
	}
	elems := make([]Reply, 0, s.Len())
	s.Each(func(name string) bool {
		c.work(stepsOf(name))
		elems = append(elems, Str(name))
		return true
	})
	return Reply{Kind: Set, Elems: elems}
}

func cmdSCard(c *Ctx) Reply { return c.count(TypeSet) }

func cmdSMove(c *Ctx) Reply {
	source := c.LookupWrite(c.DB, c.Args[1])
	target := c.LookupWrite(c.DB, c.Args[2])
	switch {
	case source == nil:
		return Zero
	case source.typ != TypeSet || target != nil && target.typ != TypeSet:
		return wrongType
	}
	name := bytesToString(c.Args[3])
	switch {
	case !source.Members().Has(name):
		return Zero
	case source == target:
		return One
	}
	c.SetRemove(c.DB, c.Args[1], name)
	c.eventOn(eventSet, "srem")
	c.eventIfGone(c.Args[1])
	if target == nil || !target.Members().Has(name) {
		c.SetAdd(c.DB, c.Args[2], name)
		c.event(eventSet, "sadd", c.Args[2])
	}
	return One
}

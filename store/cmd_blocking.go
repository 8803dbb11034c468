package store

// blockingCommands are the commands that wait for an element (see wait.go).
var blockingCommands = []Command{
	{
		Name: "blpop", Arity: -3, Flags: Write | NoScript | Blocking, Group: "list", Since: "2.0.0",
		Keys:    []KeySpec{{Begin: 1, Last: -2, Step: 1, Flags: KeyRW | KeyAccess | KeyDelete}},
		Summary: "Removes the head of the first list that is not empty; waits for one.",
		Usage:   "key [key ...] timeout", Run: cmdBLPop,
	},
	{
		Name: "brpop", Arity: -3, Flags: Write | NoScript | Blocking, Group: "list", Since: "2.0.0",
		Keys:    []KeySpec{{Begin: 1, Last: -2, Step: 1, Flags: KeyRW | KeyAccess | KeyDelete}},
		Summary: "Removes the tail of the first list that is not empty; waits for one.",
		Usage:   "key [key ...] timeout", Run: cmdBRPop,
	},
	{
		Name: "blmove", Arity: 6, Flags: Write | DenyOOM | NoScript | Blocking, Group: "list", Since: "6.2.0",
		Keys:    []KeySpec{{Begin: 1, Step: 1, Flags: KeyRW | KeyAccess | KeyDelete}, {Begin: 2, Step: 1, Flags: KeyRW | KeyInsert}},
		Summary: "Moves an element from one list to another; waits for one.",
		Usage:   "source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout", Run: cmdBLMove,
	},
	{
		Name: "brpoplpush", Arity: 4, Flags: Write | DenyOOM | NoScript | Blocking, Group: "list", Since: "2.2.0",
		Keys:       []KeySpec{{Begin: 1, Step: 1, Flags: KeyRW | KeyAccess | KeyDelete}, {Begin: 2, Step: 1, Flags: KeyRW | KeyInsert}},
		Deprecated: "6.2.0", ReplacedBy: "`BLMOVE` with the `RIGHT` and `LEFT` arguments",
		Summary: "Moves an element from the tail of a list to the head of another; waits for one.",
		Usage:   "source destination timeout", Run: cmdBRPopLPush,
	},
	{
		Name: "blmpop", Arity: -5, Flags: Write | Blocking | MovableKeys, Group: "list", Since: "7.0.0",
		Keys:    []KeySpec{{NumKeys: 2, Step: 1, Flags: KeyRW | KeyAccess | KeyDelete}},
		Summary: "Removes elements from the first list that is not empty; waits for one.",
		Usage:   "timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count]", Run: cmdBLMPop,
	},
	{
		Name: "bzpopmin", Arity: -3, Flags: Write | Fast | NoScript | Blocking, Group: "sorted-set", Since: "5.0.0",
		Keys:    []KeySpec{{Begin: 1, Last: -2, Step: 1, Flags: KeyRW | KeyAccess | KeyDelete}},
		Summary: "Removes the member with the lowest score from the first sorted set that is not empty; waits for one.",
		Usage:   "key [key ...] timeout", Run: cmdBZPopMin,
	},
	{
		Name: "bzpopmax", Arity: -3, Flags: Write | Fast | NoScript | Blocking, Group: "sorted-set", Since: "5.0.0",
		Keys:    []KeySpec{{Begin: 1, Last: -2, Step: 1, Flags: KeyRW | KeyAccess | KeyDelete}},
		Summary: "Removes the member with the highest score from the first sorted set that is not empty; waits for one.",
		Usage:   "key [key ...] timeout", Run: cmdBZPopMax,
	},
	{
		Name: "bzmpop", Arity: -5, Flags: Write | Blocking | MovableKeys, Group: "sorted-set", Since: "7.0.0",
		Keys:    []KeySpec{{NumKeys: 2, Step: 1, Flags: KeyRW | KeyAccess | KeyDelete}},
		Summary: "Removes members from the first sorted set that is not empty; waits for one.",
		Usage:   "timeout numkeys key [key ...] <MIN | MAX> [COUNT count]", Run: cmdBZMPop,
	},
}

func cmdBLPop(c *Ctx) Reply { return c.blockingPop(true) }
func cmdBRPop(c *Ctx) Reply { return c.blockingPop(false) }

// blockingPop replies with the key and the element that it removed.
func (c *Ctx) blockingPop(head bool) Reply {
	last := len(c.Args) - 1
	timeout, fault := parseTimeout(c.Args[last])
	if fault != nil {
		return *fault
	}
	r, found := c.popFirst(mpop{keys: c.Args[1:last], first: head, count: 1})
	if !found {
		c.wait(c.Args[1:last], TypeList, timeout)
	} else if r.Kind == Array {
		r.Elems[1] = r.Elems[1].Elems[0]
	}
	return r
}

func cmdBLMove(c *Ctx) Reply {
	from, ok := parseEnd(c.Args[3])
	to, ok2 := parseEnd(c.Args[4])
	if !ok || !ok2 {
		return Err(ErrSyntax)
	}
	return c.blockingMove(from, to, c.Args[5])
}

func cmdBRPopLPush(c *Ctx) Reply { return c.blockingMove(false, true, c.Args[3]) }

func (c *Ctx) blockingMove(fromHead, toHead bool, timeoutArg []byte) Reply {
	timeout, fault := parseTimeout(timeoutArg)
	if fault != nil {
		return *fault
	}
	r, found := c.moveElement(fromHead, toHead)
	if !found {
		c.wait(c.Args[1:2], TypeList, timeout)
	}
	return r
}

// cmdBLMPop checks the timeout last, as Redis does.
func cmdBLMPop(c *Ctx) Reply {
	m, fault := parseMPop(c.Args[2:], "left", "right")
	if fault != nil {
		return *fault
	}
	timeout, fault := parseTimeout(c.Args[1])
	if fault != nil {
		return *fault
	}
	r, found := c.popFirst(m)
	if !found {
		c.wait(m.keys, TypeList, timeout)
	}
	return r
}

func cmdBZPopMin(c *Ctx) Reply { return c.blockingPopScore(true) }
func cmdBZPopMax(c *Ctx) Reply { return c.blockingPopScore(false) }

// blockingPopScore replies with the key, and with the member that it removed and the score of the member.
func (c *Ctx) blockingPopScore(lowest bool) Reply {
	last := len(c.Args) - 1
	timeout, fault := parseTimeout(c.Args[last])
	if fault != nil {
		return *fault
	}
	keys := c.Args[1:last]
	key, e, ok := c.firstOf(keys, TypeSortedSet)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		c.wait(keys, TypeSortedSet, timeout)
		return Reply{Kind: NullArray}
	}
	name := Str(string(key))
	m := c.takeScores(key, e.Scores(), lowest, 1)[0]
	return List(name, Str(m.Member), Float(m.Score))
}

func cmdBZMPop(c *Ctx) Reply {
	m, fault := parseMPop(c.Args[2:], "min", "max")
	if fault != nil {
		return *fault
	}
	timeout, fault := parseTimeout(c.Args[1])
	if fault != nil {
		return *fault
	}
	r, found := c.popFirstScores(m)
	if !found {
		c.wait(m.keys, TypeSortedSet, timeout)
	}
	return r
}

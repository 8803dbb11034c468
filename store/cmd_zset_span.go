package store

// sortedSetSpanCommands are the commands that count or remove ranges of sorted sets.
var sortedSetSpanCommands = []Command{
	{
		Name: "zcount", Arity: 4, Flags: ReadOnly | Fast, Group: "sorted-set", Since: "2.0.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Counts the members of a sorted set in a range of scores.",
		Usage:   "key min max", Run: cmdZCount,
	},
	{
		Name: "zlexcount", Arity: 4, Flags: ReadOnly | Fast, Group: "sorted-set", Since: "2.8.9",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Counts the members of a sorted set in a lexicographic range.",
		Usage:   "key min max", Run: cmdZLexCount,
	},
	{
		Name: "zremrangebyrank", Arity: 4, Flags: Write, Group: "sorted-set", Since: "2.0.0",
		Keys:    firstKey(KeyRW | KeyDelete),
		Summary: "Removes the members of a sorted set in a range of ranks.",
		Usage:   "key start stop", Run: cmdZRemRangeByRank,
	},
	{
		Name: "zremrangebyscore", Arity: 4, Flags: Write, Group: "sorted-set", Since: "1.2.0",
		Keys:    firstKey(KeyRW | KeyDelete),
		Summary: "Removes the members of a sorted set in a range of scores.",
		Usage:   "key min max", Run: cmdZRemRangeByScore,
	},
	{
		Name: "zremrangebylex", Arity: 4, Flags: Write, Group: "sorted-set", Since: "2.8.9",
		Keys:    firstKey(KeyRW | KeyDelete),
		Summary: "Removes the members of a sorted set in a lexicographic range.",
		Usage:   "key min max", Run: cmdZRemRangeByLex,
	},
}

func cmdZCount(c *Ctx) Reply    { return c.countSpan(parseScoreSpan) }
func cmdZLexCount(c *Ctx) Reply { return c.countSpan(parseLexSpan) }

func (c *Ctx) countSpan(parse func(min, max []byte) (zrange, *Reply)) Reply {
	span, fault := parse(c.Args[2], c.Args[3])
	if fault != nil {
		return *fault
	}
	e, ok := c.read(TypeSortedSet)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return Zero
	}
	from, to := span.ranks(e.Scores(), false)
	return Int(int64(to - from))
}

func cmdZRemRangeByRank(c *Ctx) Reply  { return c.removeSpan(parseRankSpan) }
func cmdZRemRangeByScore(c *Ctx) Reply { return c.removeSpan(parseScoreSpan) }
func cmdZRemRangeByLex(c *Ctx) Reply   { return c.removeSpan(parseLexSpan) }

func (c *Ctx) removeSpan(parse func(min, max []byte) (zrange, *Reply)) Reply {
	span, fault := parse(c.Args[2], c.Args[3])
	if fault != nil {
		return *fault
	}
	e, ok := c.write(TypeSortedSet)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return Zero
	}
	from, to := span.ranks(e.Scores(), false)
	if !c.HasRoom((to - from) * (writeHead + len(c.Args[1]))) {
		return Err(c.ErrTooBig())
	}
	names := make([]string, 0, to-from)
	if from < to {
		e.Scores().Each(from, func(m Scored) bool {
			c.work(stepsOf(m.Member))
			names = append(names, m.Member)
			return len(names) < to-from
		})
	}
	for _, name := range names {
		c.work(stepsOf(name))
		c.ScoreRemove(c.DB, c.Args[1], name)
	}
	if len(names) > 0 {
		c.eventOn(eventSortedSet, c.Cmd.Name) // the event has the command's name
		c.eventIfGone(c.Args[1])
	}
	return Int(int64(len(names)))
}

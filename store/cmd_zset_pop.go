package store

import (
	"github.com/lockstep-io/lockstep/store/redistext"
)

// sortedSetPopCommands are the commands that pop members from the ends of sorted sets or pick
// members at random.
var sortedSetPopCommands = []Command{
	{
		Name: "zpopmin", Arity: -2, Flags: Write | Fast, Group: "sorted-set", Since: "5.0.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyDelete),
		Summary: "Removes the members with the lowest scores from a sorted set and returns them.",
		Usage:   "key [count]", Run: cmdZPopMin,
	},
	{
		Name: "zpopmax", Arity: -2, Flags: Write | Fast, Group: "sorted-set", Since: "5.0.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyDelete),
		Summary: "Removes the members with the highest scores from a sorted set and returns them.",
		Usage:   "key [count]", Run: cmdZPopMax,
	},
	{
		Name: "zmpop", Arity: -4, Flags: Write | MovableKeys, Group: "sorted-set", Since: "7.0.0",
		Keys:    []KeySpec{{NumKeys: 1, Step: 1, Flags: KeyRW | KeyAccess | KeyDelete}},
		Summary: "Removes members from the first of several sorted sets that is not empty and returns them.",
		Usage:   "numkeys key [key ...] <MIN | MAX> [COUNT count]", Run: cmdZMPop,
	},
	{
		Name: "zrandmember", Arity: -2, Flags: ReadOnly, Group: "sorted-set", Since: "6.2.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Tips:    []string{"nondeterministic_output"},
		Summary: "Returns members of a sorted set, picked at random.",
		Usage:   "key [count [WITHSCORES]]", Run: cmdZRandMember,
	},
}

func cmdZPopMin(c *Ctx) Reply { return c.zpop(true) }
func cmdZPopMax(c *Ctx) Reply { return c.zpop(false) }

// zpop pops one member or, with a count at Args[2], several. RESP3 gets a list of pairs only if there
// is a count.
func (c *Ctx) zpop(lowest bool) Reply {
	if len(c.Args) > 3 {
		return Err(ErrSyntax)
	}
	count := int64(1)
	if len(c.Args) == 3 {
		var ok bool
		if count, ok = redistext.ParseInt(c.Args[2]); !ok || count < 0 {
			return notPositive
		}
	}
	e, ok := c.write(TypeSortedSet)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return emptyList
	}
	if refusal, refused := c.tooMany(int64(max(c.RESP, 2)) * min(count, int64(e.Scores().Len()))); refused {
		return refusal
	}
	popped := c.takeScores(c.Args[1], e.Scores(), lowest, count)
	if len(c.Args) == 2 {
		return List(Str(popped[0].Member), Float(popped[0].Score))
	}
	return c.scoredReply(popped, true)
}

// takeScores removes up to count members from one end of the sorted set at key
// and returns them in the order of removal.
func (c *Ctx) takeScores(key []byte, z *SortedSet, lowest bool, count int64) []Scored {
	n := int(min(count, int64(z.Len())))
	popped := make([]Scored, 0, n)
	visit := func(m Scored) bool {
		c.work(stepsOf(m.Member))
		popped = append(popped, m)
		return len(popped) < n
	}
	switch {
	case n == 0:
	case lowest:
		z.Each(0, visit)
	default:
		z.eachBack(z.Len()-1, visit)
	}
	for _, m := range popped {
		c.work(stepsOf(m.Member))
		c.ScoreRemove(c.DB, key, m.Member)
	}
	if n > 0 {
		event := "zpopmax"
		if lowest {
			event = "zpopmin"
		}
		c.event(eventSortedSet, event, key)
		c.eventIfGone(key)
	}
	return popped
}

func cmdZMPop(c *Ctx) Reply {
	m, fault := parseMPop(c.Args[1:], "min", "max")
	if fault != nil {
		return *fault
	}
	r, _ := c.popFirstScores(m)
	return r
}

// popFirstScores pops from the first sorted set that exists. found is false if none exists, and true if r is an error.
func (c *Ctx) popFirstScores(m mpop) (r Reply, found bool) {
	key, e, ok := c.firstOf(m.keys, TypeSortedSet)
	switch {
	case !ok:
		return wrongType, true
	case e == nil:
		return Reply{Kind: NullArray}, false
	}
	if refusal, refused := c.tooMany(3 * min(m.count, int64(e.Scores().Len()))); refused {
		return refusal, true
	}
	pairs := []Reply{}
	for _, s := range c.takeScores(key, e.Scores(), m.first, m.count) {
		pairs = append(pairs, List(Str(s.Member), Float(s.Score)))
	}
	return List(Str(string(key)), List(pairs...)), true
}

func cmdZRandMember(c *Ctx) Reply {
	if len(c.Args) == 2 {
		e, ok := c.read(TypeSortedSet)
		switch {
		case !ok:
			return wrongType
		case e == nil:
			return Nil
		}
		return Str(e.Scores().at(randIntN(e.elems.Len())).Member)
	}
	count, scores, fault := c.randomArgs("withscores")
	if fault != nil {
		return *fault
	}
	return c.randomPairs(TypeSortedSet, count, scores, func(e *Entry, i int) (name, value Reply) {
		m := e.Scores().at(i)
		return Str(m.Member), Float(m.Score)
	})
}

package store

import (
	"github.com/lockstep-io/lockstep/store/redistext"
)

// setRandomCommands are the commands that pick members of sets at random.
var setRandomCommands = []Command{
	{
		Name: "spop", Arity: -2, Flags: Write | Fast, Group: "set", Since: "1.0.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyDelete),
		Tips:    []string{"nondeterministic_output"},
		Summary: "Removes members from a set, picked at random, and returns them.",
		Usage:   "key [count]", Run: cmdSPop,
	},
	{
		Name: "srandmember", Arity: -2, Flags: ReadOnly, Group: "set", Since: "1.0.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Tips:    []string{"nondeterministic_output"},
		Summary: "Returns members of a set, picked at random.",
		Usage:   "key [count]", Run: cmdSRandMember,
	},
}

func cmdSPop(c *Ctx) Reply {
	count := int64(-1)
	switch {
	case len(c.Args) > 3:
		return Err(ErrSyntax)
	case len(c.Args) == 3:
		var ok bool
		if count, ok = redistext.ParseInt(c.Args[2]); !ok || count < 0 {
			return notPositive
		}
	}
	e, ok := c.write(TypeSet)
	switch {
	case !ok:
		return wrongType
	case e == nil && count < 0:
		return Nil
	case e == nil:
		return Reply{Kind: Set}
	}
	pick := count
	if count < 0 {
		pick = 1
	}
	if refusal, refused := c.tooMany(min(pick, int64(e.Members().Len()))); refused {
		return refusal
	}
	picked := []Reply{}
	for _, i := range c.randomIndexes(e.Members().Len(), pick) {
		c.work(1)
		picked = append(picked, Str(e.Members().at(i)))
	}
	for _, r := range picked {
		c.work(stepsOf(r.Str))
		c.SetRemove(c.DB, c.Args[1], r.Str)
	}
	if len(picked) > 0 {
		c.eventOn(eventSet, "spop")
		c.eventIfGone(c.Args[1])
	}
	if count < 0 {
		return picked[0]
	}
	return Reply{Kind: Set, Elems: picked}
}

func cmdSRandMember(c *Ctx) Reply {
	switch {
	case len(c.Args) > 3:
		return Err(ErrSyntax)
	case len(c.Args) == 3:
		count, fault := parseRandomCount(c.Args[2])
		if fault != nil {
			return *fault
		}
		return c.randomPairs(TypeSet, count, false, func(e *Entry, i int) (name, value Reply) {
			return Str(e.Members().at(i)), Reply{}
		})
	}
	e, ok := c.read(TypeSet)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return Nil
	}
	return Str(e.Members().at(randIntN(e.Members().Len())))
}

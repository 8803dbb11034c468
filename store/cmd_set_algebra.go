package store

import (
	"slices"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// setAlgebraCommands are the commands that combine sets.
var setAlgebraCommands = []Command{
	{
		Name: "sinter", Arity: -2, Flags: ReadOnly, Group: "set", Since: "1.0.0",
		Keys:    []KeySpec{{Begin: 1, Last: -1, Step: 1, Flags: KeyRO | KeyAccess}},
		Tips:    []string{"nondeterministic_output_order"},
		Summary: "Returns what several sets have in common.",
		Usage:   "key [key ...]", Run: cmdSInter,
	},
	{
		Name: "sintercard", Arity: -3, Flags: ReadOnly | MovableKeys, Group: "set", Since: "7.0.0",
		Keys:    []KeySpec{{NumKeys: 1, Step: 1, Flags: KeyRO | KeyAccess}},
		Summary: "Counts what several sets have in common.",
		Usage:   "numkeys key [key ...] [LIMIT limit]", Run: cmdSInterCard,
	},
	{
		Name: "sinterstore", Arity: -3, Flags: Write | DenyOOM, Group: "set", Since: "1.0.0",
		Keys:    []KeySpec{{Begin: 1, Step: 1, Flags: KeyRW | KeyUpdate}, {Begin: 2, Last: -1, Step: 1, Flags: KeyRO | KeyAccess}},
		Summary: "Stores what several sets have in common.",
		Usage:   "destination key [key ...]", Run: cmdSInterStore,
	},
	{
		Name: "sunion", Arity: -2, Flags: ReadOnly, Group: "set", Since: "1.0.0",
		Keys:    []KeySpec{{Begin: 1, Last: -1, Step: 1, Flags: KeyRO | KeyAccess}},
		Tips:    []string{"nondeterministic_output_order"},
		Summary: "Returns the union of several sets.",
		Usage:   "key [key ...]", Run: cmdSUnion,
	},
	{
		Name: "sunionstore", Arity: -3, Flags: Write | DenyOOM, Group: "set", Since: "1.0.0",
		Keys:    []KeySpec{{Begin: 1, Step: 1, Flags: KeyOW | KeyUpdate}, {Begin: 2, Last: -1, Step: 1, Flags: KeyRO | KeyAccess}},
		Summary: "Stores the union of several sets.",
		Usage:   "destination key [key ...]", Run: cmdSUnionStore,
	},
	{
		Name: "sdiff", Arity: -2, Flags: ReadOnly, Group: "set", Since: "1.0.0",
		Keys:    []KeySpec{{Begin: 1, Last: -1, Step: 1, Flags: KeyRO | KeyAccess}},
		Tips:    []string{"nondeterministic_output_order"},
		Summary: "Returns what the first of several sets has and the others have not.",
		Usage:   "key [key ...]", Run: cmdSDiff,
	},
	{
		Name: "sdiffstore", Arity: -3, Flags: Write | DenyOOM, Group: "set", Since: "1.0.0",
		Keys:    []KeySpec{{Begin: 1, Step: 1, Flags: KeyOW | KeyUpdate}, {Begin: 2, Last: -1, Step: 1, Flags: KeyRO | KeyAccess}},
		Summary: "Stores what the first of several sets has and the others have not.",
		Usage:   "destination key [key ...]", Run: cmdSDiffStore,
	},
}

// sets looks up keys that must hold sets. A missing key gives nil; ok is false for a key of another
// type.
func (c *Ctx) sets(keys [][]byte) (list []*MemberSet, ok bool) {
	for _, key := range keys {
		c.work(keySteps)
		e := c.Lookup(c.DB, key)
		switch {
		case e == nil:
			list = append(list, nil)
		case e.typ != TypeSet:
			return nil, false
		default:
			list = append(list, e.Members())
		}
	}
	return list, true
}

// stepsOf returns the cost of a member lookup in steps (see Ctx.work).
func stepsOf(name string) int { return 1 + len(name)/64 }

// intersect calls fn for the members that all sets have, in the order of the smallest set, until fn returns false.
func (c *Ctx) intersect(sets []*MemberSet, fn func(name string) bool) {
	if slices.Contains(sets, nil) {
		return
	}
	slices.SortStableFunc(sets, func(a, b *MemberSet) int {
		c.work(1)
		return a.Len() - b.Len()
	})
	sets[0].Each(func(name string) bool {
		for _, s := range sets[1:] {
			c.work(stepsOf(name))
			if !s.Has(name) {
				return true
			}
		}
		return fn(name)
	})
}

// common lists the members that all sets have, in the order of the smallest set. If they exceed the room, the list is incomplete.
func (c *Ctx) common(sets []*MemberSet, room *resultRoom) (names []string) {
	c.intersect(sets, func(name string) bool {
		names = append(names, name)
		return room.add(name)
	})
	return names
}

// unite returns the union of the sets. If the union exceeds the room, the result is incomplete.
func (c *Ctx) unite(sets []*MemberSet, room *resultRoom) *MemberSet {
	all := &MemberSet{}
	for _, s := range sets {
		if s == nil || room.full() {
			continue
		}
		s.Each(func(name string) bool {
			c.work(stepsOf(name))
			before := all.Len()
			all.add(name, &defaultForms)
			return all.Len() == before || room.add(name)
		})
	}
	return all
}

// subtract returns the members of the first set that no other set has. If they exceed the room, the result is incomplete.
func (c *Ctx) subtract(sets []*MemberSet, room *resultRoom) *MemberSet {
	rest := &MemberSet{}
	if sets[0] == nil {
		return rest
	}
	sets[0].Each(func(name string) bool {
		for _, s := range sets[1:] {
			c.work(stepsOf(name))
			if s != nil && s.Has(name) {
				return true
			}
		}
		rest.add(name, &defaultForms)
		return room.add(name)
	})
	return rest
}

func cmdSInter(c *Ctx) Reply {
	sets, ok := c.sets(c.Args[1:])
	if !ok {
		return wrongType
	}
	room := c.replyRoom(1)
	names := c.common(sets, room)
	if room.full() {
		return room.refuse()
	}
	r := Strs(names...)
	r.Kind = Set
	return r
}

func cmdSInterCard(c *Ctx) Reply {
	n, ok := redistext.ParseInt(c.Args[1])
	switch {
	case !ok || n <= 0:
		return badNumKeys
	case n > int64(len(c.Args)-2):
		return Err(ErrTooManyKeys)
	}
	keys, args := c.Args[2:2+n], c.Args[2+n:]
	limit := int64(0)
	for ; len(args) > 0; args = args[2:] {
		if len(args) < 2 || !equalFold(args[0], "limit") {
			return Err(ErrSyntax)
		}
		if limit, ok = redistext.ParseInt(args[1]); !ok || limit < 0 {
			return Err(ErrLimitNegative)
		}
	}
	sets, ok := c.sets(keys)
	if !ok {
		return wrongType
	}
	found := int64(0)
	c.intersect(sets, func(string) bool {
		found++
		return found != limit // a limit of 0 is no limit
	})
	return Int(found)
}

func cmdSInterStore(c *Ctx) Reply {
	sets, ok := c.sets(c.Args[2:])
	if !ok {
		return wrongType
	}
	room := c.storeRoom(c.form().setEntries, treeMemberSize)
	names := c.common(sets, room)
	if room.full() {
		return room.refuse()
	}
	return c.storeSet("sinterstore", names)
}

func cmdSUnion(c *Ctx) Reply { return c.combine(c.unite) }
func cmdSDiff(c *Ctx) Reply  { return c.combine(c.subtract) }

func (c *Ctx) combine(fn func([]*MemberSet, *resultRoom) *MemberSet) Reply {
	sets, ok := c.sets(c.Args[1:])
	if !ok {
		return wrongType
	}
	room := c.replyRoom(1)
	result := fn(sets, room)
	if room.full() {
		return room.refuse()
	}
	return c.setReply(result)
}

func cmdSUnionStore(c *Ctx) Reply { return c.combineStore("sunionstore", c.unite) }
func cmdSDiffStore(c *Ctx) Reply  { return c.combineStore("sdiffstore", c.subtract) }

func (c *Ctx) combineStore(event string, fn func([]*MemberSet, *resultRoom) *MemberSet) Reply {
	sets, ok := c.sets(c.Args[2:])
	if !ok {
		return wrongType
	}
	room := c.storeRoom(c.form().setEntries, treeMemberSize)
	result := fn(sets, room)
	if room.full() {
		return room.refuse()
	}
	names := make([]string, 0, result.Len())
	result.Each(func(name string) bool {
		c.work(stepsOf(name))
		names = append(names, name)
		return true
	})
	return c.storeSet(event, names)
}

// discard deletes a key, if it exists, to make room for a result.
func (c *Ctx) discard(key []byte) (existed bool) {
	existed = c.LookupWrite(c.DB, key) != nil
	if existed {
		c.Delete(c.DB, key)
	}
	return existed
}

// storeSet replaces the key at Args[1] by a set and replies with its size. An empty set leaves no
// key.
func (c *Ctx) storeSet(event string, names []string) Reply {
	existed := c.overwrite(c.Args[1], func() {
		for _, name := range names {
			c.work(stepsOf(name))
			c.SetAdd(c.DB, c.Args[1], name)
		}
	})
	c.stored(eventSet, event, c.Args[1], existed, len(names) == 0)
	return Int(int64(len(names)))
}

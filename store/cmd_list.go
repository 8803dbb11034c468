package store

import (
	"github.com/lockstep-io/lockstep/store/redistext"
)

// listCommands are the commands on lists as a whole and by index.
var listCommands = []Command{
	{
		Name: "lpush", Arity: -3, Flags: Write | DenyOOM | Fast, Group: "list", Since: "1.0.0",
		Keys:    firstKey(KeyRW | KeyInsert),
		Summary: "Adds elements at the head of a list, creating it if needed.",
		Usage:   "key element [element ...]", Run: cmdLPush,
	},
	{
		Name: "lpushx", Arity: -3, Flags: Write | DenyOOM | Fast, Group: "list", Since: "2.2.0",
		Keys:    firstKey(KeyRW | KeyInsert),
		Summary: "Adds elements at the head of a list that exists.",
		Usage:   "key element [element ...]", Run: cmdLPushX,
	},
	{
		Name: "rpush", Arity: -3, Flags: Write | DenyOOM | Fast, Group: "list", Since: "1.0.0",
		Keys:    firstKey(KeyRW | KeyInsert),
		Summary: "Adds elements at the tail of a list, creating it if needed.",
		Usage:   "key element [element ...]", Run: cmdRPush,
	},
	{
		Name: "rpushx", Arity: -3, Flags: Write | DenyOOM | Fast, Group: "list", Since: "2.2.0",
		Keys:    firstKey(KeyRW | KeyInsert),
		Summary: "Adds elements at the tail of a list that exists.",
		Usage:   "key element [element ...]", Run: cmdRPushX,
	},
	{
		Name: "llen", Arity: 2, Flags: ReadOnly | Fast, Group: "list", Since: "1.0.0",
		Keys:    firstKey(KeyRO),
		Summary: "Returns the length of a list.",
		Usage:   "key", Run: cmdLLen,
	},
	{
		Name: "lindex", Arity: 3, Flags: ReadOnly, Group: "list", Since: "1.0.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Returns the element of a list at an index.",
		Usage:   "key index", Run: cmdLIndex,
	},
	{
		Name: "lset", Arity: 4, Flags: Write | DenyOOM, Group: "list", Since: "1.0.0",
		Keys:    firstKey(KeyRW | KeyUpdate),
		Summary: "Replaces the element of a list at an index.",
		Usage:   "key index element", Run: cmdLSet,
	},
	{
		Name: "lrange", Arity: 4, Flags: ReadOnly, Group: "list", Since: "1.0.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Returns a range of the elements of a list.",
		Usage:   "key start stop", Run: cmdLRange,
	},
	{
		Name: "ltrim", Arity: 4, Flags: Write, Group: "list", Since: "1.0.0",
		Keys:    firstKey(KeyRW | KeyDelete),
		Summary: "Removes the elements of a list outside a range.",
		Usage:   "key start stop", Run: cmdLTrim,
	},
}

func cmdLPush(c *Ctx) Reply  { return c.push(c.PushHead, "lpush", true) }
func cmdLPushX(c *Ctx) Reply { return c.push(c.PushHead, "lpush", false) }
func cmdRPush(c *Ctx) Reply  { return c.push(c.PushTail, "rpush", true) }
func cmdRPushX(c *Ctx) Reply { return c.push(c.PushTail, "rpush", false) }

// push adds all values at one end. create says whether to create a missing list.
func (c *Ctx) push(add func(db int, key []byte, value string), event string, create bool) Reply {
	e, ok := c.write(TypeList)
	switch {
	case !ok:
		return wrongType
	case e == nil && !create:
		return Zero
	}
	n := len(c.Args) - 2
	if e != nil {
		n += e.List().Len()
	}
	for i := 2; i < len(c.Args); i++ {
		c.work(1 + len(c.Args[i])/64)
		add(c.DB, c.Args[1], c.Arg(i))
	}
	c.eventOn(eventList, event)
	return Int(int64(n))
}

func cmdLLen(c *Ctx) Reply { return c.count(TypeList) }

// count replies with the number of elements of the key at Args[1].
func (c *Ctx) count(t Type) Reply {
	e, ok := c.read(t)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return Zero
	}
	return Int(int64(e.elems.Len()))
}

// listIndex converts an index, negative from the tail, to one from the head, and reports whether it is in range.
func listIndex(i int64, n int) (int, bool) {
	if i < 0 {
		i += int64(n)
	}
	return int(i), i >= 0 && i < int64(n)
}

// cmdLIndex checks the index only if the list exists, as Redis does.
func cmdLIndex(c *Ctx) Reply {
	e, ok := c.read(TypeList)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return Nil
	}
	n, ok := redistext.ParseInt(c.Args[2])
	if !ok {
		return notInteger
	}
	i, ok := listIndex(n, e.List().Len())
	if !ok {
		return Nil
	}
	return Str(e.List().At(i))
}

func cmdLSet(c *Ctx) Reply {
	e, ok := c.write(TypeList)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return Err(ErrNoSuchKey)
	}
	n, ok := redistext.ParseInt(c.Args[2])
	if !ok {
		return notInteger
	}
	i, ok := listIndex(n, e.List().Len())
	if !ok {
		return Err(ErrIndexRange)
	}
	c.ListSet(c.DB, c.Args[1], i, c.Arg(3))
	c.eventOn(eventList, "lset")
	return OK
}

// indexRange parses two inclusive indexes, at Args[i] and Args[i+1].
func (c *Ctx) indexRange(i int) (start, end int64, fault *Reply) {
	start, ok := redistext.ParseInt(c.Args[i])
	end, ok2 := redistext.ParseInt(c.Args[i+1])
	if !ok || !ok2 {
		return 0, 0, &notInteger
	}
	return start, end, nil
}

// rankRange converts inclusive indexes to the bounds of a slice. An end before the first element gives an empty range, unlike in
// clampRange.
func rankRange(start, end int64, n int) (from, to int) {
	length := int64(n)
	if start < 0 {
		start = max(start+length, 0)
	}
	if end < 0 {
		end += length
	}
	if end = min(end, length-1); start > end {
		return 0, 0
	}
	return int(start), int(end) + 1
}

func cmdLRange(c *Ctx) Reply {
	start, end, fault := c.indexRange(2)
	if fault != nil {
		return *fault
	}
	e, ok := c.read(TypeList)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return emptyList
	}
	from, to := rankRange(start, end, e.List().Len())
	if refusal, refused := c.tooMany(int64(to - from)); refused {
		return refusal
	}
	return List(c.listSlice(e.List(), from, to)...)
}

// listSlice returns the elements with indexes in [from, to).
func (c *Ctx) listSlice(l *Deque, from, to int) []Reply {
	if from >= to {
		return nil
	}
	elems := make([]Reply, 0, to-from)
	l.Each(from, func(value string) bool {
		c.work(1)
		elems = append(elems, Str(value))
		return len(elems) < to-from
	})
	return elems
}

func cmdLTrim(c *Ctx) Reply {
	start, end, fault := c.indexRange(2)
	if fault != nil {
		return *fault
	}
	e, ok := c.write(TypeList)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return OK
	}
	n := e.List().Len()
	from, to := rankRange(start, end, n)
	if from < to { // otherwise the whole list is deleted at once
		c.work(n - (to - from))
	}
	if from == 0 && to == n {
		// To Redis, a trim that removes nothing is a change, too, so WATCH must see a write.
		c.ListSet(c.DB, c.Args[1], 0, e.List().At(0))
	}
	c.ListRemove(c.DB, c.Args[1], to, n-to)
	c.ListRemove(c.DB, c.Args[1], 0, from)
	c.eventOn(eventList, "ltrim")
	c.eventIfGone(c.Args[1])
	return OK
}

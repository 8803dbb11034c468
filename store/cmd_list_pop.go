package store

import (
	"bytes"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// listPopCommands are the commands that take elements from the ends of lists.
var listPopCommands = []Command{
	{
		Name: "lpop", Arity: -2, Flags: Write | Fast, Group: "list", Since: "1.0.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyDelete),
		Summary: "Removes elements from the head of a list and returns them.",
		Usage:   "key [count]", Run: cmdLPop,
	},
	{
		Name: "rpop", Arity: -2, Flags: Write | Fast, Group: "list", Since: "1.0.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyDelete),
		Summary: "Removes elements from the tail of a list and returns them.",
		Usage:   "key [count]", Run: cmdRPop,
	},
	{
		Name: "lmpop", Arity: -4, Flags: Write | MovableKeys, Group: "list", Since: "7.0.0",
		Keys:    []KeySpec{{NumKeys: 1, Step: 1, Flags: KeyRW | KeyAccess | KeyDelete}},
		Summary: "Removes elements from the first of several lists that is not empty and returns them.",
		Usage:   "numkeys key [key ...] <LEFT | RIGHT> [COUNT count]", Run: cmdLMPop,
	},
	{
		Name: "lmove", Arity: 5, Flags: Write | DenyOOM, Group: "list", Since: "6.2.0",
		Keys:    []KeySpec{{Begin: 1, Step: 1, Flags: KeyRW | KeyAccess | KeyDelete}, {Begin: 2, Step: 1, Flags: KeyRW | KeyInsert}},
		Summary: "Moves an element from one end of a list to an end of another and returns it.",
		Usage:   "source destination <LEFT | RIGHT> <LEFT | RIGHT>", Run: cmdLMove,
	},
	{
		Name: "rpoplpush", Arity: 3, Flags: Write | DenyOOM, Group: "list", Since: "1.2.0",
		Keys:       []KeySpec{{Begin: 1, Step: 1, Flags: KeyRW | KeyAccess | KeyDelete}, {Begin: 2, Step: 1, Flags: KeyRW | KeyInsert}},
		Deprecated: "6.2.0", ReplacedBy: "`LMOVE` with the `RIGHT` and `LEFT` arguments",
		Summary: "Moves an element from the tail of a list to the head of another and returns it.",
		Usage:   "source destination", Run: cmdRPopLPush,
	},
}

func cmdLPop(c *Ctx) Reply { return c.pop(true) }
func cmdRPop(c *Ctx) Reply { return c.pop(false) }

// pop removes one element and replies with it. With a count at Args[2] it removes up to count elements, and replies with a list.
func (c *Ctx) pop(head bool) Reply {
	if len(c.Args) > 3 {
		return Err(ErrWrongArgs(c.Cmd.FullName()))
	}
	count, missing := int64(1), Nil
	if len(c.Args) == 3 {
		var ok bool
		if count, ok = redistext.ParseInt(c.Args[2]); !ok || count < 0 {
			return notPositive
		}
		missing = Reply{Kind: NullArray}
	}
	e, ok := c.write(TypeList)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return missing
	}
	if refusal, refused := c.tooMany(min(count, int64(e.List().Len()))); refused {
		return refusal
	}
	elems := c.take(c.Args[1], e.List(), head, count)
	if len(c.Args) == 3 {
		return List(elems...)
	}
	return elems[0]
}

var notPositive = Err(ErrNotPositive)

// take removes up to count elements from one end of the list at key and
// returns them in the order of removal.
func (c *Ctx) take(key []byte, l *Deque, head bool, count int64) []Reply {
	length := l.Len()
	n := int(min(count, int64(length)))
	from := 0
	elems := make([]Reply, 0, n)
	visit := func(value string) bool {
		c.work(1)
		elems = append(elems, Str(value))
		return len(elems) < n
	}
	switch {
	case n == 0:
	case head:
		l.Each(0, visit)
	default:
		from = length - n
		l.eachBack(length-1, visit)
	}
	c.ListRemove(c.DB, key, from, n)
	if n > 0 {
		c.event(eventList, popEvent(head), key)
		c.eventIfGone(key)
	}
	return elems
}

func popEvent(head bool) string {
	if head {
		return "lpop"
	}
	return "rpop"
}

// mpop holds the arguments of a command that pops from one of several keys.
type mpop struct {
	keys  [][]byte
	first bool // pop the head or the lowest score; else the tail or the highest score
	count int64
}

// parseMPop parses the arguments from the number of keys on. first and last are the words for the
// two ends.
func parseMPop(args [][]byte, first, last string) (m mpop, fault *Reply) {
	n, ok := redistext.ParseInt(args[0])
	if !ok || n <= 0 {
		return m, &badNumKeys
	}
	if n >= int64(len(args)-1) {
		return m, &syntaxError
	}
	m.keys, args = args[1:1+n], args[1+n:]
	m.first = equalFold(args[0], first)
	if !m.first && !equalFold(args[0], last) {
		return m, &syntaxError
	}
	m.count = 1
	switch args = args[1:]; {
	case len(args) == 0:
	case len(args) < 2 || !equalFold(args[0], "count"):
		return m, &syntaxError
	default:
		if m.count, ok = redistext.ParseInt(args[1]); !ok || m.count <= 0 {
			return m, &badCount
		}
		if len(args) > 2 {
			return m, &syntaxError
		}
	}
	return m, nil
}

var (
	badNumKeys = Err(ErrNumKeys)
	badCount   = Err(ErrCountPositive)
)

func cmdLMPop(c *Ctx) Reply {
	m, fault := parseMPop(c.Args[1:], "left", "right")
	if fault != nil {
		return *fault
	}
	r, _ := c.popFirst(m)
	return r
}

// popFirst pops from the first list that exists. found is false if none exists, and true if r is an error.
func (c *Ctx) popFirst(m mpop) (r Reply, found bool) {
	key, e, ok := c.firstOf(m.keys, TypeList)
	switch {
	case !ok:
		return wrongType, true
	case e == nil:
		return Reply{Kind: NullArray}, false
	}
	if refusal, refused := c.tooMany(min(m.count, int64(e.List().Len()))); refused {
		return refusal, true
	}
	return List(Str(string(key)), List(c.take(key, e.List(), m.first, m.count)...)), true
}

// parseEnd parses LEFT or RIGHT.
func parseEnd(arg []byte) (head, ok bool) {
	head = equalFold(arg, "left")
	return head, head || equalFold(arg, "right")
}

func cmdLMove(c *Ctx) Reply {
	from, ok := parseEnd(c.Args[3])
	to, ok2 := parseEnd(c.Args[4])
	if !ok || !ok2 {
		return Err(ErrSyntax)
	}
	r, _ := c.moveElement(from, to)
	return r
}

func cmdRPopLPush(c *Ctx) Reply {
	r, _ := c.moveElement(false, true)
	return r
}

// moveElement moves an element from the list at Args[1] to the list at Args[2]. found is false if there is none.
func (c *Ctx) moveElement(fromHead, toHead bool) (r Reply, found bool) {
	source, target := c.Args[1], c.Args[2]
	_, e, ok := c.firstOf(c.Args[1:2], TypeList)
	switch {
	case !ok:
		return wrongType, true
	case e == nil:
		return Nil, false
	}
	if to := c.LookupWrite(c.DB, target); to != nil && to.typ != TypeList {
		return wrongType, true
	}
	l := e.List()
	i := 0
	if !fromHead {
		i = l.Len() - 1
	}
	value := l.At(i)
	add, event := c.PushTail, "rpush"
	if toHead {
		add, event = c.PushHead, "lpush"
		if bytes.Equal(source, target) {
			i++
		}
	}
	// Push first: a list that moves its only element to itself must not be deleted in between.
	add(c.DB, target, value)
	c.event(eventList, event, target)
	c.ListRemove(c.DB, source, i, 1)
	c.event(eventList, popEvent(fromHead), source)
	c.eventIfGone(source)
	return Str(value), true
}

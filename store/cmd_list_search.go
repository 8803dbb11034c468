package store

import (
	"math"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// listSearchCommands are the commands that look for elements of lists.
var listSearchCommands = []Command{
	{
		Name: "linsert", Arity: 5, Flags: Write | DenyOOM, Group: "list", Since: "2.2.0",
		Keys:    firstKey(KeyRW | KeyInsert),
		Summary: "Inserts an element into a list before or after another.",
		Usage:   "key <BEFORE | AFTER> pivot element", Run: cmdLInsert,
	},
	{
		Name: "lrem", Arity: 4, Flags: Write, Group: "list", Since: "1.0.0",
		Keys:    firstKey(KeyRW | KeyDelete),
		Summary: "Removes elements of a list that are equal to a value.",
		Usage:   "key count element", Run: cmdLRem,
	},
	{
		Name: "lpos", Arity: -3, Flags: ReadOnly, Group: "list", Since: "6.0.6",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Returns the indexes of the elements of a list that are equal to a value.",
		Usage:   "key element [RANK rank] [COUNT num-matches] [MAXLEN len]", Run: cmdLPos,
	},
}

func cmdLInsert(c *Ctx) Reply {
	after := equalFold(c.Args[2], "after")
	if !after && !equalFold(c.Args[2], "before") {
		return Err(ErrSyntax)
	}
	e, ok := c.write(TypeList)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return Zero
	}
	l, pivot, at := e.List(), bytesToString(c.Args[3]), 0
	found := false
	l.Each(0, func(value string) bool {
		c.work(1)
		if found = value == pivot; !found || after {
			at++
		}
		return !found
	})
	if !found {
		return Int(-1)
	}
	n := l.Len() + 1
	c.ListInsert(c.DB, c.Args[1], at, c.Arg(4))
	c.eventOn(eventList, "linsert")
	return Int(int64(n))
}

// cmdLRem begins at the tail if the count is negative, and removes all matches if it is 0.
func cmdLRem(c *Ctx) Reply {
	count, ok := redistext.ParseInt(c.Args[2])
	if !ok {
		return notInteger
	}
	e, ok := c.write(TypeList)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return Zero
	}
	back := count < 0
	limit := max(count, -max(count, -math.MaxInt64))
	var found []int
	eachIndex(e.List(), back, func(i int, value string) bool {
		c.work(1)
		if value == bytesToString(c.Args[3]) {
			found = append(found, i)
		}
		return limit == 0 || int64(len(found)) < limit
	})
	for n, i := range found {
		c.work(1)
		if !back {
			i -= n // the elements removed before were in front of this one
		}
		c.ListRemove(c.DB, c.Args[1], i, 1)
	}
	if len(found) > 0 {
		c.eventOn(eventList, "lrem")
		c.eventIfGone(c.Args[1])
	}
	return Int(int64(len(found)))
}

// eachIndex calls fn for the elements with their indexes until fn returns false. It begins at the tail if back is
// true, else at the head.
func eachIndex(l *Deque, back bool, fn func(i int, value string) bool) {
	if back {
		i := l.Len()
		l.eachBack(i-1, func(value string) bool {
			i--
			return fn(i, value)
		})
		return
	}
	i := -1
	l.Each(0, func(value string) bool {
		i++
		return fn(i, value)
	})
}

// lposOptions are the options of LPOS. A count of -1 means a single index as the reply, not a list.
type lposOptions struct {
	rank, count, maxlen int64
}

func parseLPos(args [][]byte) (o lposOptions, fault *Reply) {
	o = lposOptions{rank: 1, count: -1}
	for ; len(args) > 0; args = args[2:] {
		if len(args) < 2 {
			return o, &syntaxError
		}
		n, ok := redistext.ParseInt(args[1])
		refuse := func(e Error) (lposOptions, *Reply) {
			r := Err(e)
			return o, &r
		}
		switch word := args[0]; {
		case equalFold(word, "rank"):
			if !ok {
				return o, &notInteger
			}
			if n == 0 {
				return refuse(ErrRankZero)
			}
			o.rank = n
		case equalFold(word, "count"):
			if !ok || n < 0 {
				return refuse(ErrCountNegative)
			}
			o.count = n
		case equalFold(word, "maxlen"):
			if !ok || n < 0 {
				return refuse(ErrMaxLen)
			}
			o.maxlen = n
		default:
			return o, &syntaxError
		}
	}
	return o, nil
}

func cmdLPos(c *Ctx) Reply {
	o, fault := parseLPos(c.Args[3:])
	if fault != nil {
		return *fault
	}
	e, ok := c.read(TypeList)
	if !ok {
		return wrongType
	}
	found := []Reply{}
	if e != nil {
		found = o.search(c, e.List(), bytesToString(c.Args[2]))
	}
	if refusal, refused := c.tooMany(int64(len(found))); refused {
		return refusal
	}
	switch {
	case o.count >= 0:
		return List(found...)
	case len(found) == 0:
		return Nil
	}
	return found[0]
}

// search returns the indexes that LPOS asks for. It stops when they are too many for a reply.
func (o *lposOptions) search(c *Ctx, l *Deque, want string) []Reply {
	found := []Reply{}
	limit := o.count
	if limit < 0 {
		limit = 1
	}
	skip := uint64(o.rank) - 1
	if o.rank < 0 {
		skip = -uint64(o.rank) - 1
	}
	visited, most := int64(0), c.MaxReply()/int64(ReplySize)
	eachIndex(l, o.rank < 0, func(i int, value string) bool {
		visited++
		c.work(1)
		if value == want {
			if skip > 0 {
				skip--
			} else {
				found = append(found, Int(int64(i)))
			}
		}
		return (o.maxlen == 0 || visited < o.maxlen) && (limit == 0 || int64(len(found)) < limit) && int64(len(found)) <= most
	})
	return found
}

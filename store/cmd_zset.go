package store

import (
	"math"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// sortedSetCommands are the commands on members of sorted sets.
var sortedSetCommands = []Command{
	{
		Name: "zadd", Arity: -4, Flags: Write | DenyOOM | Fast, Group: "sorted-set", Since: "1.2.0",
		Keys:    firstKey(KeyRW | KeyUpdate),
		Summary: "Adds members to a sorted set or changes their scores.",
		Usage:   "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]", Run: cmdZAdd,
	},
	{
		Name: "zincrby", Arity: 4, Flags: Write | DenyOOM | Fast, Group: "sorted-set", Since: "1.2.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyUpdate),
		Summary: "Adds to the score of a member of a sorted set.",
		Usage:   "key increment member", Run: cmdZIncrBy,
	},
	{
		Name: "zrem", Arity: -3, Flags: Write | Fast, Group: "sorted-set", Since: "1.2.0",
		Keys:    firstKey(KeyRW | KeyDelete),
		Summary: "Removes members from a sorted set.",
		Usage:   "key member [member ...]", Run: cmdZRem,
	},
	{
		Name: "zscore", Arity: 3, Flags: ReadOnly | Fast, Group: "sorted-set", Since: "1.2.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Returns the score of a member of a sorted set.",
		Usage:   "key member", Run: cmdZScore,
	},
	{
		Name: "zmscore", Arity: -3, Flags: ReadOnly | Fast, Group: "sorted-set", Since: "6.2.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Returns the scores of several members of a sorted set.",
		Usage:   "key member [member ...]", Run: cmdZMScore,
	},
	{
		Name: "zcard", Arity: 2, Flags: ReadOnly | Fast, Group: "sorted-set", Since: "1.2.0",
		Keys:    firstKey(KeyRO),
		Summary: "Counts the members of a sorted set.",
		Usage:   "key", Run: cmdZCard,
	},
	{
		Name: "zrank", Arity: -3, Flags: ReadOnly | Fast, Group: "sorted-set", Since: "2.0.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Returns the rank of a member of a sorted set, by ascending score.",
		Usage:   "key member [WITHSCORE]", Run: cmdZRank,
	},
	{
		Name: "zrevrank", Arity: -3, Flags: ReadOnly | Fast, Group: "sorted-set", Since: "2.0.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Returns the rank of a member of a sorted set, by descending score.",
		Usage:   "key member [WITHSCORE]", Run: cmdZRevRank,
	},
}

// zaddFlags are the options of ZADD.
type zaddFlags struct{ nx, xx, gt, lt, ch, incr bool }

// parse parses the leading options and returns the arguments after them.
func (f *zaddFlags) parse(args [][]byte) [][]byte {
	for ; len(args) > 0; args = args[1:] {
		switch word := args[0]; {
		case equalFold(word, "nx"):
			f.nx = true
		case equalFold(word, "xx"):
			f.xx = true
		case equalFold(word, "gt"):
			f.gt = true
		case equalFold(word, "lt"):
			f.lt = true
		case equalFold(word, "ch"):
			f.ch = true
		case equalFold(word, "incr"):
			f.incr = true
		default:
			return args
		}
	}
	return args
}

func (f *zaddFlags) check(pairs [][]byte) *Reply {
	fault := Reply{}
	switch {
	case len(pairs) == 0 || len(pairs)%2 == 1:
		return &syntaxError
	case f.nx && f.xx:
		fault = Err(ErrNXAndXX)
	case f.gt && f.nx || f.lt && f.nx || f.gt && f.lt:
		fault = Err(ErrGTLTNX)
	case f.incr && len(pairs) > 2:
		fault = Err(ErrIncrPairs)
	default:
		return nil
	}
	return &fault
}

func cmdZAdd(c *Ctx) Reply    { return c.zadd(zaddFlags{}) }
func cmdZIncrBy(c *Ctx) Reply { return c.zadd(zaddFlags{incr: true}) }

func (c *Ctx) zadd(f zaddFlags) Reply {
	pairs := f.parse(c.Args[2:])
	if fault := f.check(pairs); fault != nil {
		return *fault
	}
	scores := make([]float64, len(pairs)/2)
	for i := range scores {
		c.work(1)
		var ok bool
		if scores[i], ok = redistext.ParseFloat(pairs[2*i]); !ok {
			return Err(ErrNotFloat)
		}
	}
	e, ok := c.write(TypeSortedSet)
	if !ok {
		return wrongType
	}
	added, updated := int64(0), int64(0)
	defer func() {
		if added+updated > 0 {
			c.eventOn(eventSortedSet, f.event())
		}
	}()
	for i, score := range scores {
		name := bytesToString(pairs[2*i+1])
		old, had := 0.0, false
		if e != nil {
			old, had = c.scoreOf(e.Scores(), name)
		}
		if had && f.incr && !f.nx {
			score += old
		}
		switch {
		case math.IsNaN(score):
			return Err(ErrScoreNaN)
		case !f.wants(had, old, score):
			if f.incr {
				return Nil
			}
			continue
		}
		if !had || score != old {
			c.ScoreSet(c.DB, c.Args[1], name, score)
			added += 1 - Flag(had).Int
			updated += Flag(had).Int
			if len(scores) > 1 {
				e = c.Txn.Lookup(c.DB, c.Args[1]) // get the new entry: the first write created or copied it
			}
		}
		if f.incr {
			return Float(score)
		}
	}
	if f.ch {
		added += updated
	}
	return Int(added)
}

// wants reports whether the options allow the score to be set.
func (f *zaddFlags) wants(had bool, old, score float64) bool {
	if !had {
		return !f.xx
	}
	return !f.nx && (!f.gt || score > old) && (!f.lt || score < old)
}

func cmdZRem(c *Ctx) Reply {
	e, ok := c.write(TypeSortedSet)
	if !ok {
		return wrongType
	}
	n := int64(0)
	for _, arg := range c.Args[2:] {
		if e == nil {
			break
		}
		name := bytesToString(arg)
		if _, had := c.scoreOf(e.Scores(), name); had {
			c.ScoreRemove(c.DB, c.Args[1], name)
			n++
			e = c.Txn.Lookup(c.DB, c.Args[1]) // get the new entry: it is a copy now, or was deleted with its last member
		}
	}
	if n > 0 {
		c.eventOn(eventSortedSet, "zrem")
		c.eventIfGone(c.Args[1])
	}
	return Int(n)
}

// score returns the score of a member of e as a reply, null if e is nil or has no such member.
func (c *Ctx) score(e *Entry, name []byte) Reply {
	if e == nil {
		c.work(1)
		return Nil
	}
	if score, ok := c.scoreOf(e.Scores(), bytesToString(name)); ok {
		return Float(score)
	}
	return Nil
}

func cmdZScore(c *Ctx) Reply {
	e, ok := c.read(TypeSortedSet)
	if !ok {
		return wrongType
	}
	return c.score(e, c.Args[2])
}

func cmdZMScore(c *Ctx) Reply {
	e, ok := c.read(TypeSortedSet)
	if !ok {
		return wrongType
	}
	if refusal, refused := c.tooMany(int64(len(c.Args) - 2)); refused {
		return refusal
	}
	elems := make([]Reply, len(c.Args)-2)
	for i, name := range c.Args[2:] {
		elems[i] = c.score(e, name)
	}
	return List(elems...)
}

func cmdZCard(c *Ctx) Reply    { return c.count(TypeSortedSet) }
func cmdZRank(c *Ctx) Reply    { return c.rank(false) }
func cmdZRevRank(c *Ctx) Reply { return c.rank(true) }

// rank implements ZRANK or, if down is true, ZREVRANK. Both have the option WITHSCORE, as in Redis 7.2.
func (c *Ctx) rank(down bool) Reply {
	none, withScore := Nil, len(c.Args) == 4
	switch {
	case len(c.Args) > 4:
		return Err(ErrWrongArgs(c.Cmd.FullName()))
	case withScore && !equalFold(c.Args[3], "withscore"):
		return Err(ErrSyntax)
	case withScore:
		none = Reply{Kind: NullArray}
	}
	e, ok := c.read(TypeSortedSet)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return none
	}
	z, name := e.Scores(), bytesToString(c.Args[2])
	score, ok := z.Score(name)
	if !ok {
		return none
	}
	rank := z.Rank(Scored{name, score})
	if down {
		rank = z.Len() - 1 - rank
	}
	if withScore {
		return List(Int(int64(rank)), Float(score))
	}
	return Int(int64(rank))
}

func (f *zaddFlags) event() string {
	if f.incr {
		return "zincr"
	}
	return "zadd"
}

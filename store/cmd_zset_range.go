package store

import (
	"math"
	"slices"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// sortedSetRangeCommands are the commands that return ranges of sorted sets.
var sortedSetRangeCommands = []Command{
	{
		Name: "zrange", Arity: -4, Flags: ReadOnly, Group: "sorted-set", Since: "1.2.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Returns a range of the members of a sorted set.",
		Usage:   "key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]", Run: cmdZRange,
	},
	{
		Name: "zrangestore", Arity: -5, Flags: Write | DenyOOM, Group: "sorted-set", Since: "6.2.0",
		Keys:    []KeySpec{{Begin: 1, Step: 1, Flags: KeyOW | KeyUpdate}, {Begin: 2, Step: 1, Flags: KeyRO | KeyAccess}},
		Summary: "Stores a range of the members of a sorted set.",
		Usage:   "dst src min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]", Run: cmdZRangeStore,
	},
	{
		Name: "zrangebyscore", Arity: -4, Flags: ReadOnly, Group: "sorted-set", Since: "1.0.5",
		Keys:       firstKey(KeyRO | KeyAccess),
		Deprecated: "6.2.0", ReplacedBy: "`ZRANGE` with the `BYSCORE` argument",
		Summary: "Returns the members of a sorted set in a range of scores.",
		Usage:   "key min max [WITHSCORES] [LIMIT offset count]", Run: cmdZRangeByScore,
	},
	{
		Name: "zrevrange", Arity: -4, Flags: ReadOnly, Group: "sorted-set", Since: "1.2.0",
		Keys:       firstKey(KeyRO | KeyAccess),
		Deprecated: "6.2.0", ReplacedBy: "`ZRANGE` with the `REV` argument",
		Summary: "Returns a range of the members of a sorted set, highest score first.",
		Usage:   "key start stop [WITHSCORES]", Run: cmdZRevRange,
	},
	{
		Name: "zrevrangebyscore", Arity: -4, Flags: ReadOnly, Group: "sorted-set", Since: "2.2.0",
		Keys:       firstKey(KeyRO | KeyAccess),
		Deprecated: "6.2.0", ReplacedBy: "`ZRANGE` with the `REV` and `BYSCORE` arguments",
		Summary: "Returns the members of a sorted set in a range of scores, highest first.",
		Usage:   "key max min [WITHSCORES] [LIMIT offset count]", Run: cmdZRevRangeByScore,
	},
	{
		Name: "zrangebylex", Arity: -4, Flags: ReadOnly, Group: "sorted-set", Since: "2.8.9",
		Keys:       firstKey(KeyRO | KeyAccess),
		Deprecated: "6.2.0", ReplacedBy: "`ZRANGE` with the `BYLEX` argument",
		Summary: "Returns the members of a sorted set in a lexicographic range.",
		Usage:   "key min max [LIMIT offset count]", Run: cmdZRangeByLex,
	},
	{
		Name: "zrevrangebylex", Arity: -4, Flags: ReadOnly, Group: "sorted-set", Since: "2.8.9",
		Keys:       firstKey(KeyRO | KeyAccess),
		Deprecated: "6.2.0", ReplacedBy: "`ZRANGE` with the `REV` and `BYLEX` arguments",
		Summary: "Returns the members of a sorted set in a lexicographic range, last first.",
		Usage:   "key max min [LIMIT offset count]", Run: cmdZRevRangeByLex,
	},
}

// zrangeWay says how a command gives a range: by rank, score or member.
type zrangeWay uint8

const (
	anyWay zrangeWay = iota // an option may choose the way
	byRank
	byScore
	byLex
)

// zrangeCall is a parsed call of a command that returns a range.
type zrangeCall struct {
	way           zrangeWay
	down          bool
	scores        bool
	offset, limit int64 // a negative limit means no limit
	span          zrange
}

// parse parses the options after the bounds of the range. Store commands accept no WITHSCORES, and
// only ZRANGE and ZRANGESTORE accept REV, BYLEX and BYSCORE.
func (z *zrangeCall) parse(args [][]byte, store bool) *Reply {
	free := z.way == anyWay
	z.limit = -1
	for ; len(args) > 0; args = args[1:] {
		switch word := args[0]; {
		case equalFold(word, "withscores") && !store:
			z.scores = true
		case equalFold(word, "limit") && len(args) >= 3:
			var ok, ok2 bool
			z.offset, ok = redistext.ParseInt(args[1])
			z.limit, ok2 = redistext.ParseInt(args[2])
			if !ok || !ok2 {
				return &notInteger
			}
			args = args[2:]
		case equalFold(word, "rev") && free && !z.down:
			z.down = true
		case equalFold(word, "bylex") && z.way == anyWay:
			z.way = byLex
		case equalFold(word, "byscore") && z.way == anyWay:
			z.way = byScore
		default:
			return &syntaxError
		}
	}
	if z.way == anyWay {
		z.way = byRank
	}
	switch {
	case z.limit != -1 && z.way == byRank:
		return &limitByRank
	case z.scores && z.way == byLex:
		return &scoresByLex
	}
	return nil
}

var (
	limitByRank = Err(ErrLimitByRank)
	scoresByLex = Err(ErrScoresByLex)
)

// parseSpan parses the bounds of the range. A descending range by score or member has the upper
// bound first.
func (z *zrangeCall) parseSpan(min, max []byte) (fault *Reply) {
	if z.down && z.way != byRank {
		min, max = max, min
	}
	switch z.way {
	case byScore:
		z.span, fault = parseScoreSpan(min, max)
	case byLex:
		z.span, fault = parseLexSpan(min, max)
	default:
		z.span, fault = parseRankSpan(min, max)
	}
	return fault
}

// of returns the members in the range, in the order of the reply. ok is false if there are more than the argument most.
func (z *zrangeCall) of(c *Ctx, set *SortedSet, most int64) (list []Scored, ok bool) {
	from, to := z.span.ranks(set, z.down)
	n, offset := int64(to-from), z.offset
	if z.way == byRank {
		offset = 0 // Redis allows and ignores LIMIT x -1
	}
	if offset < 0 || offset > n {
		return nil, true
	}
	n -= offset
	if z.limit >= 0 {
		n = min(n, z.limit)
	}
	if n == 0 || n > most {
		return nil, n == 0
	}
	list = make([]Scored, 0, n)
	visit := func(m Scored) bool {
		c.work(1)
		list = append(list, m)
		return int64(len(list)) < n
	}
	if z.down {
		set.eachBack(to-1-int(offset), visit)
	} else {
		set.Each(from+int(offset), visit)
	}
	return list, true
}

func cmdZRange(c *Ctx) Reply           { return c.zrange(zrangeCall{}) }
func cmdZRevRange(c *Ctx) Reply        { return c.zrange(zrangeCall{way: byRank, down: true}) }
func cmdZRangeByScore(c *Ctx) Reply    { return c.zrange(zrangeCall{way: byScore}) }
func cmdZRevRangeByScore(c *Ctx) Reply { return c.zrange(zrangeCall{way: byScore, down: true}) }
func cmdZRangeByLex(c *Ctx) Reply      { return c.zrange(zrangeCall{way: byLex}) }
func cmdZRevRangeByLex(c *Ctx) Reply   { return c.zrange(zrangeCall{way: byLex, down: true}) }

func (c *Ctx) zrange(z zrangeCall) Reply {
	if fault := z.parse(c.Args[4:], false); fault != nil {
		return *fault
	}
	if fault := z.parseSpan(c.Args[2], c.Args[3]); fault != nil {
		return *fault
	}
	e, ok := c.read(TypeSortedSet)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return emptyList
	}
	list, ok := z.of(c, e.Scores(), c.MaxReply()/int64(ReplySize*c.repliesPer(z.scores)))
	if !ok {
		return Err(c.ErrReply())
	}
	return c.scoredReply(list, z.scores)
}

// repliesPer returns how many values of type Reply scoredReply makes for each member.
func (c *Ctx) repliesPer(scores bool) int {
	if scores {
		return max(c.RESP, 2) // RESP3 has a list for each pair
	}
	return 1
}

// scoredReply lists members. If scores is true, it lists pairs, which RESP2 flattens.
func (c *Ctx) scoredReply(list []Scored, scores bool) Reply {
	per := c.repliesPer(scores)
	if refusal, refused := c.tooMany(int64(per) * int64(len(list))); refused {
		return refusal
	}
	elems := make([]Reply, 0, min(per, 2)*len(list))
	for _, m := range list {
		c.work(1)
		switch {
		case !scores:
			elems = append(elems, Str(m.Member))
		case c.RESP > 2:
			elems = append(elems, List(Str(m.Member), Float(m.Score)))
		default:
			elems = append(elems, Str(m.Member), Float(m.Score))
		}
	}
	return List(elems...)
}

func cmdZRangeStore(c *Ctx) Reply {
	z := zrangeCall{}
	if fault := z.parse(c.Args[5:], true); fault != nil {
		return *fault
	}
	if fault := z.parseSpan(c.Args[3], c.Args[4]); fault != nil {
		return *fault
	}
	var list []Scored
	ok := true
	if e := c.Lookup(c.DB, c.Args[2]); e != nil {
		if e.typ != TypeSortedSet {
			return wrongType
		}
		// The write of a member takes at least writeHead bytes and the bytes of the key, so max-entry-size bounds the number of
		// members.
		if list, ok = z.of(c, e.Scores(), (c.MaxEntry()+entryRoom)/int64(writeHead+len(c.Args[1]))); !ok {
			return Err(c.ErrTooBig())
		}
	}
	return c.storeScores("zrangestore", list)
}

// storeScores replaces the key at Args[1] by a sorted set and replies with its size. An empty set
// leaves no key.
func (c *Ctx) storeScores(event string, list []Scored) Reply {
	existed := c.overwrite(c.Args[1], func() { c.writeScores(c.Args[1], list) })
	c.stored(eventSortedSet, event, c.Args[1], existed, len(list) == 0)
	return Int(int64(len(list)))
}

// writeScores creates a sorted set. The compact form cannot hold -0: a set that will be large becomes large before its first -0.
func (c *Ctx) writeScores(key []byte, list []Scored) {
	form := c.Txn.form()
	large := len(list) > form.scoreEntries ||
		slices.ContainsFunc(list, func(m Scored) bool { return len(m.Member) > form.scoreValue })
	for _, m := range list {
		c.work(stepsOf(m.Member))
		if large && m.Score == 0 && math.Signbit(m.Score) {
			c.ScoreSetLarge(c.DB, key, m.Member, m.Score)
		} else {
			c.ScoreSet(c.DB, key, m.Member, m.Score)
		}
	}
}

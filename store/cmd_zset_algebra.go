package store

import (
	"math"
	"slices"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// sortedSetAlgebraCommands are the commands that combine sorted sets. They also take sets, whose
// members have the score 1.
var sortedSetAlgebraCommands = []Command{
	{
		Name: "zinter", Arity: -3, Flags: ReadOnly | MovableKeys, Group: "sorted-set", Since: "6.2.0",
		Keys:    []KeySpec{{NumKeys: 1, Step: 1, Flags: KeyRO | KeyAccess}},
		Summary: "Returns what several sorted sets have in common.",
		Usage:   "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]", Run: cmdZInter,
	},
	{
		Name: "zinterstore", Arity: -4, Flags: Write | DenyOOM | MovableKeys, Group: "sorted-set", Since: "2.0.0",
		Keys:    []KeySpec{{Begin: 1, Step: 1, Flags: KeyOW | KeyUpdate}, {NumKeys: 2, Step: 1, Flags: KeyRO | KeyAccess}},
		Summary: "Stores what several sorted sets have in common.",
		Usage:   "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>]", Run: cmdZInterStore,
	},
	{
		Name: "zintercard", Arity: -3, Flags: ReadOnly | MovableKeys, Group: "sorted-set", Since: "7.0.0",
		Keys:    []KeySpec{{NumKeys: 1, Step: 1, Flags: KeyRO | KeyAccess}},
		Summary: "Counts what several sorted sets have in common.",
		Usage:   "numkeys key [key ...] [LIMIT limit]", Run: cmdZInterCard,
	},
	{
		Name: "zunion", Arity: -3, Flags: ReadOnly | MovableKeys, Group: "sorted-set", Since: "6.2.0",
		Keys:    []KeySpec{{NumKeys: 1, Step: 1, Flags: KeyRO | KeyAccess}},
		Summary: "Returns the union of several sorted sets.",
		Usage:   "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]", Run: cmdZUnion,
	},
	{
		Name: "zunionstore", Arity: -4, Flags: Write | DenyOOM | MovableKeys, Group: "sorted-set", Since: "2.0.0",
		Keys:    []KeySpec{{Begin: 1, Step: 1, Flags: KeyOW | KeyUpdate}, {NumKeys: 2, Step: 1, Flags: KeyRO | KeyAccess}},
		Summary: "Stores the union of several sorted sets.",
		Usage:   "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>]", Run: cmdZUnionStore,
	},
	{
		Name: "zdiff", Arity: -3, Flags: ReadOnly | MovableKeys, Group: "sorted-set", Since: "6.2.0",
		Keys:    []KeySpec{{NumKeys: 1, Step: 1, Flags: KeyRO | KeyAccess}},
		Summary: "Returns what the first of several sorted sets has and the others have not.",
		Usage:   "numkeys key [key ...] [WITHSCORES]", Run: cmdZDiff,
	},
	{
		Name: "zdiffstore", Arity: -4, Flags: Write | DenyOOM | MovableKeys, Group: "sorted-set", Since: "6.2.0",
		Keys:    []KeySpec{{Begin: 1, Step: 1, Flags: KeyOW | KeyUpdate}, {NumKeys: 2, Step: 1, Flags: KeyRO | KeyAccess}},
		Summary: "Stores what the first of several sorted sets has and the others have not.",
		Usage:   "destination numkeys key [key ...]", Run: cmdZDiffStore,
	},
}

// weighted is an input of a combination: a sorted set, a set, or neither if the key is missing.
type weighted struct {
	scores  *SortedSet
	members *MemberSet
	weight  float64
	find    *finder // searches scores; nil before the first search
}

func (w *weighted) len() int {
	switch {
	case w.scores != nil:
		return w.scores.Len()
	case w.members != nil:
		return w.members.Len()
	}
	return 0
}

// score returns the score of a member, for a command that looks for many members.
func (w *weighted) score(c *Ctx, name string) (score float64, ok bool) {
	c.work(stepsOf(name))
	switch {
	case w.members != nil:
		return 1, w.members.Has(name)
	case w.scores == nil:
		return 0, false
	case w.scores.byScore != nil:
		return w.scores.Score(name)
	case w.find == nil:
		w.find = &finder{} // each input has its own finder: the Txn's finder knows one collection, but the inputs are searched in turn
	}
	score, ok, passed := w.find.score(w.scores, name)
	c.work(passed / passedPerStep)
	return score, ok
}

func (w *weighted) each(fn func(m Scored) bool) {
	switch {
	case w.scores != nil:
		w.scores.Each(0, fn)
	case w.members != nil:
		w.members.Each(func(name string) bool { return fn(Scored{name, 1}) })
	}
}

// weigh returns the weighted score of a member, 0 instead of NaN.
func (w *weighted) weigh(score float64) float64 { return notNaN(w.weight * score) }

func notNaN(f float64) float64 {
	if math.IsNaN(f) {
		return 0
	}
	return f
}

// combination is a parsed call of a command that combines sorted sets.
type combination struct {
	inputs    []weighted
	aggregate func(a, b float64) float64
	scores    bool
	limit     int64 // 0 means no limit
}

// The functions that AGGREGATE names. If b is NaN, minScore and maxScore return a, unlike math.Min and math.Max.
func sumScores(a, b float64) float64 { return notNaN(a + b) }

func minScore(a, b float64) float64 {
	if b < a {
		return b
	}
	return a
}

func maxScore(a, b float64) float64 {
	if b > a {
		return b
	}
	return a
}

// combineWords says which options a command accepts.
type combineWords struct{ weights, scores, limit bool }

// parseCombination parses the arguments from the number of keys on.
func (c *Ctx) parseCombination(args [][]byte, words combineWords) (k combination, fault *Reply) {
	n, ok := redistext.ParseInt(args[0])
	refuse := func(e Error) (combination, *Reply) {
		r := Err(e)
		return k, &r
	}
	switch {
	case !ok:
		return k, &notInteger
	case n < 1:
		return refuse(ErrNoInputKey(c.Cmd.FullName()))
	case n > int64(len(args)-1):
		return k, &syntaxError
	}
	k.aggregate = sumScores
	for _, key := range args[1 : 1+n] {
		c.work(keySteps)
		e := c.Lookup(c.DB, key)
		if e != nil && e.typ != TypeSortedSet && e.typ != TypeSet {
			return k, &wrongType
		}
		in := weighted{weight: 1}
		if e != nil {
			in.scores, in.members = e.Scores(), e.Members()
		}
		k.inputs = append(k.inputs, in)
	}
	for args = args[1+n:]; len(args) > 0; {
		used, e := k.option(c, args, words)
		if e != "" {
			return refuse(e)
		}
		args = args[used:]
	}
	return k, nil
}

// option parses the option at the start of args. used is how many of args belong to it.
func (k *combination) option(c *Ctx, args [][]byte, words combineWords) (used int, e Error) {
	switch n := len(k.inputs); {
	case words.weights && len(args) > n && equalFold(args[0], "weights"):
		for i := range k.inputs {
			c.work(1)
			var ok bool
			if k.inputs[i].weight, ok = redistext.ParseFloat(args[1+i]); !ok {
				return 0, ErrWeight
			}
		}
		return 1 + n, ""
	case words.weights && len(args) >= 2 && equalFold(args[0], "aggregate"):
		switch {
		case equalFold(args[1], "sum"):
			k.aggregate = sumScores
		case equalFold(args[1], "min"):
			k.aggregate = minScore
		case equalFold(args[1], "max"):
			k.aggregate = maxScore
		default:
			return 0, ErrSyntax
		}
		return 2, ""
	case words.scores && equalFold(args[0], "withscores"):
		k.scores = true
		return 1, ""
	case words.limit && len(args) >= 2 && equalFold(args[0], "limit"):
		var ok bool
		if k.limit, ok = redistext.ParseInt(args[1]); !ok || k.limit < 0 {
			return 0, ErrLimitNegative
		}
		return 2, ""
	}
	return 0, ErrSyntax
}

// bySize sorts the inputs, the smallest first, as Redis does: the order of additions shows in the
// last digits of the scores.
func (k *combination) bySize(c *Ctx) {
	slices.SortStableFunc(k.inputs, func(a, b weighted) int {
		c.work(1)
		return a.len() - b.len()
	})
}

// newResult returns an empty set in the large form. Redis computes in that form, too. Unlike the compact form, it can hold the
// score -0.
func newResult() *SortedSet {
	z := &SortedSet{}
	z.grow()
	return z
}

// eachCommon calls fn for the members that all inputs have, with their scores, until fn returns false.
func (k *combination) eachCommon(c *Ctx, fn func(m Scored) bool) {
	k.bySize(c)
	k.inputs[0].each(func(m Scored) bool {
		score := k.inputs[0].weigh(m.Score)
		for i := 1; i < len(k.inputs); i++ {
			other, ok := k.inputs[i].score(c, m.Member)
			if !ok {
				return true
			}
			score = k.aggregate(score, other*k.inputs[i].weight)
		}
		return fn(Scored{m.Member, score})
	})
}

func (k *combination) inter(c *Ctx, room *resultRoom) *SortedSet {
	result := newResult()
	k.eachCommon(c, func(m Scored) bool {
		result.set(m.Member, m.Score, &defaultForms, nil)
		return room.add(m.Member)
	})
	return result
}

func (k *combination) union(c *Ctx, room *resultRoom) *SortedSet {
	k.bySize(c)
	totals := map[string]float64{}
	for i := range k.inputs {
		in := &k.inputs[i]
		in.each(func(m Scored) bool {
			c.work(stepsOf(m.Member))
			score := in.weigh(m.Score)
			old, had := totals[m.Member]
			if had {
				score = k.aggregate(old, score)
			}
			totals[m.Member] = score
			return had || room.add(m.Member)
		})
		if room.full() {
			return nil
		}
	}
	result := newResult()
	for name, score := range totals {
		c.work(stepsOf(name))
		result.set(name, score, &defaultForms, nil)
	}
	return result
}

func (k *combination) diff(c *Ctx, room *resultRoom) *SortedSet {
	result := newResult()
	k.inputs[0].each(func(m Scored) bool {
		for i := 1; i < len(k.inputs); i++ {
			if _, ok := k.inputs[i].score(c, m.Member); ok {
				return true
			}
		}
		result.set(m.Member, m.Score, &defaultForms, nil)
		return room.add(m.Member)
	})
	return result
}

// combine computes a result. If the result exceeds the room, it is incomplete or nil.
type combine = func(*combination, *Ctx, *resultRoom) *SortedSet

func cmdZInter(c *Ctx) Reply { return c.combineScores(true, (*combination).inter) }
func cmdZUnion(c *Ctx) Reply { return c.combineScores(true, (*combination).union) }
func cmdZDiff(c *Ctx) Reply  { return c.combineScores(false, (*combination).diff) }

func (c *Ctx) combineScores(weights bool, fn combine) Reply {
	k, fault := c.parseCombination(c.Args[1:], combineWords{weights: weights, scores: true})
	if fault != nil {
		return *fault
	}
	room := c.replyRoom(c.repliesPer(k.scores))
	result := fn(&k, c, room)
	if room.full() {
		return room.refuse()
	}
	return c.scoredReply(c.listScores(result), k.scores)
}

func (c *Ctx) listScores(z *SortedSet) []Scored {
	list := make([]Scored, 0, z.Len())
	z.Each(0, func(m Scored) bool {
		c.work(stepsOf(m.Member))
		list = append(list, m)
		return true
	})
	return list
}

func cmdZInterStore(c *Ctx) Reply {
	return c.combineScoresStore("zinterstore", true, (*combination).inter)
}
func cmdZUnionStore(c *Ctx) Reply {
	return c.combineScoresStore("zunionstore", true, (*combination).union)
}
func cmdZDiffStore(c *Ctx) Reply {
	return c.combineScoresStore("zdiffstore", false, (*combination).diff)
}

func (c *Ctx) combineScoresStore(event string, weights bool, fn combine) Reply {
	k, fault := c.parseCombination(c.Args[2:], combineWords{weights: weights})
	if fault != nil {
		return *fault
	}
	room := c.storeRoom(c.form().scoreEntries, treeScoredSize)
	result := fn(&k, c, room)
	if room.full() {
		return room.refuse()
	}
	return c.storeScores(event, c.listScores(result))
}

func cmdZInterCard(c *Ctx) Reply {
	k, fault := c.parseCombination(c.Args[1:], combineWords{limit: true})
	if fault != nil {
		return *fault
	}
	found := int64(0)
	k.eachCommon(c, func(Scored) bool {
		found++
		return found != k.limit // a limit of 0 is no limit
	})
	return Int(found)
}

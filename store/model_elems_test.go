package store

import (
	"slices"
	"sort"
	"strconv"
	"strings"
)

// The commands on lists, sets and sorted sets, for the model and its
// generator.

func (g generator) member() string {
	switch g.IntN(10) {
	case 0:
		return strings.Repeat("m", 66) // too long for the small form of a sorted set
	case 1:
		return string(rune('p' + g.IntN(4)))
	}
	return strconv.Itoa(g.IntN(12))
}

// members returns one to three members or, now and then, too many for a small form.
func (g generator) members() []string {
	if g.IntN(150) == 0 {
		var list []string
		from := g.IntN(400)
		for i := range 200 {
			list = append(list, strconv.Itoa(from+i))
		}
		return list
	}
	return []string{g.member(), g.member(), g.member()}[:1+g.IntN(3)]
}

func (g generator) list() string { return g.of("l", "q", "l", "q", "a") }
func (g generator) set2() string { return g.of("s", "t", "s", "t", "a") }
func (g generator) zset() string { return g.of("y", "z", "y", "z", "a") }
func (g generator) idx() string  { return strconv.Itoa(g.IntN(8) - 3) }
func (g generator) end() string  { return g.of("left", "right") }

func (g generator) elems() []string {
	switch g.IntN(20) {
	case 0, 1:
		return append([]string{g.of("lpush", "rpush"), g.list()}, g.members()...)
	case 2:
		return []string{g.of("lpop", "rpop"), g.list(), strconv.Itoa(g.IntN(4))}
	case 3:
		return []string{"lset", g.list(), g.idx(), g.member()}
	case 4:
		return []string{"linsert", g.list(), g.of("before", "after"), g.member(), g.member()}
	case 5:
		return []string{"lrem", g.list(), g.idx(), g.member()}
	case 6:
		return []string{g.of("lrange", "lrange", "ltrim"), g.list(), g.idx(), g.idx()}
	case 7:
		return []string{"lmove", g.list(), g.list(), g.end(), g.end()}
	case 8, 9:
		return append([]string{"sadd", g.set2()}, g.members()...)
	case 10:
		return append([]string{"srem", g.set2()}, g.members()...)
	case 11:
		return []string{"smove", g.set2(), g.set2(), g.member()}
	case 12:
		return []string{g.of("sinterstore", "sunionstore", "sdiffstore"), g.set2(), g.set2(), g.set2()}
	case 13:
		return []string{"sismember", g.set2(), g.member()}
	case 14, 15:
		args := append([]string{"zadd", g.zset()}, [][]string{nil, nil, {"nx"}, {"xx", "ch"}, {"gt"}, {"lt", "ch"}}[g.IntN(6)]...)
		for _, name := range g.members() {
			args = append(args, g.num(), name)
		}
		return args
	case 16:
		return []string{"zincrby", g.zset(), g.num(), g.member()}
	case 17:
		return append([]string{"zrem", g.zset()}, g.members()...)
	case 18:
		if g.IntN(2) == 0 {
			return []string{g.of("zrank", "zpopmin"), g.zset(), strconv.Itoa(g.IntN(4))}
		}
		return []string{g.of("zcount", "zremrangebyrank"), g.zset(), g.num(), g.num()}
	}
	return []string{g.of("zunionstore", "zinterstore", "zdiffstore"), g.zset(), "2", g.zset(), g.of(g.zset(), g.set2())}
}

// elems runs a command on one collection: the function fn changes the collection and returns the reply. A key without elements is
// deleted.
func (m *model) elems(v *modelValue, t Type, args []string, fn func(v *modelValue, args []string) string) string {
	if v != nil && v.typ() != t {
		return modelWrongType
	}
	if v == nil {
		v = &modelValue{}
		switch t {
		case TypeList:
			v.list = []string{}
		case TypeSet:
			v.set = map[string]bool{}
		case TypeSortedSet:
			v.scores = map[string]float64{}
		}
	}
	reply := fn(v, args)
	if len(v.list)+len(v.set)+len(v.scores) == 0 {
		delete(m.dbs[m.db], args[1])
	} else {
		m.dbs[m.db][args[1]] = v
	}
	return reply
}

func quoteAll(list []string) string {
	parts := make([]string, len(list))
	for i, x := range list {
		parts[i] = strconv.Quote(x)
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// cut converts a range of indexes, as LRANGE takes it, to the bounds of a slice of length n.
func cut(n int, start, end string) (from, to int) {
	a, _ := strconv.Atoi(start)
	b, _ := strconv.Atoi(end)
	if a < 0 {
		a = max(a+n, 0)
	}
	if b < 0 {
		b += n
	}
	b = min(b, n-1)
	if a > b {
		return 0, 0
	}
	return a, b + 1
}

var modelLists = map[string]func(v *modelValue, args []string) string{
	"lpush": func(v *modelValue, args []string) string {
		for _, x := range args[2:] {
			v.list = slices.Insert(v.list, 0, x)
		}
		return num(len(v.list))
	},
	"rpush": func(v *modelValue, args []string) string {
		v.list = append(v.list, args[2:]...)
		return num(len(v.list))
	},
	"lpop": func(v *modelValue, args []string) string { return v.pop(args[2], false) },
	"rpop": func(v *modelValue, args []string) string { return v.pop(args[2], true) },
	"lset": func(v *modelValue, args []string) string {
		i, _ := strconv.Atoi(args[2])
		if i < 0 {
			i += len(v.list)
		}
		if i < 0 || i >= len(v.list) {
			return "-ERR"
		}
		v.list[i] = args[3]
		return "+OK"
	},
	"linsert": func(v *modelValue, args []string) string {
		i := slices.Index(v.list, args[3])
		if len(v.list) == 0 {
			return num(0)
		}
		if i < 0 {
			return num(-1)
		}
		v.list = slices.Insert(v.list, i+one(args[2] == "after"), args[4])
		return num(len(v.list))
	},
	"lrem": func(v *modelValue, args []string) string {
		count, _ := strconv.Atoi(args[2])
		back, limit, n := count < 0, max(count, -count), 0
		if back {
			slices.Reverse(v.list)
		}
		for i := 0; i < len(v.list); {
			if v.list[i] == args[3] && (limit == 0 || n < limit) {
				v.list = slices.Delete(v.list, i, i+1)
				n++
			} else {
				i++
			}
		}
		if back {
			slices.Reverse(v.list)
		}
		return num(n)
	},
	"lrange": func(v *modelValue, args []string) string {
		from, to := cut(len(v.list), args[2], args[3])
		return quoteAll(v.list[from:to])
	},
	"ltrim": func(v *modelValue, args []string) string {
		from, to := cut(len(v.list), args[2], args[3])
		v.list = v.list[from:to]
		return "+OK"
	},
}

func (v *modelValue) pop(count string, tail bool) string {
	n, _ := strconv.Atoi(count)
	if len(v.list) == 0 {
		return "nil-array"
	}
	n = min(n, len(v.list))
	if tail {
		slices.Reverse(v.list)
		defer func() { slices.Reverse(v.list) }()
	}
	reply := quoteAll(v.list[:n])
	v.list = slices.Delete(v.list, 0, n)
	return reply
}

func (m *model) lmove(v *modelValue, args []string) string {
	if v != nil && v.typ() != TypeList {
		return modelWrongType
	}
	if v == nil {
		return "nil"
	}
	to := m.dbs[m.db][args[2]]
	if to != nil && to.typ() != TypeList {
		return modelWrongType
	}
	i := 0
	if args[3] == "right" {
		i = len(v.list) - 1
	}
	x := v.list[i]
	v.list = slices.Delete(v.list, i, i+1)
	if to == nil {
		to = &modelValue{}
		m.dbs[m.db][args[2]] = to
	}
	if args[4] == "left" {
		to.list = slices.Insert(to.list, 0, x)
	} else {
		to.list = append(to.list, x)
	}
	if len(v.list) == 0 {
		delete(m.dbs[m.db], args[1])
	}
	return strconv.Quote(x)
}

var modelSets = map[string]func(v *modelValue, args []string) string{
	"sadd": func(v *modelValue, args []string) string {
		n := len(v.set)
		for _, x := range args[2:] {
			v.set[x] = true
		}
		return num(len(v.set) - n)
	},
	"srem": func(v *modelValue, args []string) string {
		n := len(v.set)
		for _, x := range args[2:] {
			delete(v.set, x)
		}
		return num(n - len(v.set))
	},
	"sismember": func(v *modelValue, args []string) string { return num(one(v.set[args[2]])) },
}

func (m *model) smove(v *modelValue, args []string) string {
	to := m.dbs[m.db][args[2]]
	switch {
	case v == nil:
		return num(0)
	case v.typ() != TypeSet || to != nil && to.typ() != TypeSet:
		return modelWrongType
	case !v.set[args[3]]:
		return num(0)
	case v == to:
		return num(1)
	}
	if delete(v.set, args[3]); len(v.set) == 0 {
		delete(m.dbs[m.db], args[1])
	}
	if to == nil {
		to = &modelValue{set: map[string]bool{}}
		m.dbs[m.db][args[2]] = to
	}
	to.set[args[3]] = true
	return num(1)
}

// store runs the commands that combine two keys into a third.
func (m *model) store(args []string) string {
	a, b := m.dbs[m.db][args[len(args)-2]], m.dbs[m.db][args[len(args)-1]]
	sorted := args[0][0] == 'z'
	var scores [2]map[string]float64
	for i, v := range []*modelValue{a, b} {
		scores[i] = map[string]float64{}
		if v == nil {
			continue
		}
		if v.typ() != TypeSet && !(sorted && v.typ() == TypeSortedSet) {
			return modelWrongType
		}
		for x := range v.set {
			scores[i][x] = 1
		}
		for x, score := range v.scores {
			scores[i][x] = score
		}
	}
	result := map[string]float64{}
	for x, score := range scores[0] {
		other, both := scores[1][x]
		switch op := args[0][1:]; {
		case op == "unionstore", op == "interstore" && both:
			result[x] = score + other
		case op == "diffstore" && !both:
			result[x] = score
		}
	}
	if args[0][1:] == "unionstore" {
		for x, score := range scores[1] {
			if _, both := scores[0][x]; !both {
				result[x] = score
			}
		}
	}
	next := &modelValue{scores: result}
	if !sorted {
		next = &modelValue{set: map[string]bool{}}
		for x := range result {
			next.set[x] = true
		}
	}
	if m.dbs[m.db][args[1]] = next; len(result) == 0 {
		delete(m.dbs[m.db], args[1])
	}
	return num(len(result))
}

var modelSortedSets = map[string]func(v *modelValue, args []string) string{
	"zadd": func(v *modelValue, args []string) string {
		i, flags := 2, map[string]bool{}
		for ; slices.Contains([]string{"nx", "xx", "gt", "lt", "ch"}, args[i]); i++ {
			flags[args[i]] = true
		}
		added, changed := 0, 0
		for ; i < len(args); i += 2 {
			score, _ := strconv.ParseFloat(args[i], 64)
			old, had := v.scores[args[i+1]]
			if had && (flags["nx"] || flags["gt"] && score <= old || flags["lt"] && score >= old) || !had && flags["xx"] {
				continue
			}
			v.scores[args[i+1]] = score
			added += one(!had)
			changed += one(had && score != old)
		}
		return num(added + one(flags["ch"])*changed)
	},
	"zincrby": func(v *modelValue, args []string) string {
		by, _ := strconv.ParseFloat(args[2], 64)
		v.scores[args[3]] += by
		return "," + FormatFloat(v.scores[args[3]])
	},
	"zrem": func(v *modelValue, args []string) string {
		n := len(v.scores)
		for _, x := range args[2:] {
			delete(v.scores, x)
		}
		return num(n - len(v.scores))
	},
	"zcount": func(v *modelValue, args []string) string {
		low, _ := strconv.ParseFloat(args[2], 64)
		high, _ := strconv.ParseFloat(args[3], 64)
		n := 0
		for _, score := range v.scores {
			n += one(score >= low && score <= high)
		}
		return num(n)
	},
	"zremrangebyrank": func(v *modelValue, args []string) string {
		from, to := cut(len(v.scores), args[2], args[3])
		for _, x := range v.sorted()[from:to] {
			delete(v.scores, x.Member)
		}
		return num(to - from)
	},
	"zpopmin": func(v *modelValue, args []string) string {
		n, _ := strconv.Atoi(args[2])
		parts := []string{}
		for _, x := range v.sorted()[:min(n, len(v.scores))] {
			parts = append(parts, strconv.Quote(x.Member), ","+FormatFloat(x.Score))
			delete(v.scores, x.Member)
		}
		return "[" + strings.Join(parts, " ") + "]"
	},
	"zrank": func(v *modelValue, args []string) string {
		score, ok := v.scores[args[2]]
		if !ok {
			return "nil"
		}
		list := v.sorted()
		at := Scored{args[2], score}
		return num(sort.Search(len(list), func(i int) bool { return !scoredLess(list[i], at) }))
	},
}

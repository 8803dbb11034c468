package store

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// sortCommands are SORT and its read-only form SORT_RO.
var sortCommands = []Command{
	{
		Name: "sort", Arity: -2, Flags: Write | DenyOOM | MovableKeys | Dangerous, Group: "generic", Since: "1.0.0",
		Keys:       []KeySpec{{Begin: 1, Step: 1, Flags: KeyRO | KeyAccess}, {Flags: KeyRO | KeyAccess, Notes: "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort"}, {Find: sortStore, Flags: KeyOW | KeyUpdate, Notes: "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the argument array"}},
		Categories: []string{"set", "sortedset", "list"},
		Summary:    "Sorts the elements of a list, set or sorted set, and stores them if wanted.",
		Usage:      "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA] [STORE destination]", Run: cmdSort,
	},
	{
		Name: "sort_ro", Arity: -2, Flags: ReadOnly | MovableKeys | Dangerous, Group: "generic", Since: "7.0.0",
		Keys:       []KeySpec{{Begin: 1, Step: 1, Flags: KeyRO | KeyAccess}, {Flags: KeyRO | KeyAccess, Notes: "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort"}},
		Categories: []string{"set", "sortedset", "list"},
		Summary:    "Sorts the elements of a list, set or sorted set.",
		Usage:      "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA]", Run: cmdSortRO,
	},
}

// sortStore returns the index of the key after STORE; the last STORE wins.
func sortStore(args [][]byte) (at []int) {
	for i := 2; i < len(args); i++ {
		switch {
		case equalFold(args[i], "limit"):
			i += 2
		case equalFold(args[i], "get"), equalFold(args[i], "by"):
			i++
		case equalFold(args[i], "store") && i+1 < len(args):
			i++ // the name of the key may read like an option
			at = []int{i}
		}
	}
	return at
}

// sortCall is a parsed call of SORT.
type sortCall struct {
	work          func(steps int)
	anyKey        bool // the user may read every key
	by            string
	gets          []string
	weighed       bool // there is a BY option
	asIs          bool // BY has no star, so SORT does not sort
	alpha, desc   bool
	offset, limit int64 // a negative limit means no limit
	store         []byte
}

var (
	sortByDenied  = Err(ErrSortBy)
	sortGetDenied = Err(ErrSortGet)
)

func (s *sortCall) parse(args [][]byte, readonly bool) *Reply {
	s.limit = -1
	for ; len(args) > 0; args = args[1:] {
		switch word := args[0]; {
		case equalFold(word, "asc"):
			s.desc = false
		case equalFold(word, "desc"):
			s.desc = true
		case equalFold(word, "alpha"):
			s.alpha = true
		case equalFold(word, "limit") && len(args) > 2:
			var ok, ok2 bool
			s.offset, ok = redistext.ParseInt(args[1])
			s.limit, ok2 = redistext.ParseInt(args[2])
			if !ok || !ok2 {
				return &notInteger
			}
			args = args[2:]
		case len(args) < 2:
			return &syntaxError
		case equalFold(word, "store") && !readonly:
			s.store = args[1]
			args = args[1:]
		case equalFold(word, "by"):
			if !s.anyKey && strings.Contains(cString(string(args[1])), "*") {
				return &sortByDenied
			}
			s.by, s.weighed = string(args[1]), true
			s.asIs = s.asIs || !strings.Contains(cString(s.by), "*")
			args = args[1:]
		case equalFold(word, "get"):
			if !s.anyKey {
				return &sortGetDenied
			}
			s.gets = append(s.gets, string(args[1]))
			args = args[1:]
		default:
			return &syntaxError
		}
	}
	return nil
}

// cString returns s up to its first NUL, as C's string functions read it.
func cString(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	return s
}

func cmdSort(c *Ctx) Reply   { return c.sort(false) }
func cmdSortRO(c *Ctx) Reply { return c.sort(true) }

func (c *Ctx) sort(readonly bool) Reply {
	s := sortCall{work: c.work, anyKey: c.User.readsAnyKey(c.Cmd, c.Args)}
	if fault := s.parse(c.Args[2:], readonly); fault != nil {
		return *fault
	}
	e := c.Lookup(c.DB, c.Args[1])
	if e != nil && (e.typ == TypeString || e.typ == TypeHash || e.typ == TypeLock) {
		return wrongType
	}
	if e == nil {
		return c.sortReply(&s, nil)
	}
	if s.asIs && e.typ == TypeSet && (s.store != nil || c.InScript) {
		// A stored result, or one that a script sees, must have a defined order.
		s.asIs, s.alpha, s.weighed = false, true, false
	}
	from, to := s.span(int64(e.elems.Len()))
	if refusal, refused := c.tooMany((to - from) * int64(max(len(s.gets), 1))); refused {
		return refusal
	}
	list, fault := s.listed(c, e, int(from), int(to))
	if fault != nil {
		return *fault
	}
	return c.sortReply(&s, list)
}

// listed returns the elements of the result with indexes in [from, to).
func (s *sortCall) listed(c *Ctx, e *Entry, from, to int) (list []string, fault *Reply) {
	switch {
	case s.asIs && s.desc && e.typ != TypeSet:
		n := e.elems.Len()
		list = c.names(e, n-to, n-from)
		slices.Reverse(list)
		return list, nil
	case s.asIs:
		return c.names(e, from, to), nil
	}
	// sortFirst also keeps the elements before the index from. They are not in the reply, but take memory like the elements in it.
	if refusal, refused := c.tooMany(int64(to)); refused {
		return nil, &refusal
	}
	items, ok := c.sortFirst(s, e, to)
	if !ok {
		return nil, &sortScoreFault
	}
	list = make([]string, 0, to-from)
	for _, it := range items[from:] {
		list = append(list, it.value)
	}
	return list, nil
}

// each calls fn for the elements of a list, set or sorted set until fn returns false.
func (e *Entry) each(fn func(name string) bool) {
	switch v := e.collection().(type) {
	case *Deque:
		v.Each(0, fn)
	case *MemberSet:
		v.Each(fn)
	case *SortedSet:
		v.Each(0, func(m Scored) bool { return fn(m.Member) })
	}
}

// names returns the elements with indexes in [from, to).
func (c *Ctx) names(e *Entry, from, to int) []string {
	list, i := make([]string, 0, to-from), 0
	if from == to {
		return list
	}
	e.each(func(name string) bool {
		c.work(1)
		if i >= from {
			list = append(list, name)
		}
		i++
		return i < to
	})
	return list
}

// span converts LIMIT to a range of indexes [from, to) in a result of n elements.
func (s *sortCall) span(n int64) (from, to int64) {
	from = min(max(s.offset, 0), n)
	count := n - from
	if s.limit >= 0 {
		count = min(count, s.limit)
	}
	return from, from + count
}

// sortItem is an element and its sort key.
type sortItem struct {
	value  string
	weight string
	absent bool // BY found no weight
	score  float64
}

// sortFirst returns the first n elements in order. ok is false if a weight is no number. Few more than n are in memory.
func (c *Ctx) sortFirst(s *sortCall, e *Entry, n int) (items []sortItem, ok bool) {
	items, ok = make([]sortItem, 0, min(e.elems.Len(), n+n/4+sortSpare)), true
	e.each(func(value string) bool {
		c.work(stepsOf(value))
		it := sortItem{value: value, weight: value}
		if s.weighed {
			weight, found := c.byPattern(s.by, value)
			it.weight, it.absent = weight, !found
		}
		if !s.alpha && !it.absent {
			var isNumber bool
			it.score, isNumber = s.score(it.weight)
			ok = ok && isNumber
		}
		if len(items) == cap(items) {
			s.sort(c, items)
			items = items[:n]
		}
		items = append(items, it)
		return true
	})
	s.sort(c, items)
	return items[:n], ok
}

// sortSpare is the least number of elements beyond n that sortFirst collects before it sorts.
const sortSpare = 256

var sortScoreFault = Err(ErrSortScore)

// sort sorts items; equal ones stay in their order.
func (s *sortCall) sort(c *Ctx, items []sortItem) {
	slices.SortStableFunc(items, func(a, b sortItem) int {
		c.work(1)
		order := s.compare(&a, &b)
		if s.desc {
			return -order
		}
		return order
	})
}

func (s *sortCall) compare(a, b *sortItem) int {
	switch {
	case !s.alpha:
		if order := cmp.Compare(a.score, b.score); order != 0 {
			return order
		}
		s.reads(a.value, b.value)
		return cmp.Compare(a.value, b.value)
	case a.absent || b.absent:
		return int(Flag(b.absent).Int - Flag(a.absent).Int)
	}
	s.reads(a.weight, b.weight)
	if s.store != nil {
		return cmp.Compare(a.weight, b.weight)
	}
	return cmp.Compare(cString(a.weight), cString(b.weight))
}

// reads counts the work of comparing two texts. A weight may have any length, and all elements may have the same weight.
func (s *sortCall) reads(a, b string) { s.work((len(a) + len(b)) / 64) }

// scoreInStep is how many bytes of a number are parsed in the time of one step. The parser passes over them several times.
const scoreInStep = 16

func (s *sortCall) score(text string) (float64, bool) {
	s.work(len(text) / scoreInStep)
	return sortScore(text)
}

// leastNormal is the smallest double with full precision. C reports a smaller decimal number as out
// of range.
const leastNormal = 0x1p-1022

// sortScore is parseCDouble, but it also rejects numbers that are out of range.
func sortScore(text string) (float64, bool) {
	score, ok := parseCDouble(text)
	if size := math.Abs(score); !ok || leastNormal <= size && size <= math.MaxFloat64 {
		return score, ok
	}
	n, isNumber := redistext.ScanNumber(strings.TrimLeft(cString(text), cSpace))
	return score, !isNumber || n.Inf || n.Digits == "" || n.Hex && score != 0
}

// byPattern returns the string, or the hash field after "->", that a BY or GET pattern names for an element.
func (c *Ctx) byPattern(pattern, value string) (string, bool) {
	if pattern == "#" {
		return value, true
	}
	prefix, rest, star := strings.Cut(pattern, "*")
	if !star || strings.Contains(prefix, "\x00") {
		return "", false
	}
	field, isField := "", false
	if i := strings.Index(rest, "->"); i >= 0 && i+2 < len(rest) {
		rest, field, isField = rest[:i], rest[i+2:], true
	}
	c.work(4 + (len(pattern)+len(value))/64)
	e := c.Lookup(c.DB, []byte(prefix+value+rest))
	switch {
	case e == nil:
		return "", false
	case !isField:
		return e.str, e.typ == TypeString
	case e.typ != TypeHash:
		return "", false
	}
	return c.fieldOf(e.Fields(), field)
}

// sortReply replies with the elements, or the values that GET finds for them. With STORE it stores
// them and replies with their number.
func (c *Ctx) sortReply(s *sortCall, list []string) Reply {
	elems := []Reply{}
	for _, value := range list {
		c.work(1)
		if len(s.gets) == 0 {
			elems = append(elems, Str(value))
		}
		for _, pattern := range s.gets {
			if got, found := c.byPattern(pattern, value); found {
				elems = append(elems, Str(got))
			} else {
				elems = append(elems, Nil)
			}
		}
	}
	if s.store == nil {
		return List(elems...)
	}
	existed := c.overwrite(s.store, func() {
		for _, r := range elems {
			c.work(stepsOf(r.Str))
			c.PushTail(c.DB, s.store, r.Str)
		}
	})
	c.stored(eventList, "sortstore", s.store, existed, len(elems) == 0)
	return Int(int64(len(elems)))
}

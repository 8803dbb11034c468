package store

import (
	"math"
	"strconv"
	"strings"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// scanPart is about the largest number of bytes that one call of SCAN, HSCAN, SSCAN or ZSCAN
// returns.
const scanPart = 1 << 20

// scanCommands are the commands that search for keys and elements.
var scanCommands = []Command{
	{
		Name: "keys", Arity: 2, Flags: ReadOnly | Dangerous, Group: "generic", Since: "1.0.0",
		Tips:    []string{"request_policy:all_shards", "nondeterministic_output_order"},
		Summary: "Returns the names of all keys that match a pattern.",
		Usage:   "pattern", Run: cmdKeys,
	},
	{
		Name: "scan", Arity: -2, Flags: ReadOnly, Group: "generic", Since: "2.8.0",
		Tips:    []string{"nondeterministic_output", "request_policy:special"},
		Summary: "Iterates over the names of the keys.",
		Usage:   "cursor [MATCH pattern] [COUNT count] [TYPE type]", Run: cmdScan,
	},
	{
		Name: "hscan", Arity: -3, Flags: ReadOnly, Group: "hash", Since: "2.8.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Tips:    []string{"nondeterministic_output"},
		Summary: "Iterates over the fields of a hash.",
		Usage:   "key cursor [MATCH pattern] [COUNT count]", Run: cmdHScan,
	},
	{
		Name: "sscan", Arity: -3, Flags: ReadOnly, Group: "set", Since: "2.8.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Tips:    []string{"nondeterministic_output"},
		Summary: "Iterates over the members of a set.",
		Usage:   "key cursor [MATCH pattern] [COUNT count]", Run: cmdSScan,
	},
	{
		Name: "zscan", Arity: -3, Flags: ReadOnly, Group: "sorted-set", Since: "2.8.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Tips:    []string{"nondeterministic_output"},
		Summary: "Iterates over the members of a sorted set.",
		Usage:   "key cursor [MATCH pattern] [COUNT count]", Run: cmdZScan,
	},
	{
		Name: "randomkey", Arity: 1, Flags: ReadOnly, Group: "generic", Since: "1.0.0",
		Tips:    []string{"request_policy:all_shards", "nondeterministic_output"},
		Summary: "Returns the name of some key.",
		Run:     cmdRandomKey,
	},
}

// Ascend is Txn.Ascend, but for each key that it passes it counts a step of work, also for keys that have expired.
func (c *Ctx) Ascend(db int, from uint64, fn func(*Entry) bool) {
	c.ascend(db, from, c.work, func(e *Entry) bool {
		c.work(1)
		return c.foundDead(c.DB, e) || fn(e)
	})
}

func cmdKeys(c *Ctx) Reply {
	pattern := c.Arg(1)
	elems, size := []Reply{}, int64(0)
	c.Ascend(c.DB, 0, func(e *Entry) bool {
		if pattern == "*" || c.match(pattern, e.key) {
			elems = append(elems, Str(e.key))
			size += int64(ReplySize + len(e.key))
		}
		return size <= c.MaxReply()
	})
	if size > c.MaxReply() {
		return Err(c.ErrReply()) // stop before the other keys are collected
	}
	return List(elems...)
}

// scanOptions are the options after the cursor.
type scanOptions struct {
	count   int64
	all     bool // no pattern, or one that matches everything
	pattern string
	typ     []byte // the type that SCAN asks for; nil means any type
}

func parseScanOptions(args [][]byte, types bool) (o scanOptions, fault *Reply) {
	o = scanOptions{count: 10, all: true}
	for ; len(args) > 0; args = args[2:] {
		switch {
		case len(args) < 2:
			return o, &syntaxError
		case equalFold(args[0], "count"):
			n, ok := redistext.ParseInt(args[1])
			if !ok {
				return o, &notInteger
			}
			if n < 1 {
				return o, &syntaxError
			}
			o.count = n
		case equalFold(args[0], "match"):
			o.pattern = string(args[1])
			o.all = o.pattern == "*"
		case equalFold(args[0], "type") && types:
			o.typ = args[1]
		default:
			return o, &syntaxError
		}
	}
	return o, nil
}

var syntaxError = Err(ErrSyntax)

func (o *scanOptions) matches(c *Ctx, name string) bool { return o.all || c.match(o.pattern, name) }

func (c *Ctx) match(pattern, name string) bool {
	ok, steps := redistext.MatchSteps(pattern, name)
	c.work(1 + len(name) + steps)
	return ok
}

// scanWalk decides when a scan call has visited enough. The cursor is a hash: elements of equal hashes go into one call.
type scanWalk struct {
	left   int64 // elements still to visit
	size   int   // bytes of the reply so far
	last   uint64
	begun  bool
	cursor uint64 // 0 if this call reaches the end
}

// visit reports whether the element with the given hash belongs to this call. If not, it sets the cursor.
func (w *scanWalk) visit(hash uint64) bool {
	if (w.left <= 0 || w.size > scanPart) && w.begun && hash != w.last {
		w.cursor = hash
		return false
	}
	w.left--
	w.last, w.begun = hash, true
	return true
}

// found adds the size of an element of the reply to w.size, and returns the element as a Reply.
func (w *scanWalk) found(name string) Reply {
	w.size += ReplySize + len(name)
	return Str(name)
}

func (w *scanWalk) reply(elems []Reply) Reply {
	return List(Str(strconv.FormatUint(w.cursor, 10)), List(elems...))
}

func cmdScan(c *Ctx) Reply {
	cursor, ok := parseCursor(c.Args[1])
	if !ok {
		return Err(ErrCursor)
	}
	o, fault := parseScanOptions(c.Args[2:], true)
	if fault != nil {
		return *fault
	}
	walk := scanWalk{left: o.count}
	elems := []Reply{}
	c.Ascend(c.DB, cursor, func(e *Entry) bool {
		if !walk.visit(e.hash()) {
			return false
		}
		if (o.typ == nil || equalFold(o.typ, e.typ.String())) && o.matches(c, e.key) {
			elems = append(elems, walk.found(e.key))
		}
		return true
	})
	return walk.reply(elems)
}

func cmdHScan(c *Ctx) Reply {
	return c.scanElements(TypeHash, true, func(e *Entry, from uint64, visit scanVisit) {
		h := e.Fields()
		if h.Compact() {
			h.Each(func(f Field) bool { return visit(0, f.Name, f.Value) })
			return
		}
		h.ascend(from, func(f Field) bool { return visit(f.hash, f.Name, f.Value) })
	})
}

func cmdSScan(c *Ctx) Reply {
	return c.scanElements(TypeSet, false, func(e *Entry, from uint64, visit scanVisit) {
		s := e.Members()
		if s.Compact() {
			s.Each(func(name string) bool { return visit(0, name, "") })
			return
		}
		s.ascend(from, func(m member) bool { return visit(m.hash, m.name, "") })
	})
}

func cmdZScan(c *Ctx) Reply {
	return c.scanElements(TypeSortedSet, true, func(e *Entry, from uint64, visit scanVisit) {
		z := e.Scores()
		if z.Compact() {
			z.Each(0, func(m Scored) bool { return visit(0, m.Member, compactScore(m.Score)) })
			return
		}
		z.ascend(from, func(m scoredName) bool { return visit(m.hash, m.name, FormatFloat(m.score)) })
	})
}

// compactScore formats a score as the compact form stores it: as an integer if it is one.
func compactScore(score float64) string {
	if n := int64(score); math.Abs(score) <= 1<<62 && float64(n) == score {
		return strconv.FormatInt(n, 10)
	}
	return FormatFloat(score)
}

// scanVisit receives one element of a collection. It returns false when a call has visited enough.
// In a compact collection all elements have the hash 0.
type scanVisit func(hash uint64, name, value string) bool

// scanElements replies with a part of a collection. As in Redis, a missing key hides wrong options, and compact collections come whole.
func (c *Ctx) scanElements(t Type, values bool, each func(e *Entry, from uint64, visit scanVisit)) Reply {
	cursor, ok := parseCursor(c.Args[2])
	if !ok {
		return Err(ErrCursor)
	}
	e, ok := c.read(t)
	if !ok {
		return wrongType
	}
	elems := []Reply{}
	if e == nil {
		return (&scanWalk{}).reply(elems)
	}
	o, fault := parseScanOptions(c.Args[3:], false)
	if fault != nil {
		return *fault
	}
	walk := scanWalk{left: o.count}
	each(e, cursor, func(hash uint64, name, value string) bool {
		c.work(1)
		if !walk.visit(hash) {
			return false
		}
		if o.matches(c, name) {
			elems = append(elems, walk.found(name))
			if values {
				elems = append(elems, walk.found(value))
			}
		}
		return true
	})
	return walk.reply(elems)
}

// parseCursor parses a cursor as C's strtoul does: a sign is legal, and a negative number wraps around.
func parseCursor(arg []byte) (uint64, bool) {
	s, _, _ := strings.Cut(bytesToString(arg), "\x00")
	if s == "" {
		return 0, true
	}
	neg := s[0] == '-'
	if neg || s[0] == '+' {
		s = s[1:]
	}
	if s == "" || redistext.Digits(s, redistext.IsDecimal) != s {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if neg {
		n = -n
	}
	return n, err == nil
}

// RANDOMKEY picks one of randomKeySample adjacent keys. Always the first one after a random hash would favour keys behind wide gaps.
const randomKeySample = 16

func cmdRandomKey(c *Ctx) Reply {
	var sample []string
	collect := func(e *Entry) bool {
		sample = append(sample, e.key)
		return len(sample) < randomKeySample
	}
	from := uint64(randIntN(hashMask + 1))
	c.Ascend(c.DB, from, collect)
	if len(sample) < randomKeySample {
		c.Ascend(c.DB, 0, func(e *Entry) bool { return e.hash() < from && collect(e) })
	}
	if len(sample) == 0 {
		return Nil
	}
	return Str(sample[randIntN(len(sample))])
}

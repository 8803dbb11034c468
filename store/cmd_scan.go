package store

import (
	"math"
	"strconv"
	"strings"
)

// scanCommands are the commands that look for keys and fields.
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
		Name: "randomkey", Arity: 1, Flags: ReadOnly, Group: "generic", Since: "1.0.0",
		Tips:    []string{"request_policy:all_shards", "nondeterministic_output"},
		Summary: "Returns the name of some key.",
		Run:     cmdRandomKey,
	},
}

func cmdKeys(c *Ctx) Reply {
	pattern := c.Arg(1)
	elems := []Reply{}
	c.Ascend(c.DB, 0, func(e *Entry) bool {
		if pattern == "*" || Match(pattern, e.key) {
			elems = append(elems, Str(e.key))
		}
		return true
	})
	return List(elems...)
}

// scanOptions are the words after the cursor.
type scanOptions struct {
	count   int64
	all     bool // no pattern, or one that matches everything
	pattern string
	typ     []byte // of SCAN; nil: any
}

func parseScanOptions(args [][]byte, types bool) (o scanOptions, fault *Reply) {
	o = scanOptions{count: 10, all: true}
	for ; len(args) > 0; args = args[2:] {
		switch {
		case len(args) < 2:
			return o, &syntaxError
		case equalFold(args[0], "count"):
			n, ok := ParseInt(args[1])
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

func (o *scanOptions) matches(name string) bool { return o.all || Match(o.pattern, name) }

// cursorAfter decides after a visit to the element with the given hash
// whether the call has seen enough. The cursor is the hash to go on with;
// elements of equal hash are never parted, so none is missed.
type scanWalk struct {
	left   int64 // elements to visit
	last   uint64
	begun  bool
	cursor uint64 // 0 until there is more than this call returns
}

// visit reports whether the element with the given hash belongs to this call.
func (w *scanWalk) visit(hash uint64) bool {
	if w.left <= 0 && w.begun && hash != w.last {
		w.cursor = hash
		return false
	}
	w.left--
	w.last, w.begun = hash, true
	return true
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
		if !walk.visit(e.hash) {
			return false
		}
		if o.matches(e.key) && (o.typ == nil || equalFold(o.typ, e.typ.String())) {
			elems = append(elems, Str(e.key))
		}
		return true
	})
	return walk.reply(elems)
}

// cmdHScan looks at the words only if there is a hash, and returns a compact
// hash as a whole, as Redis does.
func cmdHScan(c *Ctx) Reply {
	cursor, ok := parseCursor(c.Args[2])
	if !ok {
		return Err(ErrCursor)
	}
	e, ok := c.read(TypeHash)
	if !ok {
		return wrongType
	}
	walk := scanWalk{left: math.MaxInt64}
	elems := []Reply{}
	if e == nil {
		return walk.reply(elems)
	}
	o, fault := parseScanOptions(c.Args[3:], false)
	if fault != nil {
		return *fault
	}
	visit := func(f Field) bool {
		if !walk.visit(f.hash) {
			return false
		}
		if o.matches(f.Name) {
			elems = append(elems, Str(f.Name), Str(f.Value))
		}
		return true
	}
	if e.Fields().Compact() {
		e.Fields().Each(visit)
	} else {
		walk.left = o.count
		e.Fields().ascend(cursor, visit)
	}
	return walk.reply(elems)
}

// parseCursor reads a cursor as C's strtoul would: the text ends at a NUL, a
// sign is legal and wraps around, no text is 0.
func parseCursor(arg []byte) (uint64, bool) {
	s, _, _ := strings.Cut(bytesToString(arg), "\x00")
	if s == "" {
		return 0, true
	}
	neg := s[0] == '-'
	if neg || s[0] == '+' {
		s = s[1:]
	}
	if s == "" || digitsOf(s, decimalDigit) != s {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if neg {
		n = -n
	}
	return n, err == nil
}

// randomKeySample is how many neighbours RANDOMKEY picks one of: their hashes
// stand at random distances, and a key behind a wide gap would be picked too
// often.
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
		c.Ascend(c.DB, 0, func(e *Entry) bool { return e.hash < from && collect(e) })
	}
	if len(sample) == 0 {
		return Nil
	}
	return Str(sample[randIntN(len(sample))])
}

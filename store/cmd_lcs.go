package store

import (
	"github.com/lockstep-io/lockstep/store/redistext"
)

// lcsCommands are the commands that compare strings.
var lcsCommands = []Command{
	{
		Name: "lcs", Arity: -3, Flags: ReadOnly, Group: "string", Since: "7.0.0",
		Keys:    []KeySpec{{Begin: 1, Last: 1, Step: 1, Flags: KeyRO | KeyAccess}},
		Summary: "Finds the longest common subsequence of two strings.",
		Usage:   "key1 key2 [LEN] [IDX] [MINMATCHLEN len] [WITHMATCHLEN]", Run: cmdLCS,
	},
}

// maxLCSCells limits the product of the two lengths: while the node fills the table, it serves nothing else.
const maxLCSCells = 16 << 20

// lcsCells is the number of cells that are filled in the time of one step of work.
const lcsCells = 16

type lcsOptions struct {
	length, index, matchLength bool
	minMatch                   int64
}

func parseLCSOptions(args [][]byte) (o lcsOptions, fault *Reply) {
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case equalFold(arg, "len"):
			o.length = true
		case equalFold(arg, "idx"):
			o.index = true
		case equalFold(arg, "withmatchlen"):
			o.matchLength = true
		case equalFold(arg, "minmatchlen") && i+1 < len(args):
			i++
			n, ok := redistext.ParseInt(args[i])
			if !ok {
				return o, &notInteger
			}
			o.minMatch = n
		default:
			return o, &syntaxError
		}
	}
	if o.length && o.index {
		fault = &lcsLenAndIdx
	}
	return o, fault
}

var lcsLenAndIdx = Err(ErrLCSLenAndIdx)

func cmdLCS(c *Ctx) Reply {
	// Look up both keys before the type check: each lookup may publish a keymiss event.
	var text [2]string
	isText := true
	for i := range text {
		if e := c.Lookup(c.DB, c.Args[1+i]); e != nil {
			isText = isText && e.typ == TypeString
			text[i] = e.str
		}
	}
	if !isText {
		return Err(ErrLCSType)
	}
	o, fault := parseLCSOptions(c.Args[3:])
	if fault != nil {
		return *fault
	}
	a, b := text[0], text[1]
	if (len(a)+1)*(len(b)+1) > maxLCSCells {
		return Err(ErrLCSMemory)
	}
	table := newLCSTable(a, b, c.work)
	length := int64(table.length)
	switch {
	case o.length:
		return Int(length)
	case !o.index:
		return Str(table.common(a, b, length))
	}
	matches := []Reply{}
	table.ranges(a, b, func(r lcsRange) {
		if int64(r.n) < o.minMatch {
			return
		}
		match := []Reply{span(r.a, r.n), span(r.b, r.n)}
		if o.matchLength {
			match = append(match, Int(int64(r.n)))
		}
		matches = append(matches, List(match...))
	})
	return MapOf(Str("matches"), List(matches...), Str("len"), Int(length))
}

func span(from, n int) Reply { return List(Int(int64(from)), Int(int64(from+n-1))) }

// lcsTable has a bit for every pair of prefixes: whether to shorten the first. A table of lengths would take too much memory.
type lcsTable struct {
	first  []uint64 // a bit is set if the first prefix is to be shortened
	width  int
	length int // length of the longest common subsequence
}

// newLCSTable fills a table and calls work for each row. fill keeps two rows, so rows go along the shorter string.
func newLCSTable(a, b string, work func(steps int)) lcsTable {
	if a == "" || b == "" {
		return lcsTable{}
	}
	t := lcsTable{first: make([]uint64, (len(a)*len(b)+63)/64), width: len(b)}
	if len(a) < len(b) {
		t.fill(b, a, true, work)
	} else {
		t.fill(a, b, false, work)
	}
	return t
}

// fill fills the table. If swapped is true, the shorter string is the first of the two.
func (t *lcsTable) fill(long, short string, swapped bool, work func(steps int)) {
	above, row := make([]uint32, len(short)+1), make([]uint32, len(short)+1) // two rows: the lengths for all prefixes of the shorter string
	for i := range len(long) {
		for j := range len(short) {
			first, second := above[j+1], row[j] // the length if the first prefix is shortened, and if the second one is
			cell := i*t.width + j
			if swapped {
				first, second = second, first
				cell = j*t.width + i
			}
			switch {
			case long[i] == short[j]:
				row[j+1] = above[j] + 1
			case first > second:
				row[j+1] = first
				t.first[cell/64] |= 1 << (cell % 64)
			default:
				row[j+1] = second
			}
		}
		above, row = row, above
		work(1 + len(short)/lcsCells)
	}
	t.length = int(above[len(short)])
}

func (t lcsTable) shortensFirst(i, j int) bool {
	cell := i*t.width + j
	return t.first[cell/64]>>(cell%64)&1 == 1
}

// lcsRange is a run of n equal bytes, at index a of the first string and index b of the second.
type lcsRange struct{ a, b, n int }

// ranges calls fn for each run of the subsequence, the last run first. On a tie it shortens the second prefix, as Redis does.
func (t lcsTable) ranges(a, b string, fn func(lcsRange)) {
	run := lcsRange{}
	flush := func() {
		if run.n > 0 {
			fn(run)
		}
		run.n = 0
	}
	for i, j := len(a), len(b); i > 0 && j > 0; {
		if a[i-1] == b[j-1] {
			i--
			j--
			run = lcsRange{i, j, run.n + 1}
			continue
		}
		flush()
		if t.shortensFirst(i-1, j-1) {
			i--
		} else {
			j--
		}
	}
	flush()
}

// common returns the subsequence, which is n bytes long.
func (t lcsTable) common(a, b string, n int64) string {
	text := make([]byte, n)
	end := len(text)
	t.ranges(a, b, func(r lcsRange) {
		end -= r.n
		copy(text[end:], a[r.a:r.a+r.n])
	})
	return bytesToString(text)
}

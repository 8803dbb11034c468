package store

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// Ranges of sorted sets by rank, score or member. Each is converted to a range of ranks [from, to)
// in a given set.

// zrange is a parsed range.
type zrange interface {
	// ranks returns the range of ranks in a set. If down is true, the caller walks it backwards, and rankSpan counts from the last member.
	ranks(z *SortedSet, down bool) (from, to int)
}

type rankSpan struct{ start, end int64 }

func (r rankSpan) ranks(z *SortedSet, down bool) (from, to int) {
	from, to = rankRange(r.start, r.end, z.Len())
	if down {
		from, to = z.Len()-to, z.Len()-from
	}
	return from, to
}

// scoreSpan is a range of scores. If an end is open, the range excludes it.
type scoreSpan struct {
	min, max         float64
	openMin, openMax bool
}

func (r scoreSpan) ranks(z *SortedSet, _ bool) (from, to int) {
	from = z.search(func(m Scored) bool { return m.Score < r.min || r.openMin && m.Score == r.min })
	to = z.search(func(m Scored) bool { return m.Score < r.max || !r.openMax && m.Score == r.max })
	return from, max(from, to)
}

// lexSpan is a range of members, for sets whose scores are all equal.
type lexSpan struct {
	min, max lexEnd
}

type lexEnd struct {
	text     string
	open     bool
	infinite int // -1: the end is below all members; 1: it is above all members; 0: it is text
}

// below reports whether the member is before the range.
func (r *lexSpan) below(m Scored) bool {
	if r.min.infinite != 0 {
		return r.min.infinite > 0
	}
	return m.Member < r.min.text || r.min.open && m.Member == r.min.text
}

// above reports whether the member is behind the range.
func (r *lexSpan) above(m Scored) bool {
	if r.max.infinite != 0 {
		return r.max.infinite < 0
	}
	return m.Member > r.max.text || r.max.open && m.Member == r.max.text
}

// empty reports whether the range cannot contain a member.
func (r *lexSpan) empty() bool {
	a, b := r.min, r.max
	switch {
	case a.infinite != 0 || b.infinite != 0:
		return a.infinite > b.infinite || a.infinite == b.infinite && a.infinite != 0
	case a.text != b.text:
		return a.text > b.text
	}
	return a.open || b.open
}

// ranks walks a small set as Redis does, so that the result is the same even if scores differ.
func (r lexSpan) ranks(z *SortedSet, down bool) (from, to int) {
	n := z.Len()
	if r.empty() || n == 0 || r.below(z.at(n-1)) || r.above(z.at(0)) {
		return 0, 0
	}
	if !z.Compact() {
		from = z.search(r.below)
		to = z.search(func(m Scored) bool { return !r.above(m) })
		return from, max(from, to)
	}
	if down {
		for to = n; to > 0 && r.above(z.at(to-1)); to-- {
		}
		for from = to; from > 0 && !r.below(z.at(from-1)); from-- {
		}
		return from, to
	}
	for from < n && r.below(z.at(from)) {
		from++
	}
	for to = from; to < n && !r.above(z.at(to)); to++ {
	}
	return from, to
}

func parseRankSpan(min, max []byte) (zrange, *Reply) {
	start, ok := redistext.ParseInt(min)
	end, ok2 := redistext.ParseInt(max)
	if !ok || !ok2 {
		return nil, &notInteger
	}
	return rankSpan{start, end}, nil
}

func parseScoreSpan(min, max []byte) (zrange, *Reply) {
	var r scoreSpan
	var ok, ok2 bool
	r.min, r.openMin, ok = parseScoreEnd(min)
	r.max, r.openMax, ok2 = parseScoreEnd(max)
	if !ok || !ok2 {
		return nil, &notScoreRange
	}
	return r, nil
}

func parseScoreEnd(arg []byte) (score float64, open, ok bool) {
	s, open := strings.CutPrefix(bytesToString(arg), "(")
	score, ok = parseCDouble(s)
	return score, open, ok
}

// parseCDouble parses a number as C's strtod does: it skips leading blanks and stops at a NUL. It rejects NaN.
func parseCDouble(s string) (float64, bool) {
	s = cString(s)
	if s == "" {
		return 0, true
	}
	s = strings.TrimLeft(s, cSpace) // blanks alone are not a number
	n, ok := redistext.ScanNumber(s)
	switch {
	case !ok:
		return 0, false
	case n.Inf:
		return math.Inf(1 - 2*int(Flag(n.Neg).Int)), true
	}
	if n.Hex && !strings.ContainsAny(s, "pP") {
		s += "p0" // Go requires the exponent that C makes optional
	}
	// As in C, a number out of range becomes infinite or zero.
	f, err := strconv.ParseFloat(s, 64)
	return f, !errors.Is(err, strconv.ErrSyntax)
}

// cSpace is the set of characters that C's number functions skip.
const cSpace = " \t\n\v\f\r"

func parseLexSpan(min, max []byte) (zrange, *Reply) {
	var r lexSpan
	var ok, ok2 bool
	r.min, ok = parseLexEnd(min)
	r.max, ok2 = parseLexEnd(max)
	if !ok || !ok2 {
		return nil, &notLexRange
	}
	return r, nil
}

func parseLexEnd(arg []byte) (end lexEnd, ok bool) {
	switch {
	case len(arg) == 0:
		return end, false
	case arg[0] == '[' || arg[0] == '(':
		return lexEnd{text: string(arg[1:]), open: arg[0] == '('}, true
	case len(arg) > 1:
		return end, false
	case arg[0] == '-':
		return lexEnd{infinite: -1}, true
	}
	return lexEnd{infinite: 1}, arg[0] == '+'
}

var (
	notScoreRange = Err(ErrScoreRange)
	notLexRange   = Err(ErrLexRange)
)

package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// same reports whether two replies to one command are equal in the respect h.
func same(a, b transcript.Value, h how) bool {
	if h == near {
		return closeBy(a, b)
	}
	return slices.Equal(normal(a, h), normal(b, h))
}

// nearMillis is how many milliseconds two times to live may differ: the servers run one after the other, and seconds are rounded.
const nearMillis = 3000

func closeBy(a, b transcript.Value) bool {
	x, err1 := strconv.ParseInt(a.Text, 10, 64)
	y, err2 := strconv.ParseInt(b.Text, 10, 64)
	if a.Type != ':' || b.Type != ':' || err1 != nil || err2 != nil || x < 0 || y < 0 {
		return a.Type == b.Type && a.Text == b.Text
	}
	return max(x, y)-min(x, y) <= nearMillis
}

// normal renders a reply without the parts that may differ.
func normal(v transcript.Value, h how) []string {
	if v.Type == '-' {
		return v.Lines()
	}
	switch h {
	case sorted:
		return units(v.Elems, 1, v)
	case pairs:
		return units(v.Elems, 2, v)
	case scan, scan2:
		if len(v.Elems) != 2 {
			return v.Lines()
		}
		return append(v.Elems[0].Lines(), units(v.Elems[1].Elems, int(h-scan)+1, v.Elems[1])...)
	case shape:
		return []string{string(v.Type)}
	case encoding:
		// In Redis, a sorted set on which SORT was used stays in its large form for good.
		if v.Text == "skiplist" {
			v.Text = "listpack"
		}
	case leaves:
		list := appendLeaves(nil, v)
		slices.Sort(list)
		return list
	}
	return v.Lines()
}

// units sorts the elements of v in groups of n. Nested pairs, as in RESP3, are already groups.
func units(elems []transcript.Value, n int, v transcript.Value) []string {
	if len(elems) == 0 {
		return v.Lines()
	}
	if elems[0].Elems != nil {
		n = 1
	}
	var list []string
	for group := range slices.Chunk(elems, n) {
		var lines []string
		for _, e := range group {
			lines = append(lines, e.Lines()...)
		}
		list = append(list, strings.Join(lines, "\n"))
	}
	slices.Sort(list)
	return append([]string{string(v.Type)}, list...)
}

func appendLeaves(list []string, v transcript.Value) []string {
	if len(v.Elems) == 0 {
		return append(list, v.Lines()...)
	}
	for _, e := range v.Elems {
		list = appendLeaves(list, e)
	}
	return list
}

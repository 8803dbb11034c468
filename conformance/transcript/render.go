package transcript

import (
	"slices"
	"sort"
	"strings"
)

// closed is the line that stands for the end of the connection.
const closed = "(closed)"

// volatile are the fields of HELLO that differ between servers. @hello shows only the types of their values.
var volatile = []string{"version", "id"}

// lines renders one value as the step's modifiers say.
func (s *Step) lines(v Value) []string {
	if s.Mods.Sort {
		v = sorted(v, s.Mods.Depth, s.Mods.Pairs)
	}
	var out []string
	switch {
	case s.Kind == Hello:
		out = helloLines(v)
	case s.Mods.Type:
		out = []string{string(v.Type)}
	case s.Mods.Shape:
		out = v.ShapeLines()
	default:
		out = v.Lines()
	}
	if s.Mods.Holder {
		maskHolder(out)
	}
	for i := range out {
		for _, sub := range s.Mods.Subs {
			out[i] = sub.Pattern.ReplaceAllString(out[i], sub.Repl)
		}
	}
	return out
}

// holders are the fields that say which client holds a lock, and since when, with what stands for their values.
var holders = map[string]string{`$"age"`: ":AGE", `$"node"`: `$"NODE"`, `$"client"`: ":CLIENT", `$"addr"`: `$"ADDR"`}

// maskHolder replaces the values of holders. A value that is not known (-1, null, empty) stays.
func maskHolder(lines []string) {
	for i := 1; i < len(lines); i++ {
		field, value := strings.TrimSpace(lines[i-1]), strings.TrimSpace(lines[i])
		if mask, is := holders[field]; is && value != ":-1" && value != "$-1" && value != "_" && value != `$""` && value != ":0" {
			lines[i] = strings.Replace(lines[i], value, mask, 1)
		}
	}
}

// Literal reports whether the step's reply is in the notation that ParseReply reads.
func (s *Step) Literal() bool {
	return s.Kind != Hello && !s.Mods.Type && !s.Mods.Shape && !s.Mods.Holder && len(s.Mods.Subs) == 0
}

// helloLines renders HELLO's reply, a map or a flat array of pairs. It shows only the shapes of the values of volatile fields.
func helloLines(v Value) []string {
	if !isAggregate(v.Type) {
		return v.Lines()
	}
	out := v.Lines()[:1]
	for i, e := range v.Elems {
		shape := i%2 == 1 && slices.Contains(volatile, v.Elems[i-1].Text)
		out = append(out, e.lines("  ", shape)...)
	}
	return out
}

// sorted returns v with the aggregates at the given depth sorted by notation, maps by pairs.
func sorted(v Value, depth int, pairs bool) Value {
	if !isAggregate(v.Type) {
		return v
	}
	elems := slices.Clone(v.Elems)
	if depth > 0 {
		for i := range elems {
			elems[i] = sorted(elems[i], depth-1, pairs)
		}
		v.Elems = elems
		return v
	}
	unit := 1
	if pairs || v.Type == '%' {
		unit = 2
	}
	if len(elems)%unit != 0 {
		return v
	}
	var units [][]Value
	for u := range slices.Chunk(elems, unit) {
		units = append(units, u)
	}
	sort.SliceStable(units, func(i, j int) bool { return notation(units[i]) < notation(units[j]) })
	v.Elems = slices.Concat(units...)
	return v
}

func notation(vs []Value) string {
	var b strings.Builder
	for _, v := range vs {
		b.WriteString(strings.Join(v.Lines(), "\n") + "\n")
	}
	return b.String()
}

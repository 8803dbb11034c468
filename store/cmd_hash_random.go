package store

import "math"

// hashRandomCommands pick fields at random.
var hashRandomCommands = []Command{
	{
		Name: "hrandfield", Arity: -2, Flags: ReadOnly, Group: "hash", Since: "6.2.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Tips:    []string{"nondeterministic_output"},
		Summary: "Returns fields of a hash, picked at random.",
		Usage:   "key [count [WITHVALUES]]", Run: cmdHRandField,
	},
}

// maxRandomFields bounds a reply with repeated fields: its length is the
// client's choice, and no client may fill the memory of a node.
const maxRandomFields = 1 << 20

func cmdHRandField(c *Ctx) Reply {
	if len(c.Args) == 2 {
		e, ok := c.read(TypeHash)
		switch {
		case !ok:
			return wrongType
		case e == nil:
			return Nil
		}
		return Str(e.Fields().at(randIntN(e.Fields().Len())).Name)
	}
	count, ok := ParseInt(c.Args[2])
	switch {
	case !ok:
		return notInteger
	case count == math.MinInt64:
		return Err(ErrIntRange(-math.MaxInt64, math.MaxInt64))
	case len(c.Args) > 4 || len(c.Args) == 4 && !equalFold(c.Args[3], "withvalues"):
		return Err(ErrSyntax)
	}
	values := len(c.Args) == 4
	if values && (count < -math.MaxInt64/2 || count > math.MaxInt64/2) {
		return Err(ErrValueRange)
	}
	e, ok := c.read(TypeHash)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return emptyList
	case count < -maxRandomFields:
		return Err(ErrValueRange)
	}
	return c.fieldsReply(randomFields(e.Fields(), count), values)
}

// randomFields picks count different fields, or, for a negative count, that
// many independently of each other.
func randomFields(h *Hash, count int64) []Field {
	n := h.Len()
	var picked []Field
	switch {
	case count < 0:
		for range -count {
			picked = append(picked, h.at(randIntN(n)))
		}
	case count >= int64(n):
		h.Each(func(f Field) bool {
			picked = append(picked, f)
			return true
		})
	default:
		// Floyd's algorithm: every subset is equally likely.
		seen := map[int]bool{}
		for i := n - int(count); i < n; i++ {
			j := randIntN(i + 1)
			if seen[j] {
				j = i
			}
			seen[j] = true
			picked = append(picked, h.at(j))
		}
	}
	return picked
}

// fieldsReply lists fields: with their values as pairs, which RESP2 flattens.
func (c *Ctx) fieldsReply(fields []Field, values bool) Reply {
	elems := make([]Reply, 0, 2*len(fields))
	for _, f := range fields {
		switch {
		case !values:
			elems = append(elems, Str(f.Name))
		case c.RESP > 2:
			elems = append(elems, List(Str(f.Name), Str(f.Value)))
		default:
			elems = append(elems, Str(f.Name), Str(f.Value))
		}
	}
	return List(elems...)
}

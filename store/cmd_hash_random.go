package store

import (
	"math"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// hashRandomCommands are the commands that pick fields at random.
var hashRandomCommands = []Command{
	{
		Name: "hrandfield", Arity: -2, Flags: ReadOnly, Group: "hash", Since: "6.2.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Tips:    []string{"nondeterministic_output"},
		Summary: "Returns fields of a hash, picked at random.",
		Usage:   "key [count [WITHVALUES]]", Run: cmdHRandField,
	},
}

// maxRandomFields limits a negative count, by which a client could otherwise fill the memory of a node.
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
		return Str(e.Fields().at(randIntN(e.elems.Len())).Name)
	}
	count, values, fault := c.randomArgs("withvalues")
	if fault != nil {
		return *fault
	}
	return c.randomPairs(TypeHash, count, values, func(e *Entry, i int) (name, value Reply) {
		f := e.Fields().at(i)
		return Str(f.Name), Str(f.Value)
	})
}

// randomArgs parses a count and the optional word by which a client asks for the values, too.
func (c *Ctx) randomArgs(word string) (count int64, values bool, fault *Reply) {
	count, fault = parseRandomCount(c.Args[2])
	switch {
	case fault != nil:
		return 0, false, fault
	case len(c.Args) > 4 || len(c.Args) == 4 && !equalFold(c.Args[3], word):
		return 0, false, &syntaxError
	}
	values = len(c.Args) == 4
	if values && (count < -math.MaxInt64/2 || count > math.MaxInt64/2) {
		return 0, false, &valueRange
	}
	return count, values, nil
}

var (
	valueRange = Err(ErrValueRange)
	outOfInt64 = Err(ErrIntRange(-math.MaxInt64, math.MaxInt64))
)

func parseRandomCount(arg []byte) (count int64, fault *Reply) {
	count, ok := redistext.ParseInt(arg)
	switch {
	case !ok:
		return 0, &notInteger
	case count == math.MinInt64:
		return 0, &outOfInt64
	}
	return count, nil
}

// randomPairs picks elements of the key at Args[1], with their values if values is true. RESP2 flattens the pairs.
func (c *Ctx) randomPairs(t Type, count int64, values bool, at func(e *Entry, i int) (name, value Reply)) Reply {
	e, ok := c.read(t)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return emptyList
	case count < -maxRandomFields:
		return valueRange
	}
	n := min(count, int64(e.elems.Len()))
	if count < 0 {
		n = -count
	}
	if refusal, refused := c.tooMany(2 * n); refused {
		return refusal
	}
	picked := c.randomIndexes(e.elems.Len(), count)
	elems := make([]Reply, 0, 2*len(picked))
	for _, i := range picked {
		c.work(1)
		name, value := at(e, i)
		elems = append(elems, name)
		switch {
		case values && c.RESP > 2:
			elems[len(elems)-1] = List(name, value)
		case values:
			elems = append(elems, value)
		}
	}
	return List(elems...)
}

// randomIndexes picks up to count different numbers below n or, if count is negative, -count independent ones.
func (c *Ctx) randomIndexes(n int, count int64) []int {
	var picked []int
	switch {
	case count < 0:
		for range -count {
			c.work(1)
			picked = append(picked, randIntN(n))
		}
	case count >= int64(n):
		for i := range n {
			c.work(1)
			picked = append(picked, i)
		}
	default:
		// Floyd's algorithm: every subset is equally likely.
		seen := map[int]bool{}
		for i := n - int(count); i < n; i++ {
			c.work(1)
			j := randIntN(i + 1)
			if seen[j] {
				j = i
			}
			seen[j] = true
			picked = append(picked, j)
		}
	}
	return picked
}

package store

import (
	"strconv"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// hashCounterCommands are the commands on hash fields that hold numbers.
var hashCounterCommands = []Command{
	{
		Name: "hincrby", Arity: 4, Flags: Write | DenyOOM | Fast, Group: "hash", Since: "2.0.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyUpdate),
		Summary: "Adds an integer to the integer in a field of a hash.",
		Usage:   "key field increment", Run: cmdHIncrBy,
	},
	{
		Name: "hincrbyfloat", Arity: 4, Flags: Write | DenyOOM | Fast, Group: "hash", Since: "2.6.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyUpdate),
		Summary: "Adds a decimal number to the number in a field of a hash.",
		Usage:   "key field increment", Run: cmdHIncrByFloat,
	},
}

func cmdHIncrBy(c *Ctx) Reply {
	by, ok := redistext.ParseInt(c.Args[3])
	if !ok {
		return notInteger
	}
	e, ok := c.write(TypeHash)
	if !ok {
		return wrongType
	}
	n := int64(0)
	if e != nil {
		if value, exists := e.Fields().Get(bytesToString(c.Args[2])); exists {
			if n, ok = redistext.ParseInt(stringBytes(value)); !ok {
				return Err(ErrHashNotInteger)
			}
		}
	}
	if n, ok = addInts(n, by); !ok {
		return Err(ErrOverflow)
	}
	c.HashSet(c.DB, c.Args[1], bytesToString(c.Args[2]), strconv.FormatInt(n, 10))
	c.eventOn(eventHash, "hincrby")
	return Int(n)
}

func cmdHIncrByFloat(c *Ctx) Reply {
	by, ok := redistext.ParseLongDouble(bytesToString(c.Args[3]))
	if !ok {
		return Err(ErrNotFloat)
	}
	if by.IsInf() {
		return Err(ErrNotAFloat)
	}
	e, ok := c.write(TypeHash)
	if !ok {
		return wrongType
	}
	old := "0"
	if e != nil {
		if value, exists := e.Fields().Get(bytesToString(c.Args[2])); exists {
			old = value
		}
	}
	n, ok := redistext.ParseLongDouble(old)
	if !ok {
		return Err(ErrHashNotFloat)
	}
	sum, ok := redistext.AddLongDoubles(n, by)
	if !ok {
		return Err(ErrNaNOrInf)
	}
	text := redistext.FormatLongDouble(sum)
	c.HashSet(c.DB, c.Args[1], bytesToString(c.Args[2]), text)
	c.eventOn(eventHash, "hincrbyfloat")
	return Str(text)
}

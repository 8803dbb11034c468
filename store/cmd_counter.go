package store

import (
	"strconv"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// counterCommands are the commands on strings that hold numbers.
var counterCommands = []Command{
	{
		Name: "incr", Arity: 2, Flags: Write | DenyOOM | Fast, Group: "string", Since: "1.0.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyUpdate),
		Summary: "Adds one to the integer of a key.",
		Usage:   "key", Run: cmdIncr,
	},
	{
		Name: "decr", Arity: 2, Flags: Write | DenyOOM | Fast, Group: "string", Since: "1.0.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyUpdate),
		Summary: "Subtracts one from the integer of a key.",
		Usage:   "key", Run: cmdDecr,
	},
	{
		Name: "incrby", Arity: 3, Flags: Write | DenyOOM | Fast, Group: "string", Since: "1.0.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyUpdate),
		Summary: "Adds an integer to the integer of a key.",
		Usage:   "key increment", Run: cmdIncrBy,
	},
	{
		Name: "decrby", Arity: 3, Flags: Write | DenyOOM | Fast, Group: "string", Since: "1.0.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyUpdate),
		Summary: "Subtracts an integer from the integer of a key.",
		Usage:   "key decrement", Run: cmdDecrBy,
	},
	{
		Name: "incrbyfloat", Arity: 3, Flags: Write | DenyOOM | Fast, Group: "string", Since: "2.6.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyUpdate),
		Summary: "Adds a decimal number to the number of a key.",
		Usage:   "key increment", Run: cmdIncrByFloat,
	},
}

func cmdIncr(c *Ctx) Reply { return c.addInt(1) }

func cmdDecr(c *Ctx) Reply { return c.addInt(-1) }

func cmdIncrBy(c *Ctx) Reply {
	n, ok := redistext.ParseInt(c.Args[2])
	if !ok {
		return notInteger
	}
	return c.addInt(n)
}

func cmdDecrBy(c *Ctx) Reply {
	n, ok := redistext.ParseInt(c.Args[2])
	if !ok {
		return notInteger
	}
	if n == -n && n != 0 {
		return Err(ErrDecrOverflow)
	}
	return c.addInt(-n)
}

func (c *Ctx) addInt(by int64) Reply {
	e, ok := c.write(TypeString)
	if !ok {
		return wrongType
	}
	var n int64
	if e != nil {
		if n, ok = redistext.ParseInt(stringBytes(e.str)); !ok {
			return notInteger
		}
	}
	if n, ok = addInts(n, by); !ok {
		return Err(ErrOverflow)
	}
	c.KeepString(c.DB, c.Args[1], strconv.FormatInt(n, 10))
	c.eventOn(eventString, "incrby")
	return Int(n)
}

// addInts returns a+b; ok is false if the sum overflows.
func addInts(a, b int64) (sum int64, ok bool) {
	sum = a + b
	return sum, (sum > a) == (b > 0)
}

func cmdIncrByFloat(c *Ctx) Reply {
	e, ok := c.write(TypeString)
	if !ok {
		return wrongType
	}
	old := "0"
	if e != nil {
		old = e.str
	}
	n, ok := redistext.ParseLongDouble(old)
	if !ok {
		return Err(ErrNotFloat)
	}
	by, ok := redistext.ParseLongDouble(bytesToString(c.Args[2]))
	if !ok {
		return Err(ErrNotFloat)
	}
	sum, ok := redistext.AddLongDoubles(n, by)
	if !ok {
		return Err(ErrNaNOrInf)
	}
	text := redistext.FormatLongDouble(sum)
	c.KeepString(c.DB, c.Args[1], text)
	c.Reform(c.DB, c.Args[1], formText)
	c.eventOn(eventString, "incrbyfloat")
	return Str(text)
}

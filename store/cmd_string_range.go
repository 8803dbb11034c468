package store

import (
	"github.com/lockstep-io/lockstep/store/redistext"
)

// stringRangeCommands are the commands on parts of strings.
var stringRangeCommands = []Command{
	{
		Name: "append", Arity: 3, Flags: Write | DenyOOM | Fast, Group: "string", Since: "2.0.0",
		Keys:    firstKey(KeyRW | KeyInsert),
		Summary: "Appends to the string of a key, creating it if needed.",
		Usage:   "key value", Run: cmdAppend,
	},
	{
		Name: "strlen", Arity: 2, Flags: ReadOnly | Fast, Group: "string", Since: "2.2.0",
		Keys:    firstKey(KeyRO),
		Summary: "Returns the length of the string of a key.",
		Usage:   "key", Run: cmdStrLen,
	},
	{
		Name: "setrange", Arity: 4, Flags: Write | DenyOOM, Group: "string", Since: "2.2.0",
		Keys:    firstKey(KeyRW | KeyUpdate),
		Summary: "Overwrites a part of the string of a key.",
		Usage:   "key offset value", Run: cmdSetRange,
	},
	{
		Name: "getrange", Arity: 4, Flags: ReadOnly, Group: "string", Since: "2.4.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Returns a part of the string of a key.",
		Usage:   "key start end", Run: cmdGetRange,
	},
	{
		Name: "substr", Arity: 4, Flags: ReadOnly, Group: "string", Since: "1.0.0",
		Keys:       firstKey(KeyRO | KeyAccess),
		Deprecated: "2.0.0", ReplacedBy: "`GETRANGE`",
		Summary: "Returns a part of the string of a key, under its old name.",
		Usage:   "key start end", Run: cmdGetRange,
	},
}

// maxString is the length, in bytes, of the longest string: the default of Redis's proto-max-bulk-len.
const maxString = 512 << 20

// checkLength returns nil if a string may have at+more bytes, else the error.
func (c *Ctx) checkLength(at, more int64) *Reply {
	switch total := at + more; {
	case total > maxString || total < at:
		return &stringTooLong
	case total > c.MaxEntry():
		r := Err(c.ErrTooBig())
		return &r
	}
	return nil
}

var stringTooLong = Err(ErrStringSize)

func cmdAppend(c *Ctx) Reply {
	e, ok := c.write(TypeString)
	if !ok {
		return wrongType
	}
	if e == nil {
		c.SetString(c.DB, c.Args[1], c.Arg(2), 0)
		c.eventOn(eventString, "append")
		return Int(int64(len(c.Args[2])))
	}
	old := int64(len(e.str))
	if fault := c.checkLength(old, int64(len(c.Args[2]))); fault != nil {
		return *fault
	}
	c.Patch(c.DB, c.Args[1], old, bytesToString(c.Args[2]))
	c.eventOn(eventString, "append")
	return Int(old + int64(len(c.Args[2])))
}

func cmdStrLen(c *Ctx) Reply {
	e, ok := c.read(TypeString)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return Zero
	}
	return Int(int64(len(e.str)))
}

func cmdSetRange(c *Ctx) Reply {
	offset, ok := redistext.ParseInt(c.Args[2])
	if !ok {
		return notInteger
	}
	if offset < 0 {
		return Err(ErrOffset)
	}
	e, ok := c.write(TypeString)
	if !ok {
		return wrongType
	}
	old := int64(0)
	if e != nil {
		old = int64(len(e.str))
	}
	patch := c.Args[3]
	if len(patch) == 0 {
		return Int(old)
	}
	if fault := c.checkLength(offset, int64(len(patch))); fault != nil {
		return *fault
	}
	c.Patch(c.DB, c.Args[1], offset, bytesToString(patch))
	c.eventOn(eventString, "setrange")
	return Int(max(old, offset+int64(len(patch))))
}

func cmdGetRange(c *Ctx) Reply {
	start, ok := redistext.ParseInt(c.Args[2])
	end, ok2 := redistext.ParseInt(c.Args[3])
	if !ok || !ok2 {
		return notInteger
	}
	e, ok := c.read(TypeString)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return Str("")
	}
	from, to := clampRange(start, end, int64(len(e.str)))
	return Str(e.str[from:to])
}

// clampRange converts two inclusive indexes to the bounds of a slice of length n; negative indexes
// count from the end.
func clampRange(start, end, n int64) (from, to int64) {
	if start < 0 && end < 0 && start > end {
		return 0, 0
	}
	if start < 0 {
		start = max(n+start, 0)
	}
	if end < 0 {
		end = max(n+end, 0)
	}
	end = min(end, n-1)
	if start > end {
		return 0, 0
	}
	return start, end + 1
}

package store

import "bytes"

// keyCommands are the commands on keys of any type.
var keyCommands = []Command{
	{
		Name: "del", Arity: -2, Flags: Write, Group: "generic", Since: "1.0.0",
		Keys:    []KeySpec{{Begin: 1, Last: -1, Step: 1, Flags: KeyRM | KeyDelete}},
		Tips:    []string{"request_policy:multi_shard", "response_policy:agg_sum"},
		Summary: "Deletes keys.",
		Usage:   "key [key ...]", Run: cmdDel,
	},
	{
		Name: "unlink", Arity: -2, Flags: Write | Fast, Group: "generic", Since: "4.0.0",
		Keys:    []KeySpec{{Begin: 1, Last: -1, Step: 1, Flags: KeyRM | KeyDelete}},
		Tips:    []string{"request_policy:multi_shard", "response_policy:agg_sum"},
		Summary: "Deletes keys and leaves the freeing of memory for later.",
		Usage:   "key [key ...]", Run: cmdDel,
	},
	{
		Name: "exists", Arity: -2, Flags: ReadOnly | Fast, Group: "generic", Since: "1.0.0",
		Keys:    []KeySpec{{Begin: 1, Last: -1, Step: 1, Flags: KeyRO}},
		Tips:    []string{"request_policy:multi_shard", "response_policy:agg_sum"},
		Summary: "Counts how many of the named keys exist.",
		Usage:   "key [key ...]", Run: cmdExists,
	},
	{
		Name: "touch", Arity: -2, Flags: ReadOnly | Fast, Group: "generic", Since: "3.2.1",
		Keys:    []KeySpec{{Begin: 1, Last: -1, Step: 1, Flags: KeyRO}},
		Tips:    []string{"request_policy:multi_shard", "response_policy:agg_sum"},
		Summary: "Counts how many of the named keys exist and marks them as used.",
		Usage:   "key [key ...]", Run: cmdExists,
	},
	{
		Name: "type", Arity: 2, Flags: ReadOnly | Fast, Group: "generic", Since: "1.0.0",
		Keys:    firstKey(KeyRO),
		Summary: "Returns the type of the value of a key.",
		Usage:   "key", Run: cmdType,
	},
	{
		Name: "rename", Arity: 3, Flags: Write, Group: "generic", Since: "1.0.0",
		Keys:    []KeySpec{{Begin: 1, Step: 1, Flags: KeyRW | KeyAccess | KeyDelete}, {Begin: 2, Step: 1, Flags: KeyOW | KeyUpdate}},
		Summary: "Renames a key, replacing the key of the new name.",
		Usage:   "key newkey", Run: cmdRename,
	},
	{
		Name: "renamenx", Arity: 3, Flags: Write | Fast, Group: "generic", Since: "1.0.0",
		Keys:    []KeySpec{{Begin: 1, Step: 1, Flags: KeyRW | KeyAccess | KeyDelete}, {Begin: 2, Step: 1, Flags: KeyOW | KeyInsert}},
		Summary: "Renames a key if the new name is free.",
		Usage:   "key newkey", Run: cmdRenameNX,
	},
	{
		Name: "copy", Arity: -3, Flags: Write | DenyOOM, Group: "generic", Since: "6.2.0",
		Keys:    []KeySpec{{Begin: 1, Step: 1, Flags: KeyRO | KeyAccess}, {Begin: 2, Step: 1, Flags: KeyOW | KeyUpdate}},
		Summary: "Copies a key to another name or database.",
		Usage:   "source destination [DB destination-db] [REPLACE]", Run: cmdCopy,
	},
}

func cmdDel(c *Ctx) Reply {
	n := int64(0)
	for _, key := range c.Args[1:] {
		c.work(keySteps)
		if c.LookupWrite(c.DB, key) != nil {
			c.Delete(c.DB, key)
			c.event(eventGeneric, "del", key)
			n++
		}
	}
	return Int(n)
}

// cmdExists also serves TOUCH, because there is no access time to update. A key named twice counts
// twice.
func cmdExists(c *Ctx) Reply {
	n := int64(0)
	for _, key := range c.Args[1:] {
		c.work(keySteps)
		if c.Lookup(c.DB, key) != nil {
			n++
		} else {
			c.foundMissing(key)
		}
	}
	return Int(n)
}

func cmdType(c *Ctx) Reply {
	e := c.Lookup(c.DB, c.Args[1])
	if e == nil {
		return Status("none")
	}
	return Status(e.typ.String())
}

func cmdRename(c *Ctx) Reply {
	if r := c.rename(false); r.Kind == Failure {
		return r
	}
	return OK
}

func cmdRenameNX(c *Ctx) Reply { return c.rename(true) }

// rename replies 1 if it renamed the key. A key renamed to itself stays unchanged.
func (c *Ctx) rename(onlyNew bool) Reply {
	key, name := c.Args[1], c.Args[2]
	switch e := c.LookupWrite(c.DB, key); {
	case e == nil:
		return Err(ErrNoSuchKey)
	case e.typ == TypeLock:
		return lockMoves
	}
	if bytes.Equal(key, name) || c.LookupWrite(c.DB, name) != nil && onlyNew {
		return Zero
	}
	c.Move(c.DB, key, c.DB, name)
	c.event(eventGeneric, "rename_from", key)
	c.event(eventGeneric, "rename_to", name)
	return One
}

// lockMoves refuses to move or copy a lock whose holders know it by its name.
var lockMoves = Err(ErrLockMoves)

func cmdCopy(c *Ctx) Reply {
	to, replace := c.DB, false
	for i := 3; i < len(c.Args); i++ {
		switch arg := c.Args[i]; {
		case equalFold(arg, "replace"):
			replace = true
		case equalFold(arg, "db") && i+1 < len(c.Args):
			i++
			n, fault := parseInt32(c.Args[i])
			if fault != nil {
				return *fault
			}
			if n < 0 || n >= Databases {
				return Err(ErrDBIndex)
			}
			to = n
		default:
			return Err(ErrSyntax)
		}
	}
	key, name := c.Args[1], c.Args[2]
	if to == c.DB && bytes.Equal(key, name) {
		return Err(ErrSameObject)
	}
	e := c.Lookup(c.DB, key)
	if e != nil && e.typ == TypeLock {
		return lockMoves
	}
	if e == nil || c.LookupWrite(to, name) != nil && !replace {
		return Zero
	}
	c.Copy(c.DB, key, to, name)
	c.notify(eventGeneric, "copy_to", to, bytesToString(name))
	return One
}

package store

// hashCommands are the commands on hashes.
var hashCommands = []Command{
	{
		Name: "hset", Arity: -4, Flags: Write | DenyOOM | Fast, Group: "hash", Since: "2.0.0",
		Keys:    firstKey(KeyRW | KeyUpdate),
		Summary: "Sets fields of a hash and counts those that are new.",
		Usage:   "key field value [field value ...]", Run: cmdHSet,
	},
	{
		Name: "hmset", Arity: -4, Flags: Write | DenyOOM | Fast, Group: "hash", Since: "2.0.0",
		Keys:       firstKey(KeyRW | KeyUpdate),
		Deprecated: "4.0.0", ReplacedBy: "`HSET` with multiple field-value pairs",
		Summary: "Sets fields of a hash.",
		Usage:   "key field value [field value ...]", Run: cmdHMSet,
	},
	{
		Name: "hsetnx", Arity: 4, Flags: Write | DenyOOM | Fast, Group: "hash", Since: "2.0.0",
		Keys:    firstKey(KeyRW | KeyInsert),
		Summary: "Sets a field of a hash if it does not exist.",
		Usage:   "key field value", Run: cmdHSetNX,
	},
	{
		Name: "hget", Arity: 3, Flags: ReadOnly | Fast, Group: "hash", Since: "2.0.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Returns the value of a field of a hash.",
		Usage:   "key field", Run: cmdHGet,
	},
	{
		Name: "hmget", Arity: -3, Flags: ReadOnly | Fast, Group: "hash", Since: "2.0.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Returns the values of several fields of a hash.",
		Usage:   "key field [field ...]", Run: cmdHMGet,
	},
	{
		Name: "hgetall", Arity: 2, Flags: ReadOnly, Group: "hash", Since: "2.0.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Tips:    []string{"nondeterministic_output_order"},
		Summary: "Returns all fields of a hash with their values.",
		Usage:   "key", Run: cmdHGetAll,
	},
	{
		Name: "hkeys", Arity: 2, Flags: ReadOnly, Group: "hash", Since: "2.0.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Tips:    []string{"nondeterministic_output_order"},
		Summary: "Returns the names of all fields of a hash.",
		Usage:   "key", Run: cmdHKeys,
	},
	{
		Name: "hvals", Arity: 2, Flags: ReadOnly, Group: "hash", Since: "2.0.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Tips:    []string{"nondeterministic_output_order"},
		Summary: "Returns the values of all fields of a hash.",
		Usage:   "key", Run: cmdHVals,
	},
	{
		Name: "hlen", Arity: 2, Flags: ReadOnly | Fast, Group: "hash", Since: "2.0.0",
		Keys:    firstKey(KeyRO),
		Summary: "Counts the fields of a hash.",
		Usage:   "key", Run: cmdHLen,
	},
	{
		Name: "hexists", Arity: 3, Flags: ReadOnly | Fast, Group: "hash", Since: "2.0.0",
		Keys:    firstKey(KeyRO),
		Summary: "Tells whether a hash has a field.",
		Usage:   "key field", Run: cmdHExists,
	},
	{
		Name: "hstrlen", Arity: 3, Flags: ReadOnly | Fast, Group: "hash", Since: "3.2.0",
		Keys:    firstKey(KeyRO),
		Summary: "Returns the length of the value of a field of a hash.",
		Usage:   "key field", Run: cmdHStrLen,
	},
	{
		Name: "hdel", Arity: -3, Flags: Write | Fast, Group: "hash", Since: "2.0.0",
		Keys:    firstKey(KeyRW | KeyDelete),
		Summary: "Deletes fields of a hash, and the hash with its last field.",
		Usage:   "key field [field ...]", Run: cmdHDel,
	},
}

// cmdHSet replies with the number of fields that are new.
func cmdHSet(c *Ctx) Reply {
	if len(c.Args)%2 == 1 {
		return Err(ErrWrongArgs(c.Cmd.FullName()))
	}
	e, ok := c.write(TypeHash)
	if !ok {
		return wrongType
	}
	added := int64(0)
	for i := 2; i < len(c.Args); i += 2 {
		field := bytesToString(c.Args[i])
		exists := false
		if e != nil {
			_, exists = c.fieldOf(e.Fields(), field)
		}
		if !exists {
			added++
		}
		c.HashSet(c.DB, c.Args[1], field, c.Arg(i+1))
		if i == 2 && len(c.Args) > 4 {
			e = c.Txn.Lookup(c.DB, c.Args[1]) // get the new entry: the first write created or copied it
		}
	}
	c.eventOn(eventHash, "hset")
	return Int(added)
}

func cmdHMSet(c *Ctx) Reply {
	if r := cmdHSet(c); r.Kind == Failure {
		return r
	}
	return OK
}

func cmdHSetNX(c *Ctx) Reply {
	e, ok := c.write(TypeHash)
	if !ok {
		return wrongType
	}
	field := bytesToString(c.Args[2])
	if e != nil {
		if _, exists := e.Fields().Get(field); exists {
			return Zero
		}
	}
	c.HashSet(c.DB, c.Args[1], field, c.Arg(3))
	c.eventOn(eventHash, "hset")
	return One
}

// field returns the value of the field at Args[2].
func (c *Ctx) field() (value string, exists, ok bool) {
	e, ok := c.read(TypeHash)
	if !ok || e == nil {
		return "", false, ok
	}
	value, exists = e.Fields().Get(bytesToString(c.Args[2]))
	return value, exists, true
}

func cmdHGet(c *Ctx) Reply {
	value, exists, ok := c.field()
	switch {
	case !ok:
		return wrongType
	case !exists:
		return Nil
	}
	return Str(value)
}

func cmdHExists(c *Ctx) Reply {
	_, exists, ok := c.field()
	if !ok {
		return wrongType
	}
	return Flag(exists)
}

func cmdHStrLen(c *Ctx) Reply {
	value, _, ok := c.field()
	if !ok {
		return wrongType
	}
	return Int(int64(len(value)))
}

func cmdHMGet(c *Ctx) Reply {
	e, ok := c.read(TypeHash)
	if !ok {
		return wrongType
	}
	if refusal, refused := c.tooMany(int64(len(c.Args) - 2)); refused {
		return refusal
	}
	elems := make([]Reply, len(c.Args)-2)
	for i, field := range c.Args[2:] {
		elems[i] = Nil
		if e == nil {
			c.work(1)
			continue
		}
		if value, exists := c.fieldOf(e.Fields(), bytesToString(field)); exists {
			elems[i] = Str(value)
		}
	}
	return List(elems...)
}

func cmdHGetAll(c *Ctx) Reply {
	r := c.listFields(2, func(f Field, to []Reply) []Reply { return append(to, Str(f.Name), Str(f.Value)) })
	if r.Kind == Array {
		r.Kind = Map
	}
	return r
}

func cmdHKeys(c *Ctx) Reply {
	return c.listFields(1, func(f Field, to []Reply) []Reply { return append(to, Str(f.Name)) })
}

func cmdHVals(c *Ctx) Reply {
	return c.listFields(1, func(f Field, to []Reply) []Reply { return append(to, Str(f.Value)) })
}

// listFields replies with the elements that the function add appends: per elements for each field.
func (c *Ctx) listFields(per int, add func(f Field, to []Reply) []Reply) Reply {
	e, ok := c.read(TypeHash)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return emptyList
	}
	if refusal, refused := c.tooMany(int64(per) * int64(e.Fields().Len())); refused {
		return refusal
	}
	elems := make([]Reply, 0, per*e.Fields().Len())
	e.Fields().Each(func(f Field) bool {
		c.work(1)
		elems = add(f, elems)
		return true
	})
	return List(elems...)
}

func cmdHLen(c *Ctx) Reply {
	e, ok := c.read(TypeHash)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return Zero
	}
	return Int(int64(e.Fields().Len()))
}

func cmdHDel(c *Ctx) Reply {
	e, ok := c.write(TypeHash)
	if !ok {
		return wrongType
	}
	n := int64(0)
	for _, field := range c.Args[2:] {
		if e == nil {
			break
		}
		name := bytesToString(field)
		if _, exists := c.fieldOf(e.Fields(), name); exists {
			c.HashDelete(c.DB, c.Args[1], name)
			if n++; n == 1 {
				e = c.Txn.Lookup(c.DB, c.Args[1]) // get the new entry: it is a copy now, or was deleted with its last field
			}
		}
	}
	if n > 0 {
		c.eventOn(eventHash, "hdel")
		c.eventIfGone(c.Args[1])
	}
	return Int(n)
}

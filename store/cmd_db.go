package store

// databaseCommands are the commands on whole databases.
var databaseCommands = []Command{
	{
		Name: "select", Arity: 2, Flags: Loading | Stale | Fast, Group: "connection", Since: "1.0.0",
		Summary: "Changes the database that the commands after it work on.",
		Usage:   "index", Run: cmdSelect,
	},
	{
		Name: "move", Arity: 3, Flags: Write | Fast, Group: "generic", Since: "1.0.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyUpdate),
		Summary: "Moves a key to another database.",
		Usage:   "key db", Run: cmdMove,
	},
	{
		Name: "swapdb", Arity: 3, Flags: Write | Fast | Dangerous | Keyspace, Group: "server", Since: "4.0.0",
		Summary: "Exchanges the contents of two databases.",
		Usage:   "index1 index2", Run: cmdSwapDB,
	},
	{
		Name: "dbsize", Arity: 1, Flags: ReadOnly | Fast | Keyspace, Group: "server", Since: "1.0.0",
		Tips:    []string{"request_policy:all_shards", "response_policy:agg_sum"},
		Summary: "Counts the keys of the database.",
		Run:     cmdDBSize,
	},
	{
		Name: "flushdb", Arity: -1, Flags: Write | Dangerous | Keyspace, Group: "server", Since: "1.0.0",
		Tips:    []string{"request_policy:all_shards", "response_policy:all_succeeded"},
		Summary: "Deletes all keys of the database.",
		Usage:   "[ASYNC | SYNC]", Run: cmdFlushDB,
	},
	{
		Name: "flushall", Arity: -1, Flags: Write | Dangerous | Keyspace, Group: "server", Since: "1.0.0",
		Tips:    []string{"request_policy:all_shards", "response_policy:all_succeeded"},
		Summary: "Deletes all keys of all databases.",
		Usage:   "[ASYNC | SYNC]", Run: cmdFlushAll,
	},
}

// cmdSelect changes the database of the enclosing script or transaction. The server package handles
// SELECT of a connection.
func cmdSelect(c *Ctx) Reply {
	n, fault := parseInt32(c.Args[1])
	if fault != nil {
		return *fault
	}
	if n < 0 || n >= Databases {
		return Err(ErrDBIndex)
	}
	c.DB = n
	return OK
}

func cmdMove(c *Ctx) Reply {
	to, fault := parseInt32(c.Args[2])
	if fault != nil {
		return *fault
	}
	if to < 0 || to >= Databases {
		return Err(ErrDBIndex)
	}
	if to == c.DB {
		return Err(ErrSameObject)
	}
	key := c.Args[1]
	e := c.LookupWrite(c.DB, key)
	if e != nil && e.typ == TypeLock {
		return lockMoves
	}
	if e == nil || c.LookupWrite(to, key) != nil {
		return Zero
	}
	c.Move(c.DB, key, to, key)
	c.event(eventGeneric, "move_from", key)
	c.notify(eventGeneric, "move_to", to, bytesToString(key))
	return One
}

func cmdSwapDB(c *Ctx) Reply {
	a, fault := parseInt32(c.Args[1])
	if fault != nil {
		return Err(ErrFirstDB)
	}
	b, fault := parseInt32(c.Args[2])
	if fault != nil {
		return Err(ErrSecondDB)
	}
	if a < 0 || a >= Databases || b < 0 || b >= Databases {
		return Err(ErrDBIndex)
	}
	if a != b {
		c.Swap(a, b)
	}
	return OK
}

func cmdDBSize(c *Ctx) Reply { return Int(int64(c.Size(c.DB))) }

func cmdFlushDB(c *Ctx) Reply {
	if !flushMode(c.Args) {
		return Err(ErrSyntax)
	}
	before := c.Writes().Len()
	c.work(len(c.views[c.DB].over) * keySteps)
	c.Flush(c.DB)
	c.tellFlushed(before)
	return OK
}

// tellFlushed writes a flush if the command has written nothing: clients with CLIENT TRACKING forget by it which keys were missing, as in
// Redis.
func (c *Ctx) tellFlushed(before int) {
	if c.Writes().Len() == before {
		c.flushEmpty(c.DB)
	}
}

func cmdFlushAll(c *Ctx) Reply {
	if !flushMode(c.Args) {
		return Err(ErrSyntax)
	}
	before := c.Writes().Len()
	for db := range Databases {
		c.work(len(c.views[db].over) * keySteps)
		c.Flush(db)
	}
	c.tellFlushed(before)
	return OK
}

// flushMode reports whether a flush has legal arguments: none, ASYNC or SYNC. ASYNC and SYNC do the same here, because dropping a
// tree takes no time.
func flushMode(args [][]byte) bool {
	return len(args) == 1 ||
		len(args) == 2 && (equalFold(args[1], "async") || equalFold(args[1], "sync"))
}

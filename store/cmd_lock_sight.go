package store

import "github.com/lockstep-io/lockstep/store/redistext"

// sightCommands show every lock, of whatever client, and end one.
var sightCommands = []Command{
	{
		Name: "lock.info", Arity: 2, Flags: ReadOnly | Admin | Dangerous, Group: "lock", Since: "0.2.0", Newer: true,
		Keys:    firstKey(KeyRO | KeyAccess),
		Tips:    []string{"nondeterministic_output"},
		Summary: "Tells the kind, the owners and the token of a lock, and how many clients wait for it.",
		Usage:   "key", Run: cmdLockInfo,
	},
	{
		Name: "lock.waiters", Arity: 2, Flags: ReadOnly | Admin | Dangerous, Group: "lock", Since: "0.2.0", Newer: true,
		Keys:    firstKey(KeyRO | KeyAccess),
		Tips:    []string{"nondeterministic_output"},
		Summary: "Lists the clients that wait for a lock.",
		Usage:   "key", Run: cmdLockWaiters,
	},
	{
		Name: "lock.list", Arity: -1, Flags: ReadOnly | Admin | Dangerous, Group: "lock", Since: "0.2.0", Newer: true,
		Tips:    []string{"nondeterministic_output", "request_policy:special"},
		Summary: "Iterates over the locks of the database.",
		Usage:   "[CURSOR cursor] [COUNT count] [MATCH pattern] [KIND kind] [OWNER pattern] [CLIENT pattern] [WAITERS minimum] [MINAGE milliseconds] [SORT <age | waiters | ttl>]", Run: cmdLockList,
	},
	{
		Name: "lock.force", Arity: -4, Flags: Write | Admin | Dangerous, Group: "lock", Since: "0.2.0", Newer: true,
		Keys:    firstKey(KeyRW | KeyAccess | KeyDelete),
		Summary: "Ends a lock of any kind, and wakes the clients that wait for it.",
		Usage:   "key REASON text [OWNER owner] [TOKEN token]", Run: cmdLockForce,
	},
}

// mostShown is how many owners LOCK.INFO shows, and how many clients LOCK.WAITERS.
const mostShown = 1000

// lockAt looks up a lock and its kind; kind is "" if the key is missing or no lock.
func (c *Ctx) lockAt(key []byte) (e *Entry, kind string) {
	if e = c.Lookup(c.DB, key); e != nil {
		kind = c.kindOf(e)
	}
	return e, kind
}

// kindOf is lockKind, and counts its steps.
func (c *Ctx) kindOf(e *Entry) string {
	switch e.typ {
	case TypeString:
		c.work(keySteps)
	case TypeHash, TypeSortedSet:
		c.work(min(e.elems.Len(), lookAtFields) + 3*keySteps)
	}
	return c.lockKind(c.DB, e)
}

func cmdLockInfo(c *Ctx) Reply {
	e, kind := c.lockAt(c.Args[1])
	if kind == "" {
		return Nil
	}
	if !c.TokensCounted() {
		return noTokens
	}
	n, owners, newest := int64(0), []Reply{}, uint64(0)
	c.eachHolder(e, kind, func(h lockHolder) bool {
		c.work(1)
		newest = max(newest, h.token)
		if n++; n <= mostShown {
			owners = append(owners, MapOf(Str("owner"), Str(h.owner), Str("holds"), Int(h.holds), Str("permits"), Int(h.permits),
				Str("token"), Int(int64(h.token)), Str("ttl"), Int(c.ttlOf(h.until, h.leased))).With(c.holderFields(h)...))
		}
		return true
	})
	at, leased := e.until()
	fields := []Reply{Str("key"), Str(e.key), Str("kind"), Str(kind), Str("token"), Int(int64(newest)), Str("ttl"), Int(c.ttlOf(at, leased)),
		Str("waiters"), Int(c.waitersOf(e, kind)), Str("holders"), Int(n), Str("owners"), List(owners...)}
	if l := e.Lock(); l != nil {
		if limit, ok := l.mode.limit(); ok {
			fields = append(fields, Str("limit"), Int(limit), Str("free"), Int(limit-l.used))
		}
	}
	switch kind {
	case kindSemaphore:
		fields = append(fields, Str("free"), Int(countOf(e)))
	case kindLatch:
		fields = append(fields, Str("count"), Int(countOf(e)))
	}
	return MapOf(fields...)
}

// holderFields says for how many ms an owner has held a lock (-1: that is not known), and which client on which node has taken it (nil: that is
// not known). A server adds the address and the name of that client; they are nil here.
func (c *Ctx) holderFields(h lockHolder) []Reply {
	age, node, id := Int(-1), Nil, Nil
	if c.env.Held != nil {
		if since, number, known := c.env.Held(c.DB, h.token, ShortName(h.owner)); known {
			age = Int(max(c.Now().Lease-since, 0))
			if number != 0 {
				if name, client, _ := c.env.Client(number); name != "" {
					node, id = Str(name), Int(int64(client))
				}
			}
		}
	}
	return []Reply{Str("age"), age, Str("node"), node, Str("client"), id, Str("addr"), Nil, Str("name"), Nil}
}

// countOf returns the number of a semaphore or a latch.
func countOf(e *Entry) int64 {
	n, _ := redistext.ParseInt(stringBytes(e.str)) // it is a number, or the key would have another kind
	return n
}

// ttlOf returns the ms until a deadline that the write set seq has set, or -1 without one. In its grace a lease has the rest of that.
func (c *Ctx) ttlOf(deadline int64, seq uint64) int64 {
	if deadline == 0 {
		return -1
	}
	left := deadline - c.Now().Lease
	if left <= 0 {
		left = c.gracedAt(deadline, seq) - c.Now().Lease
	}
	return max(left, 0)
}

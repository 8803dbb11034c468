package store

// Who waits for a lock. The leader knows the clients that its own commands keep waiting, Redisson's queue, and those that have just asked in
// vain. Of subscribers, each node knows its own.

// Waiter is a client that waits for a lock.
type Waiter struct {
	Owner  string
	User   string
	Age    int64 // ms since it began to wait
	Shared bool
}

// The ways to wait, which LOCK.WAITERS calls queues.
const (
	queueServer     = "server"     // LOCK.ACQUIRE with WAIT
	queueRedisson   = "redisson"   // the queue of Redisson's fair lock
	queueSubscriber = "subscriber" // a connection that has subscribed to the channel of the lock's release
	queueBlocked    = "blocked"    // a client of python-redis-lock, blocked until the release gives a signal
	queuePoller     = "poller"     // a client that asks again and again
)

// unlockChannelOf returns the channel to which clients that wait for a lock subscribe; "" if there is none, or if it is not the lock's own.
func unlockChannelOf(key, kind string) string {
	switch kind {
	case kindRLock, kindReentrant, kindFenced, kindGroup:
		return unlockChannel(key)
	case kindReadWrite:
		return readWriteChannel + braced(key)
	case kindSemaphore:
		return semaphoreChannel + braced(key)
	case kindLatch:
		return latchChannel + braced(key)
	}
	return ""
}

// subscribersOf returns how many connections of a node have subscribed to the channel of a lock's release. Redisson has one connection for all
// threads of a process that wait for a lock. In Cluster mode it subscribes to shard channels.
func subscribersOf(key, kind string, count func(kind PublishKind, channel string) int) int {
	channel := unlockChannelOf(key, kind)
	if channel == "" || count == nil {
		return 0
	}
	return count(Channel, channel) + count(Shard, channel)
}

// polled reports whether clients that have asked in vain count: those of Redisson that wait in another way have asked, too, before.
func polled(kind string, subscribers int) bool { return kind != kindFairLock && subscribers == 0 }

// signalled returns the list for whose signal clients wait until a lock ends, if the user may read it.
func (c *Ctx) signalled(key, kind string) (list string, ok bool) {
	if kind != kindPlain || c.env.Blocked == nil {
		return "", false
	}
	list = signalKey(key)
	return list, list != "" && c.MayRun(c.Cmd.table.Lookup(llenCommand), llenCommand, stringBytes(list))
}

// waitersOf returns how many clients wait for a lock.
func (c *Ctx) waitersOf(e *Entry, kind string) int64 {
	n := 0
	if c.env.Waiting != nil {
		n = c.env.Waiting(c.DB, e.key)
	}
	if kind == kindFairLock && c.readsQueue(e.key) {
		n += c.fairQueue(c.DB, e.key).Len()
	}
	if list, ok := c.signalled(e.key, kind); ok {
		n += c.env.Blocked(c.DB, list)
	}
	subscribers := subscribersOf(e.key, kind, c.env.Subscribers)
	n += subscribers
	if polled(kind, subscribers) {
		c.eachPoller(e, kind, func(Waiter) bool { n++; return true })
	}
	return int64(n)
}

// eachPoller calls fn for the clients that have asked for a lock in vain, again and again, without those that have got it.
func (c *Ctx) eachPoller(e *Entry, kind string, fn func(Waiter) bool) {
	if c.env.EachPoller == nil {
		return
	}
	c.env.EachPoller(c.DB, e.key, c.Token(c.DB, e), func(w Waiter) bool {
		c.work(1)
		return c.holds(e, kind, w.Owner) || fn(w)
	})
}

// holds reports whether an owner is one of the first owners of a lock.
func (c *Ctx) holds(e *Entry, kind, owner string) (found bool) {
	looked := 0
	c.eachHolder(e, kind, func(h lockHolder) bool {
		c.work(1)
		looked++
		found = h.owner == owner
		return !found && looked < lookAtFields
	})
	return found
}

// readsQueue reports whether the user may read the queue of Redisson's fair lock, which is a key of its own.
func (c *Ctx) readsQueue(key string) bool {
	cmd := c.Cmd.table.Lookup(llenCommand)
	return c.MayRun(cmd, llenCommand, stringBytes(queueKey(key)))
}

var llenCommand = []byte("llen")

func cmdLockWaiters(c *Ctx) Reply {
	list, key := []Reply{}, bytesToString(c.Args[1])
	show := func(queue, node string) func(Waiter) bool {
		return func(w Waiter) bool {
			c.work(1)
			if len(list) < mostShown {
				list = append(list, waiterRow(queue, node, w))
			}
			return len(list) < mostShown
		}
	}
	if c.env.EachWaiter != nil {
		c.env.EachWaiter(c.DB, key, true, show(queueServer, ""))
	}
	e, kind := c.lockAt(c.Args[1])
	if kind == "" {
		return List(list...)
	}
	if kind == kindFairLock && c.readsQueue(e.key) {
		queued := show(queueRedisson, "")
		c.fairQueue(c.DB, e.key).Each(0, func(owner string) bool { return queued(Waiter{Owner: owner, Age: -1}) })
	}
	if signal, ok := c.signalled(e.key, kind); ok && c.env.EachWaiter != nil {
		c.env.EachWaiter(c.DB, signal, false, show(queueBlocked, ""))
	}
	subscribers := subscribersOf(e.key, kind, c.env.Subscribers)
	subscribed := show(queueSubscriber, c.env.Node)
	for i := 0; i < subscribers && subscribed(Waiter{Age: -1}); i++ {
	}
	if polled(kind, subscribers) {
		c.eachPoller(e, kind, show(queuePoller, ""))
	}
	return List(list...)
}

func waiterRow(queue, node string, w Waiter) Reply {
	return MapOf(Str("owner"), Str(w.Owner), Str("queue"), Str(queue), Str("user"), Str(w.User), Str("waited"), Int(w.Age), Str("shared"), Flag(w.Shared), Str("node"), Str(node))
}

// askedInVain notes that a client has asked for a lock in vain, and does not wait for it.
func (c *Ctx) askedInVain(e *Entry, owner string) {
	if c.env.AskedInVain != nil && e != nil {
		c.env.AskedInVain(c.DB, e.key, c.Token(c.DB, e), owner, c.Caller)
	}
}

// SubscribersHere adds the subscribers of the node that a client has asked to a reply of the leader, which knows only its own. args are those of
// LOCK.WAITERS, LOCK.INFO or LOCK.LIST.
func SubscribersHere(cmd *Command, args [][]byte, r Reply, node string, count func(kind PublishKind, channel string) int) Reply {
	switch {
	case r.IsError() || r.Kind == Null:
	case cmd.Name == "lock.waiters":
		r = unpacked(r)
		n := 0
		for _, kind := range [...]string{kindRLock, kindReadWrite, kindSemaphore, kindLatch} {
			n += subscribersOf(bytesToString(args[1]), kind, count)
		}
		for i := 0; i < n && len(r.Elems) < mostShown; i++ {
			r.Elems = append(r.Elems, waiterRow(queueSubscriber, node, Waiter{Age: -1}))
		}
	case cmd.Name == "lock.info":
		r = unpacked(r)
		addSubscribers(r, count)
	case cmd.Name == "lock.list":
		if r = unpacked(r); len(r.Elems) == 2 {
			for _, row := range r.Elems[1].Elems {
				addSubscribers(row, count)
			}
		}
	}
	return r
}

// unpacked returns a reply that may be changed: parts of one that another node has sent may still be packed.
func unpacked(r Reply) Reply {
	if r.Kind == Packed {
		if whole, _, err := ReadReply(stringBytes(r.Str)); err == nil { // ReadPacked has checked the bytes
			return whole
		}
	}
	for i := range r.Elems {
		r.Elems[i] = unpacked(r.Elems[i])
	}
	return r
}

// addSubscribers adds the subscribers of a node to the number of waiters in a row about a lock.
func addSubscribers(row Reply, count func(kind PublishKind, channel string) int) {
	field := func(name string) *Reply {
		for i := 0; i+1 < len(row.Elems); i += 2 {
			if row.Elems[i].Str == name {
				return &row.Elems[i+1]
			}
		}
		return &Reply{}
	}
	field("waiters").Int += int64(subscribersOf(field("key").Str, field("kind").Str, count))
}

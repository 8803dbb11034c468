package cluster

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"lockstep/store"
)

// A lock is microseconds of work for a leader. A value of a megabyte, a union of large sets
// or a long list that is read are tens of milliseconds, in which everybody waits for one. So heavy work gives
// way where others do light work: after a piece of it the next piece of this node's clients
// has to wait yieldTimes as long as that one took, or until the others do nothing any more. Nobody waits
// if nobody else is there.
//
// What is heavy is known of large arguments at once, and of all else when it has been done:
// from then on it is the client that counts as heavy, for yieldMemory, and so does a new
// connection from its address, because a client that connects anew for each command is no other one. What
// locks are made of keeps its place all the same (keepsPlace): a client that gives up a release and
// takes the lock again, by another connection, counts on the order in which they arrived. If such a
// request turns out to be heavy, its reply waits instead (holdReplies): its client sends nothing until then.

const (
	// HeavyBytes is how many bytes of the arguments, replies or writes of a command are heavy …
	HeavyBytes = 64 << 10
	// … and heavyTime how long an evaluation.
	heavyTime = 4 * time.Millisecond
	// longTime is from where on replies are held the first time already.
	longTime = 100 * time.Millisecond

	// yieldTimes is how many times as long as a piece of heavy work took is left to the others.
	yieldTimes = 9
	// yieldMost bounds that time.
	yieldMost = 2 * time.Second
	// byteTakes is what it takes to read or send a byte.
	byteTakes = 10 * time.Nanosecond
	// yieldLook is the least time in which others who do light work would be seen.
	yieldLook = 10 * time.Millisecond
	// yieldMemory is for how long it is remembered who has done heavy work.
	yieldMemory = time.Second
	// yieldSoon bounds how long a request waits that has no large arguments …
	yieldSoon = time.Second
	// … yieldCrowd how long a reply is held where many do heavy work …
	yieldCrowd = 30 * time.Second
	// … and yieldLate how long one with them does.
	yieldLate = 5 * time.Second
	// yieldHeld is how many bytes of arguments and replies wait at most, beyond what the clients
	// hold: more are run, or handed on, at once.
	yieldHeld = 16 << 20
	// heldReply is what a held reply takes besides: a goroutine, and the client's buffers, though it may have gone.
	heldReply = 16 << 10
	// largeAtOnce is how many bytes of large arguments a node's clients have under way at once, or one request that
	// has more: it is in memory several times on its way, to be evaluated, logged, sent and applied.
	largeAtOnce = 8 << 20
	// argumentWeight is what an argument takes beside its bytes: its place in a list, and that of what is replied to it.
	argumentWeight = 64
	// yieldAddrs bounds the addresses that are remembered.
	yieldAddrs = 1024
)

// Client is what a node remembers of a connection of its clients.
type Client struct {
	addr   netip.Addr
	node   *inHand       // of its node …
	inHand atomic.Int64  // … and how much of that is its own
	heavy  atomic.Int64  // monotonic time until which it counts as heavy; 0: it does not
	own    atomic.Bool   // by its own work, not by that of its address
	owes   atomic.Int64  // what the work took whose replies are to be held; 0: none are
	since  atomic.Int64  // monotonic time of its request, if it counted as heavy then; else 0
	light  atomic.Uint64 // the era of its last light request in the upper half, and how many there were in that era
}

// NewClient is for a connection from an address.
func (n *Node) NewClient(addr netip.Addr) *Client {
	c := &Client{addr: addr, node: &n.inHand}
	c.heavy.Store(int64(n.yields.known(addr, n.cfg.Time.Monotonic())))
	return c
}

// lightSince returns Client.light as it is in an era: with none if the last request came before.
func (c *Client) lightSince(era uint32) uint64 {
	if n := c.light.Load(); uint32(n>>32) == era {
		return n
	}
	return uint64(era) << 32
}

// isHeavy reports whether it has done heavy work lately.
func (c *Client) isHeavy(n *Node) bool {
	until := c.heavy.Load()
	if until == 0 {
		return false
	}
	if now := n.cfg.Time.Monotonic(); now < time.Duration(until) {
		c.since.CompareAndSwap(0, int64(now))
		return true
	}
	c.heavy.CompareAndSwap(until, 0)
	return false
}

// yields has heavy work of this node's clients give way.
type yields struct {
	light   atomic.Uint64 // requests so far of clients that do no heavy work
	era     atomic.Uint32 // how often was has been set
	exempt  atomic.Uint64 // requests so far of those that do, which may have written and have kept their place
	held    atomic.Int64  // bytes of arguments and replies that wait
	applied atomic.Uint64 // entries so far
	addrs   atomic.Int32  // len(lately), to be looked at without mu
	large   *semaphore.Weighted

	mu      sync.Mutex
	lately  map[netip.Addr]time.Duration // until when the clients of an address count as heavy
	running int
	next    time.Duration // when the next piece may begin, monotonic
	holding int           // replies that are held
	seen    work          // what others had done …
	changes time.Duration // … when that was last seen to have changed, monotonic
	crowd   time.Duration // until when the time is taken of those whose replies are held, and of the others between them
	pause   time.Duration // for how long others have to have done nothing, for it to begin before
	was     work          // when the present pieces began, or the last ones
	wrote   uint64        // how many of these may have written
	changed chan struct{} // closed when a piece ends
}

// work is how much others have done so far, or wait for.
type work struct {
	light, applied uint64
	known          bool
}

func newYields() *yields {
	return &yields{lately: map[netip.Addr]time.Duration{}, changed: make(chan struct{}), large: semaphore.NewWeighted(largeAtOnce)}
}

// known returns until when an address's clients count as heavy; 0 if they do not.
func (y *yields) known(addr netip.Addr, now time.Duration) time.Duration {
	if y.addrs.Load() == 0 {
		return 0
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if until := y.lately[addr]; until > now {
		return until
	}
	return 0
}

// remember notes that a client has done heavy work, unless cost is 0, and reports whether its replies
// are to be held for that. A first request that is not very long is forgiven: chance may have made it long.
func (n *Node) remember(c *Client, cost time.Duration) (holds bool) {
	if c == nil || cost == 0 {
		return false
	}
	now := n.cfg.Time.Monotonic()
	holds = cost > longTime || c.isHeavy(n)
	if holds {
		c.owes.Store(int64(cost))
		now += min(yieldTimes*cost, yieldSoon) // when it is answered
	}
	n.yields.remember(c, now)
	return holds
}

// remember has a client and its address count as heavy for some time from now on.
func (y *yields) remember(c *Client, now time.Duration) {
	until := now + yieldMemory
	c.heavy.Store(int64(until))
	c.own.Store(true)
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(y.lately) >= yieldAddrs {
		for addr, until := range y.lately {
			if until <= now {
				delete(y.lately, addr)
			}
		}
	}
	if _, there := y.lately[c.addr]; there || len(y.lately) < yieldAddrs {
		y.lately[c.addr] = until
	}
	y.addrs.Store(int32(len(y.lately)))
}

// isHeavy reports whether a request has to give way, and for how long at most. It counts those
// of clients for which others have to.
func (n *Node) isHeavy(c *Client, calls []Call) (heavy bool, patience time.Duration) {
	if c == nil {
		return false, 0
	}
	if c.since.Load() != 0 {
		c.since.Store(0) // of an earlier one
	}
	switch {
	case anyLarge(calls):
		return true, yieldLate
	case c.isHeavy(n) && !keepsPlace(calls):
		return true, yieldSoon
	case c.isHeavy(n) && c.own.Load():
		if !readOnly(calls) {
			n.yields.exempt.Add(1)
		}
		return false, 0
	}
	n.yields.light.Add(1)
	c.light.Store(c.lightSince(n.yields.era.Load()) + 1)
	return false, 0
}

// anyLarge reports whether one of the calls has large arguments. Many small ones, such as the
// renewals of a pipeline, are not heavy.
func anyLarge(calls []Call) bool {
	for i := range calls {
		if size(calls[i:i+1]) > HeavyBytes {
			return true
		}
	}
	return false
}

// size is how many bytes the arguments of calls are.
func size(calls []Call) (bytes int) {
	for i := range calls {
		for _, arg := range calls[i].Args {
			bytes += len(arg)
		}
		if t := calls[i].Txn; t != nil {
			bytes += size(t.Calls)
		}
	}
	return bytes
}

// arguments is how many arguments calls have.
func arguments(calls []Call) (n int) {
	for i := range calls {
		n += len(calls[i].Args)
		if t := calls[i].Txn; t != nil {
			n += arguments(t.Calls)
		}
	}
	return n
}

// keepsPlace reports whether calls without large arguments are what locks are made of: scripts,
// transactions, and writes that take the same time whatever the data is.
func keepsPlace(calls []Call) bool {
	for i := range calls {
		c := &calls[i]
		if c.Txn == nil && !c.Cmd.Is(store.Scripting) && !(c.Cmd.Is(store.Write) && (c.Cmd.Is(store.Fast) || setsOrDeletes[c.Cmd.Name])) {
			return false
		}
	}
	return true
}

var setsOrDeletes = map[string]bool{"set": true, "del": true}

// GiveWay waits for the turn of a client that has sent so many bytes, which are not submitted but
// kept for later: to read them is work, too. It returns at once if they are few.
func (n *Node) GiveWay(c *Client, bytes int) {
	if c == nil || bytes <= HeavyBytes {
		return
	}
	n.giveWay(c, nil, bytes, yieldLate)
	now := n.cfg.Time.Monotonic()
	n.yields.end(now-time.Duration(bytes)*byteTakes, now)
}

// submitGivingWay is submitPart for heavy work.
func (n *Node) submitGivingWay(client *Client, calls []Call, dst []store.Reply, patience time.Duration) []store.Reply {
	bytes := size(calls)
	done := n.giveWay(client, calls, bytes, patience)
	defer n.yields.admit(n.ctx, calls, bytes)()
	dst = n.submitPart(client, calls, dst)
	done(bytes + extent(dst))
	client.owes.Store(0) // it has given way
	return dst
}

// admit waits until there is room for large arguments under way.
func (y *yields) admit(ctx context.Context, calls []Call, bytes int) (leave func()) {
	n := int64(min(bytes+argumentWeight*arguments(calls), largeAtOnce))
	if bytes <= HeavyBytes || y.large.Acquire(ctx, n) != nil { // the node closes
		return func() {}
	}
	return func() { y.large.Release(n) }
}

// holdReplies delays the replies to heavy work that kept its place, until others have had the time that such
// work leaves them. The commands have been run in the order in which they came. Where many clients do such work, they are
// answered one by one, so far apart that it takes at most half of the leader's time if those of every node
// do it: whoever takes a lock waits for one of them, not for all.
func (n *Node) holdReplies(c *Client, replies []store.Reply) {
	if c == nil {
		return
	}
	cost := time.Duration(c.owes.Swap(0))
	if cost == 0 {
		return
	}
	now := n.cfg.Time.Monotonic()
	took := time.Duration(0) // with the wait for others, if that is known
	if since := time.Duration(c.since.Swap(0)); since > 0 {
		took = now - since
	}
	y := n.yields
	before, slot := y.owe(cost, now, 1+n.members())
	defer y.look(before)
	bytes := extent(replies)
	defer y.held.Add(-int64(bytes + heldReply))
	if y.held.Add(int64(bytes+heldReply)) > yieldHeld {
		n.giveWay(c, nil, 0, 0)(0)
		return
	}
	c.holds(0) // they count among those that are held
	switch {
	case slot > now+yieldSoon:
		n.awaitSlot(c, slot, max(2*cost, took))
	case took > 2*cost+longTime:
		n.awaitSlot(c, now+yieldSoon, took)
	default:
		n.giveWay(c, nil, 0, yieldSoon)(0)
	}
	if bytes > smallReply {
		n.inHand.take(n.ctx, c, bytes)
	}
}

// awaitSlot waits until a moment, or until others have done nothing for so long that none of them waits behind heavy work.
func (n *Node) awaitSlot(c *Client, slot, idle time.Duration) {
	y := n.yields
	idle += idle / 4
	for {
		now := n.cfg.Time.Monotonic()
		left := min(slot-now, idle-y.idleFor(now))
		if left <= 0 {
			y.remember(c, now) // it has been a while
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-n.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// idleFor is for how long others have done nothing, as far as that has been looked at.
func (y *yields) idleFor(now time.Duration) time.Duration {
	y.mu.Lock()
	defer y.mu.Unlock()
	if is := y.present(); is != y.seen {
		y.seen, y.changes = is, now
	}
	return now - y.changes
}

// members is how many members the cluster has, at least one.
func (n *Node) members() int {
	list, err := n.cons.Members()
	if err != nil {
		return 1 // the node ends
	}
	return max(len(list), 1)
}

// giveWay waits for the turn of a piece of heavy work, for no longer than patience. The piece ends
// with done, which is told how many bytes there were to read and to reply.
func (n *Node) giveWay(c *Client, calls []Call, bytes int, patience time.Duration) (done func(moved int)) {
	y, writes := n.yields, !readOnly(calls)
	late := n.cfg.Time.Monotonic() + patience
	defer y.held.Add(-int64(bytes))
	if y.held.Add(int64(bytes)) > yieldHeld {
		late = 0
	}
	var seen work
	for {
		now := n.cfg.Time.Monotonic()
		wait, changed := y.begin(c, now, late, &seen, writes)
		if wait <= 0 {
			return func(moved int) { y.end(now-time.Duration(moved)*byteTakes, n.cfg.Time.Monotonic()) }
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
			seen = work{} // not for long enough
		case <-n.ctx.Done():
			late = now
		}
		timer.Stop()
	}
}

// begin begins a piece of heavy work, if its turn has come. If not, it returns for how long to wait, unless
// changed is closed before. seen is what others had done before that wait; zero if there was none.
func (y *yields) begin(c *Client, now, late time.Duration, seen *work, writes bool) (wait time.Duration, changed chan struct{}) {
	y.mu.Lock()
	defer y.mu.Unlock()
	// A follower sees what others have written, not what they wait for: there a second piece may
	// begin before it sees any.
	is := y.present()
	own := c.lightSince(y.era.Load()) & (1<<32 - 1)
	alone := is.light-y.was.light <= own && int64(is.applied-y.was.applied) <= int64(y.wrote+own)
	switch {
	case alone || now >= late:
	case y.running > 0:
		return late - now, y.changed
	case now < y.next && is != *seen:
		*seen = is
		return min(late, y.next, now+y.pause) - now, y.changed
	}
	if y.running == 0 && (now >= y.next || is == *seen) {
		// Others had the time to be seen. After a short piece they had not: it does not count.
		y.since(is)
	}
	y.running++
	if writes {
		y.wrote++
	}
	return 0, nil
}

// end ends a piece that was begun at a time.
func (y *yields) end(began, now time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.running--
	y.leave(now-began, now)
	close(y.changed)
	y.changed = make(chan struct{})
}

// owe is for a piece that did not wait for its turn. It returns what others have done until now, and until when its
// reply is to be held: behind those of others that are held, times as long as each of them took.
func (y *yields) owe(took, now time.Duration, times int) (is work, slot time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.holding == 0 {
		y.crowd = now
	}
	y.holding++
	slot = min(max(y.crowd, now), now+yieldCrowd)
	y.crowd = max(y.crowd, now) + time.Duration(times)*took
	y.leave(took, now)
	return y.present(), slot
}

// look ends what owe began. It has the next piece count what others have done from a moment on. A follower may apply what the
// last piece has written after that.
func (y *yields) look(from work) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.holding--
	y.since(from)
	y.wrote = 1
}

// since has what others do counted from here on; mu is held.
func (y *yields) since(is work) {
	y.was, y.wrote = is, 0
	y.era.Add(1)
}

func (y *yields) present() work {
	return work{y.light.Load(), y.applied.Load() - y.exempt.Load(), true}
}

// leave leaves others their time after a piece; mu is held.
func (y *yields) leave(took, now time.Duration) {
	y.next = max(y.next, now+min(yieldTimes*took, yieldMost))
	y.pause = min(max(took/2, yieldLook), yieldMost)
}

// took notes how many bytes an evaluation has written, be they rolled back, and is replied.
func (r *request) took(bytes int) {
	if bytes > HeavyBytes {
		r.cost += time.Duration(bytes) * byteTakes
	}
}

// ran notes that the evaluation of a request has ended.
func (r *request) ran(now store.Time) {
	if d := time.Duration(now.Lease-r.at) * time.Millisecond; d > heavyTime {
		r.cost += d
	}
	r.used = r.takes(now)
}

// takes is how long the evaluation of the request has taken by now.
func (r *request) takes(now store.Time) time.Duration {
	return min(max(time.Duration(now.Wall-r.began)*time.Microsecond, 0), mostUse)
}

// mostUse is how long an evaluation may be taken for: the clock may have been set.
const mostUse = 10 * time.Second

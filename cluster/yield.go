package cluster

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"lockstep/cluster/internal/call"
	"lockstep/store"
)

// A lock costs a leader microseconds. A value of a megabyte, a union of large sets or a read of a long list
// costs tens of milliseconds, in which all other requests wait. So heavy work gives way while others do light
// work: after one piece of heavy work, the next piece of this node's clients waits yieldTimes as long as the
// last one took, or until the others are idle. Heavy work does not wait if no other client is active.
//
// A node recognizes heavy work by large arguments at once, and other heavy work only after it has been done.
// From then on the client counts as heavy for yieldMemory, and so does each new connection from its address,
// because a client may connect anew for each command. The commands of which locks are made keep their places
// all the same (keepsPlace): a client that gives up a release and takes the lock again, by another connection,
// counts on the order of arrival. If such a request turns out to be heavy, the node delays its reply instead
// (holdReplies), and the client sends nothing until then.

const (
	// heavyTime is the time above which the evaluation of a command is heavy.
	heavyTime = 4 * time.Millisecond
	// longTime is the time above which even the first heavy work of a client delays its replies.
	longTime = 100 * time.Millisecond

	// yieldTimes is the time that the others get after a piece of heavy work, as a multiple of the time that
	// the piece took.
	yieldTimes = 9
	// yieldMost bounds that time.
	yieldMost = 2 * time.Second
	// byteTakes is the time to read or send a byte.
	byteTakes = 10 * time.Nanosecond
	// yieldLook is the shortest wait in which light work of others would be seen.
	yieldLook = 10 * time.Millisecond
	// yieldMemory is how long a client counts as heavy after heavy work.
	yieldMemory = time.Second
	// yieldSoon bounds the wait of a request without large arguments …
	yieldSoon = time.Second
	// … yieldCrowd bounds the delay of a reply where many clients do heavy work …
	yieldCrowd = 30 * time.Second
	// … and yieldLate bounds the wait of a request with large arguments.
	yieldLate = 5 * time.Second
	// yieldHeld bounds the bytes of waiting arguments and replies, beyond what the clients hold. Requests and
	// replies above it do not wait.
	yieldHeld = 16 << 20
	// heldReply is the memory of a held reply beside its bytes: a goroutine, and the buffers of a client that
	// may have gone.
	heldReply = 16 << 10
	// largeAtOnce bounds the bytes of large arguments that the clients of a node have under way at once, except
	// that one larger request may go alone. Such a request is in memory several times: to be evaluated, logged,
	// sent and applied.
	largeAtOnce = 8 << 20
	// argumentWeight is the memory of an argument beside its bytes: its place in a list, and the place of its reply.
	argumentWeight = 64
	// yieldAddrs bounds the number of remembered addresses.
	yieldAddrs = 1024
)

// yields makes heavy work of this node's clients give way.
type yields struct {
	light   atomic.Uint64 // number of requests so far of clients that do no heavy work
	era     atomic.Uint32 // how often was has been set
	exempt  atomic.Uint64 // number of requests so far of heavy clients that may have written and kept their place
	held    atomic.Int64  // bytes of waiting arguments and replies
	applied atomic.Uint64 // number of entries applied so far
	addrs   atomic.Int32  // len(lately), readable without mu
	large   *semaphore.Weighted

	mu      sync.Mutex
	lately  map[netip.Addr]time.Duration // until when the clients of an address count as heavy
	running int                          // pieces of heavy work in progress
	next    time.Duration                // when the next piece may begin, monotonic
	holding int                          // number of held replies
	seen    work                         // the work of others at the last look …
	changes time.Duration                // … and the time at which it was last seen to change, monotonic
	crowd   time.Duration                // end of the last slot that owe has given to a held reply, monotonic
	pause   time.Duration                // how long the others must be idle for the next piece to begin before next
	was     work                         // the work of others when the present pieces began, or the last ones
	wrote   uint64                       // how many of these pieces may have written
	changed chan struct{}                // closed when a piece ends
}

// work counts what others have done or submitted so far.
type work struct {
	light, applied uint64
	known          bool
}

func newYields() *yields {
	return &yields{lately: map[netip.Addr]time.Duration{}, changed: make(chan struct{}), large: semaphore.NewWeighted(largeAtOnce)}
}

// known returns until when the clients of an address count as heavy; 0 if they do not.
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

// remember notes that a client has done heavy work, unless cost is 0, and reports whether its replies have to
// be held for that. The first heavy request of a client delays no reply unless it is very long: it may be long
// by chance.
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

// remember makes a client and its address count as heavy for yieldMemory from now on.
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

// isHeavy reports whether a request has to give way, and for how long at most. It also counts the light requests, for
// which heavy work gives way.
func (n *Node) isHeavy(c *Client, calls []Call) (heavy bool, patience time.Duration) {
	if c == nil {
		return false, 0
	}
	if c.since.Load() != 0 {
		c.since.Store(0) // set by an earlier request
	}
	switch {
	case call.AnyLarge(calls):
		return true, yieldLate
	case c.isHeavy(n) && !call.KeepsPlace(calls):
		return true, yieldSoon
	case c.isHeavy(n) && c.own.Load():
		if !call.ReadOnly(calls) {
			n.yields.exempt.Add(1)
		}
		return false, 0
	}
	n.yields.light.Add(1)
	c.light.Store(c.lightSince(n.yields.era.Load()) + 1)
	return false, 0
}

// GiveWay waits for the turn of a client that has sent bytes which the session keeps for later instead of submitting
// them: to read them is work, too. It returns at once if they are few.
func (n *Node) GiveWay(c *Client, bytes int) {
	if c == nil || bytes <= HeavyBytes {
		return
	}
	ctx, end := c.until(n.ctx)
	defer end()
	n.giveWay(ctx, c, nil, bytes, yieldLate)
	now := n.cfg.Time.Monotonic()
	n.yields.end(now-time.Duration(bytes)*byteTakes, now)
}

// submitGivingWay is submitPart for heavy work.
func (n *Node) submitGivingWay(client *Client, calls []Call, dst []store.Reply, patience time.Duration) []store.Reply {
	bytes := call.Size(calls)
	ctx, end := client.until(n.ctx)
	defer end()
	done := n.giveWay(ctx, client, calls, bytes, patience)
	defer n.yields.admit(ctx, calls, bytes)()
	if client.isGone() && call.AnyLarge(calls) {
		done(0)
		return errorReplies(dst[:0], len(calls), errClientGone)
	}
	dst = n.submitPart(client, calls, dst)
	done(bytes + extent(dst))
	client.owes.Store(0) // the request has given way already
	return dst
}

// admit waits until a request with large arguments may be under way (largeAtOnce), or until ctx ends. leave must be called
// at its end.
func (y *yields) admit(ctx context.Context, calls []Call, bytes int) (leave func()) {
	n := int64(min(bytes+argumentWeight*call.Arguments(calls), largeAtOnce))
	if bytes <= HeavyBytes || y.large.Acquire(ctx, n) != nil { // the node closes, or the client is gone
		return func() {}
	}
	return func() { y.large.Release(n) }
}

// holdReplies delays the replies to heavy work that kept its place, until the others have had the time that
// they get after heavy work. The commands themselves have run in order of arrival. If many clients do such
// work, holdReplies answers them one by one, far enough apart that the leader has time left even if the clients
// of every node do such work. So a client that takes a lock waits for one of these commands, not for all of
// them.
func (n *Node) holdReplies(c *Client, replies []store.Reply) {
	if c == nil {
		return
	}
	cost := time.Duration(c.owes.Swap(0))
	if cost == 0 {
		return
	}
	now := n.cfg.Time.Monotonic()
	took := time.Duration(0) // time since the request came, with its wait for others; 0: not known
	if since := time.Duration(c.since.Swap(0)); since > 0 {
		took = now - since
	}
	y := n.yields
	before, slot := y.owe(cost, now, 1+n.members())
	defer y.look(before)
	bytes := extent(replies)
	defer y.held.Add(-int64(bytes + heldReply))
	if y.held.Add(int64(bytes+heldReply)) > yieldHeld {
		n.giveWay(n.ctx, c, nil, 0, 0)(0)
		return
	}
	c.holds(0) // the replies count in y.held from now on
	switch {
	case slot > now+yieldSoon:
		n.awaitSlot(c, slot, max(2*cost, took))
	case took > 2*cost+longTime:
		n.awaitSlot(c, now+yieldSoon, took)
	default:
		n.giveWay(n.ctx, c, nil, 0, yieldSoon)(0)
	}
	if bytes > smallReply {
		n.inHand.take(n.ctx, c, bytes)
	}
}

// awaitSlot waits until slot, or until the others have been idle for so long that no request of theirs can be waiting
// behind heavy work.
func (n *Node) awaitSlot(c *Client, slot, idle time.Duration) {
	y := n.yields
	idle += idle / 4
	for {
		now := n.cfg.Time.Monotonic()
		left := min(slot-now, idle-y.idleFor(now))
		if left <= 0 {
			y.remember(c, now) // the wait may have outlasted yieldMemory
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

// idleFor returns how long the others have been idle, as far as its calls have seen.
func (y *yields) idleFor(now time.Duration) time.Duration {
	y.mu.Lock()
	defer y.mu.Unlock()
	if is := y.present(); is != y.seen {
		y.seen, y.changes = is, now
	}
	return now - y.changes
}

// members returns the number of members of the cluster, at least one.
func (n *Node) members() int {
	list, err := n.cons.Members()
	if err != nil {
		return 1 // the node ends
	}
	return max(len(list), 1)
}

// giveWay waits for the turn of a piece of heavy work, for no longer than patience, or until ctx ends. The caller ends the piece
// with done, and passes the number of bytes that were read and replied.
func (n *Node) giveWay(ctx context.Context, c *Client, calls []Call, bytes int, patience time.Duration) (done func(moved int)) {
	y, writes := n.yields, !call.ReadOnly(calls)
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
			seen = work{} // the wait was too short to see the others idle
		case <-ctx.Done():
			late = now
		}
		timer.Stop()
	}
}

// begin begins a piece of heavy work if its turn has come, and returns 0. Otherwise it returns how long to
// wait, unless changed is closed before. seen is the work of others before the last wait; zero if there was
// none.
func (y *yields) begin(c *Client, now, late time.Duration, seen *work, writes bool) (wait time.Duration, changed chan struct{}) {
	y.mu.Lock()
	defer y.mu.Unlock()
	// A follower sees only the entries of clients of other nodes, not their waiting requests. So there a second
	// piece may begin before the follower sees any of their work.
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
		// Enough time has passed to see the work of others. After a short piece it has not, so was stays.
		y.since(is)
	}
	y.running++
	if writes {
		y.wrote++
	}
	return 0, nil
}

// end ends a piece of heavy work that was begun at a given time.
func (y *yields) end(began, now time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.running--
	y.leave(now-began, now)
	close(y.changed)
	y.changed = make(chan struct{})
}

// owe accounts for a piece that did not wait for its turn. It returns the work of others until now, and the
// time until which to hold the reply: behind the held replies before it, each of which takes a slot of times
// its cost.
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

// look ends what owe began. From then on the next piece counts the work of others since from. It allows for one more
// entry, because a follower may apply the writes of the last piece later.
func (y *yields) look(from work) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.holding--
	y.since(from)
	y.wrote = 1
}

// since makes the next piece count the work of others from is on; mu is held.
func (y *yields) since(is work) {
	y.was, y.wrote = is, 0
	y.era.Add(1)
}

func (y *yields) present() work {
	return work{y.light.Load(), y.applied.Load() - y.exempt.Load(), true}
}

// leave gives the others their time after a piece; mu is held.
func (y *yields) leave(took, now time.Duration) {
	y.next = max(y.next, now+min(yieldTimes*took, yieldMost))
	y.pause = min(max(took/2, yieldLook), yieldMost)
}

// took adds the bytes that an evaluation has written, including undone writes, and replied to the cost of a request.
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

// takes returns how long the evaluation of the request has taken so far.
func (r *request) takes(now store.Time) time.Duration {
	return min(max(time.Duration(now.Wall-r.began)*time.Microsecond, 0), mostUse)
}

// mostUse bounds the measured time of an evaluation, because the wall clock may be set meanwhile.
const mostUse = 10 * time.Second

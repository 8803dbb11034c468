package fair

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/store"
)

// Heavy work, such as a read of a long list, takes a leader tens of milliseconds, in which all other requests wait. So the next piece
// waits for yieldTimes times as long, or until the other clients are idle.
//
// A node recognizes large arguments beforehand, other heavy work only afterwards. Then the client counts as heavy for YieldMemory, as
// does each new connection from its address.
//
// Commands from which clients build locks keep their place in the order of arrival (call.KeepsPlace): a client may take a lock again by
// another connection before the reply to its release. The node delays their replies instead (HoldReplies).

const (
	// HeavyTime is the time above which the evaluation of a command is heavy.
	HeavyTime = 4 * time.Millisecond
	// The replies to heavy work that takes longer than longTime are delayed even if it is the client's first heavy work.
	longTime = 100 * time.Millisecond

	// yieldTimes is the time that the other clients get after a piece of heavy work, as a multiple of the time that the piece took.
	yieldTimes = 9
	// ownTimes is yieldTimes for work of the node itself. The next piece runs within that time, so such work has a quarter of all time.
	ownTimes = 4
	// ownIdle is how long others must be idle before own work begins at once. The node does not see requests that wait for processors.
	ownIdle = time.Second
	// YieldMost bounds the time that the other clients get after a piece of heavy work.
	YieldMost = 2 * time.Second
	// ByteTakes is the time to read or send a byte.
	ByteTakes = 10 * time.Nanosecond
	// MessageTakes is the time to hand a message to a subscriber.
	MessageTakes = 60 * time.Nanosecond
	// yieldLook is the shortest wait in which light work of others would be seen.
	yieldLook = 10 * time.Millisecond
	// YieldMemory is how long a client counts as heavy after heavy work.
	YieldMemory = time.Second
	// yieldSoon bounds the wait of a request without large arguments. It also bounds the delay of a held reply, unless many clients do
	// heavy work (yieldCrowd).
	yieldSoon = time.Second
	// yieldCrowd bounds the delay of a reply where many clients do heavy work.
	yieldCrowd = 30 * time.Second
	// yieldLate bounds the wait of a request with large arguments.
	yieldLate = 5 * time.Second
	// yieldHeld bounds the bytes of the arguments and replies that wait in the gate. Requests and replies beyond that bound do not wait.
	yieldHeld = 16 << 20
	// heldReply is the memory of a held reply beside its bytes: a goroutine, and the buffers of a client that
	// may have closed its connection.
	heldReply = 16 << 10
	// LargeAtOnce bounds the bytes of all commands with large arguments, because each is in memory several times. A larger one runs
	// alone.
	LargeAtOnce = 8 << 20
	// yieldAddrs bounds the number of addresses in Gate.lately.
	yieldAddrs = 1024
)

// Gate makes heavy work of this node's clients give way to the light work of others.
type Gate struct {
	InHand InHand // large replies of the node

	ctx     context.Context
	clock   Clock
	members func() int

	times time.Duration                 // the time that other clients get after a piece of heavy work, as a multiple of its own time
	idle  time.Duration                 // a piece does not wait if the others have been idle for so long; 0: if they have done nothing since the tally g.was
	one   [ownKinds]*semaphore.Weighted // for Alone: one of weight 1 for each kind; nil unless Beside has made the Gate
	*activity

	waits WaitQueue           // requests whose turn has not come
	era   atomic.Uint32       // counts the changes of the field was
	held  atomic.Int64        // bytes of waiting arguments and replies
	addrs atomic.Int32        // len(lately), readable without mu
	large *semaphore.Weighted // for admit: of weight LargeAtOnce

	mu      sync.Mutex
	lately  map[netip.Addr]time.Duration // until when the clients of an address count as heavy
	running int                          // pieces of heavy work in progress
	next    time.Duration                // when the next piece may begin, monotonic
	holding int                          // number of held replies
	seen    tally                        // the tally at the last call of the method quiet
	changes time.Duration                // when the method quiet last saw the tally change, monotonic
	crowd   time.Duration                // end of the last slot that the method owe has given to a held reply, monotonic
	pause   time.Duration                // how long the others must be idle for the next piece to begin earlier than at g.next
	was     tally                        // an earlier tally: the method begin compares it with the present one, to see the work of others
	wrote   uint64                       // heavy pieces since that tally that may have written: their entries are not work of others
	changed chan struct{}                // closed when a piece ends
}

// activity counts what clients do.
type activity struct {
	light   atomic.Uint64 // number of requests so far of clients that do no heavy work
	exempt  atomic.Uint64 // number of requests so far that kept their place and may have written, though their clients are heavy
	applied atomic.Uint64 // number of entries applied so far
}

// tally is what activity has counted up to one time. Its field applied leaves out one entry for each exempt request.
type tally struct {
	light, applied uint64
	known          bool // false only in the zero tally, which therefore differs from every other
}

// Clock measures time.
type Clock interface {
	// Monotonic never runs back.
	Monotonic() time.Duration
}

// NewGate returns the Gate of a node. Its waits end when ctx ends. The function members returns how many members the cluster has.
func NewGate(ctx context.Context, clock Clock, members func() int) *Gate {
	return newGate(ctx, clock, members, yieldTimes, &activity{})
}

func newGate(ctx context.Context, clock Clock, members func() int, times time.Duration, a *activity) *Gate {
	return &Gate{ctx: ctx, clock: clock, members: members, times: times, activity: a, lately: map[netip.Addr]time.Duration{}, changed: make(chan struct{}), large: semaphore.NewWeighted(LargeAtOnce)}
}

// Beside returns a Gate for work that the node does by itself. That work gives way to the same requests as the work of g.
func (g *Gate) Beside() *Gate {
	own := newGate(g.ctx, g.clock, g.members, ownTimes, g.activity)
	own.idle, own.one = ownIdle, newTurns()
	return own
}

// Rest delays c after this node itself has worked for c. took may include the time of the next piece.
func (g *Gate) Rest(c *Client, took time.Duration) {
	if c == nil {
		return
	}
	ctx, end := c.until(g.ctx)
	defer end()
	g.enter(ctx, c, nil, 0, yieldLate)
	now := g.clock.Monotonic()
	g.end(now-took, now)
}

// Light counts a light request that another node has forwarded.
func (g *Gate) Light() { g.light.Add(1) }

// Applied counts an entry that has been applied.
func (g *Gate) Applied() { g.applied.Add(1) }

// known returns until when the clients of an address count as heavy; 0 if they do not.
func (g *Gate) known(addr netip.Addr, now time.Duration) time.Duration {
	if g.addrs.Load() == 0 {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if until := g.lately[addr]; until > now {
		return until
	}
	return 0
}

// Remember notes heavy work, and reports whether to hold its replies. A client's first may be slow by chance, and is held only above
// longTime.
func (g *Gate) Remember(c *Client, cost time.Duration) (holds bool) {
	if c == nil || cost == 0 {
		return false
	}
	now := g.clock.Monotonic()
	holds = cost > longTime || g.IsHeavy(c)
	if holds {
		c.owes.Store(int64(cost))
		now += min(yieldTimes*cost, yieldSoon) // about when the held replies will be sent
	}
	g.mark(c, now)
	return holds
}

// mark makes a client, and its address if g.lately has room, count as heavy for YieldMemory from now on.
func (g *Gate) mark(c *Client, now time.Duration) {
	until := now + YieldMemory
	c.heavy.Store(int64(until))
	c.own.Store(true)
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.lately) >= yieldAddrs {
		for addr, until := range g.lately {
			if until <= now {
				delete(g.lately, addr)
			}
		}
	}
	if _, there := g.lately[c.addr]; there || len(g.lately) < yieldAddrs {
		g.lately[c.addr] = until
	}
	g.addrs.Store(int32(len(g.lately)))
}

// Heavy reports whether a request has to give way, and for how long at most. Heavy also counts the light requests.
func (g *Gate) Heavy(c *Client, calls []call.Call) (heavy bool, patience time.Duration) {
	if c == nil {
		return false, 0
	}
	if c.since.Load() != 0 {
		c.since.Store(0) // set by an earlier request
	}
	switch {
	case call.AnyLarge(calls):
		return true, yieldLate
	case g.IsHeavy(c) && !call.KeepsPlace(calls):
		return true, yieldSoon
	case g.IsHeavy(c) && c.own.Load():
		if !call.ReadOnly(calls) {
			g.exempt.Add(1)
		}
		return false, 0
	}
	g.light.Add(1)
	c.light.Store(c.lightSince(g.era.Load()) + 1)
	return false, 0
}

// GiveWay waits for a turn after a session has read large arguments. The caller must call leave when the session has kept or answered
// them.
func (g *Gate) GiveWay(c *Client, bytes, arguments int) (leave func()) {
	if c == nil || bytes <= call.HeavyBytes {
		return func() {}
	}
	ctx, end := c.until(g.ctx)
	defer end()
	g.enter(ctx, c, nil, bytes, yieldLate)
	now := g.clock.Monotonic()
	g.end(now-time.Duration(bytes)*ByteTakes, now)
	done := g.admit(ctx, c, bytes, arguments)
	c.admitted.Store(true)
	return func() {
		c.admitted.Store(false)
		done()
	}
}

// Pass waits for the turn of heavy calls. Then run submits them. Large calls of a client that was cut off do not run.
func (g *Gate) Pass(c *Client, calls []call.Call, patience time.Duration, run func() (replied int)) (ran bool) {
	bytes := call.Size(calls)
	ctx, end := c.until(g.ctx)
	defer end()
	done := g.enter(ctx, c, calls, bytes, patience)
	defer g.admit(ctx, c, bytes, call.Arguments(calls))()
	if c.IsGone() && call.AnyLarge(calls) {
		done(0)
		return false
	}
	done(bytes + run())
	c.owes.Store(0) // the request has given way already
	return true
}

// admit waits until LargeAtOnce has room for large arguments. The caller must call leave when the command has ended.
func (g *Gate) admit(ctx context.Context, c *Client, bytes, arguments int) (leave func()) {
	n := int64(min(bytes+store.ReplySize*arguments, LargeAtOnce)) // each argument may have a reply
	// If c.admitted is set, GiveWay has already admitted the command.
	if bytes <= call.HeavyBytes || c.admitted.Load() || g.large.Acquire(ctx, n) != nil {
		return func() {}
	}
	return func() { g.large.Release(n) }
}

// HoldReplies delays the replies to heavy work that kept its place, until other clients have had their time; most bounds the delay. It
// releases replies one by one, so a client that takes a lock waits for only one such command. more is how many bytes the caller keeps
// beside the replies.
func (g *Gate) HoldReplies(c *Client, replies []store.Reply, more int, most time.Duration) {
	if c == nil {
		return
	}
	cost := time.Duration(c.owes.Swap(0))
	if cost == 0 {
		return
	}
	now := g.clock.Monotonic()
	took := time.Duration(0) // time since the request came, including its wait for other requests; 0: not known
	if since := time.Duration(c.since.Swap(0)); since > 0 {
		took = now - since
	}
	before, slot := g.owe(cost, now, 1+g.members())
	defer g.look(before)
	bytes := Extent(replies)
	held := int64(bytes + more + heldReply)
	defer g.held.Add(-held)
	if g.held.Add(held) > yieldHeld {
		g.enter(g.ctx, c, nil, 0, 0)(0)
		return
	}
	ctx, end := c.until(g.ctx)
	defer end()
	c.Holds(0) // the replies count in g.held from now on
	switch {
	case slot > now+yieldSoon:
		g.awaitSlot(ctx, c, now+min(slot-now, most), max(2*cost, took))
	case took > 2*cost+longTime:
		g.awaitSlot(ctx, c, now+min(yieldSoon, most), took)
	default:
		g.enter(ctx, c, nil, 0, min(yieldSoon, most))(0)
	}
	if bytes > SmallReply {
		g.InHand.take(g.ctx, c, bytes)
	}
}

// awaitSlot waits until slot comes, or the others have been idle for 1.25 times idle: then none of their requests waits behind heavy
// work.
func (g *Gate) awaitSlot(ctx context.Context, c *Client, slot, idle time.Duration) {
	idle += idle / 4
	for {
		now := g.clock.Monotonic()
		left := min(slot-now, idle-g.idleFor(now))
		if left <= 0 {
			g.mark(c, now) // the wait may have outlasted YieldMemory
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// idleFor returns for how long others have done no work, as far as the calls of the method quiet have seen.
func (g *Gate) idleFor(now time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.quiet(g.present(), now)
}

// quiet notes the present tally, and returns how long ago a call last saw it change; mu is held.
func (g *Gate) quiet(is tally, now time.Duration) time.Duration {
	if is != g.seen {
		g.seen, g.changes = is, now
	}
	return now - g.changes
}

// enter begins a piece of heavy work at its turn, after patience, or when ctx ends. The caller must end it by done or g.end.
func (g *Gate) enter(ctx context.Context, c *Client, calls []call.Call, bytes int, patience time.Duration) (done func(moved int)) {
	writes := !call.ReadOnly(calls)
	late := g.clock.Monotonic() + patience
	defer g.held.Add(-int64(bytes))
	if g.held.Add(int64(bytes)) > yieldHeld {
		late = 0
	}
	place := g.waits.Join(g.waits.Number())
	defer g.waits.Leave(place)
	var seen tally
	for {
		now := g.clock.Monotonic()
		wait, changed := late-now, place.First
		// Only the first asks for its turn: if hundreds did after each piece, they would hold up the work of others.
		if wait <= 0 || g.waits.IsFirst(place) {
			wait, changed = g.begin(c, now, late, &seen, writes)
		}
		if wait <= 0 {
			return func(moved int) { g.end(now-time.Duration(moved)*ByteTakes, g.clock.Monotonic()) }
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
			seen = tally{} // the wait was too short to see the others idle
		case <-ctx.Done():
			late = now
		}
		timer.Stop()
	}
}

// begin begins a piece of heavy work and returns 0, or returns for how long the caller has to wait, unless changed is closed. *seen is
// the tally before that wait; zero if the wait was too short to see the others idle.
func (g *Gate) begin(c *Client, now, late time.Duration, seen *tally, writes bool) (wait time.Duration, changed chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// A follower sees the entries of other nodes' clients, but not their waiting requests. So there a second piece may begin too early.
	is := g.present()
	own := c.lightSince(g.era.Load()) & (1<<32 - 1)
	alone := is.light-g.was.light <= own && int64(is.applied-g.was.applied) <= int64(g.wrote+own)
	if g.idle > 0 {
		alone = g.quiet(is, now) >= g.idle
	}
	switch {
	case alone || now >= late:
	case g.running > 0:
		return late - now, g.changed
	case now < g.next && (is != *seen || g.idle > 0):
		*seen = is
		return min(late, g.next, now+g.pause) - now, g.changed
	}
	if g.running == 0 && (now >= g.next || is == *seen) {
		// The time since the last piece was long enough to see the work of others. Otherwise the next call compares with an earlier
		// tally.
		g.since(is)
	}
	g.running++
	if writes {
		g.wrote++
	}
	return 0, nil
}

// end ends a piece of heavy work; the parameter began is the time at which the piece began.
func (g *Gate) end(began, now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	g.leave(now-began, now)
	close(g.changed)
	g.changed = make(chan struct{})
}

// owe accounts for a piece that did not wait. slot is when the slots of earlier replies end, at most yieldCrowd from now.
func (g *Gate) owe(took, now time.Duration, times int) (is tally, slot time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holding == 0 {
		g.crowd = now
	}
	g.holding++
	slot = min(max(g.crowd, now), now+yieldCrowd)
	g.crowd = max(g.crowd, now) + time.Duration(times)*took
	g.leave(took, now)
	return g.present(), slot
}

// look ends the holding of a reply. begin then counts the others' work since the tally from, without one entry, perhaps the held
// piece's.
func (g *Gate) look(from tally) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holding--
	g.since(from)
	g.wrote = 1
}

// since makes the method begin look only for work that others have done after a tally; mu is held.
func (g *Gate) since(is tally) {
	g.was, g.wrote = is, 0
	g.era.Add(1)
}

func (g *Gate) present() tally {
	return tally{g.light.Load(), g.applied.Load() - g.exempt.Load(), true}
}

// leave sets the fields next and pause so that the other clients get their time after a piece; mu is held.
func (g *Gate) leave(took, now time.Duration) {
	g.next = max(g.next, now+min(g.times*took, YieldMost))
	g.pause = min(max(took/2, yieldLook), YieldMost)
}

package cluster

import (
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// Locks that waiting clients get, on the nodes of these clients.
//
// If the reply comes late, or only the log still has it, the lease begins anew before the client gets the reply (confirm).
//
// A client may leave while the leader gives it a lock. Then nobody knows that the lock is held, so the client's node releases it when the
// note of the grant comes, whether the leader still answers or not. It does so only if nobody has touched the lock since the grant: the client
// may have come back, and may have renewed the lease.

// granted is the reply to a command that has taken a lease, and the lease.
type granted struct {
	reply  store.Reply
	leases grants
}

// late is result for a command whose lease must begin anew before the reply. since is the monotonic time at which its batch began.
func (k *blockRegistry) late(b *Blocked, g granted, since time.Duration) {
	k.mu.Lock()
	after := func() {}
	if b.state != blockDone {
		after = k.confirm(b, g, since)
	}
	k.mu.Unlock()
	after()
	k.letGo(b, g)
}

// confirm returns a function that lets the lease of b begin anew, and then ends b. FailoverWait counts from since. The caller holds mu.
func (k *blockRegistry) confirm(b *Blocked, g granted, since time.Duration) (after func()) {
	b.state = blockLate
	b.passOn()
	return func() {
		go func() {
			replies := k.n.confirm(g.leases, since, []store.Reply{g.reply}, b.Call.RESP)
			k.mu.Lock()
			after := func() {}
			if b.state != blockDone {
				after = k.finish(b, replies[0], false)
			}
			k.mu.Unlock()
			after()
		}()
	}
}

// mostLeft bounds the commands in blockRegistry.left. leftFor is how long a note may take to come.
const (
	mostLeft = 4096
	leftFor  = time.Minute
)

// leaving is a command that may get a lock although its client has left.
type leaving struct {
	release Call          // releases the lock; Args has the name and the owner
	since   time.Duration // monotonic time at which the client left
}

// leaves notes that the client of b has left. If b has got a lock already, leaves returns a function that releases it. The caller holds mu.
func (k *blockRegistry) leaves(b *Blocked) (after func()) {
	c := b.Call
	cmd := k.n.cfg.Table.Lookup(lockRelease)
	if cmd == nil || !store.TakesLock(c.Cmd) || b.attempt == 0 || len(c.Args) < 3 {
		return func() {}
	}
	if b.Caller != nil {
		c.User, c.Users = b.Caller()
	}
	now := k.n.cfg.Time.Monotonic()
	x := leaving{Call{Cmd: cmd, Args: [][]byte{lockRelease, slices.Clone(c.Args[1]), slices.Clone(c.Args[2])}, DB: c.DB, RESP: 2, User: c.User, Users: c.Users}, now}
	if b.noted != nil {
		return func() { k.release(x, *b.noted) }
	}
	if len(k.left) >= mostLeft {
		for id, old := range k.left {
			if now-old.since > leftFor {
				delete(k.left, id)
			}
		}
	}
	if len(k.left) < mostLeft {
		if k.left == nil {
			k.left = map[uint64]leaving{}
		}
		k.left[b.id] = x
	}
	return func() {}
}

// letGo releases the lock that b has got, if its client has left. It is for grants of which no note comes, or has come already.
func (k *blockRegistry) letGo(b *Blocked, g granted) {
	k.mu.Lock()
	x, left := k.left[b.id]
	delete(k.left, b.id)
	k.mu.Unlock()
	if left {
		k.release(x, g)
	}
}

// release releases a lock, unless somebody has touched it since the grant. If the user may not release locks, or no leader can be reached in
// time, the lock ends with its lease.
func (k *blockRegistry) release(x leaving, g granted) {
	if g.reply.Kind != store.Array || len(g.reply.Elems) == 0 {
		return
	}
	x.release.Args = append(x.release.Args, []byte("TOKEN"), strconv.AppendInt(nil, g.reply.Elems[0].Int, 10),
		[]byte("UNCHANGED"), strconv.AppendUint(nil, g.leases.seq, 10))
	go k.n.newCarried(k.n.cfg.FailoverWait, nil, k.n.queue.Number(), nil, []Call{x.release}, nil).run()
}

var lockRelease = []byte("lock.release")

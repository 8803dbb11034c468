package load

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Workload is the step that a client repeats, with its preparation.
type Workload struct {
	Name, About string

	oneOwner bool // all clients belong to one owner
	finite   bool // it ends when the locks that were prepared are used up
	expiring bool // many leases end during the measurement
	queued   bool // the clients wait for each other's locks
	// prepare is what every client does before the time counts; it may be nil.
	prepare func(*client) error
	// step is the work that is timed. It returns how many operations it has done; 0 if nothing is left to do.
	step func(*client) (int, error)
}

// Workloads has all workloads.
var Workloads = []Workload{
	{Name: "cycle", About: "lock and unlock, each client its own lock; both are one operation", step: cycle},
	{Name: "leased", About: "the same where each lock has a lease of its own, as SET NX PX always has; it is another thing on etcd alone", step: leased},
	{Name: "set", About: "lock alone, a new one every time", step: set},
	{Name: "unlock", About: "unlock alone, of locks that were taken beforehand", oneOwner: true, finite: true, prepare: holdShare, step: unlock},
	{Name: "rlock", About: "lock and unlock as Redisson's RLock does: two scripts and a DEL; all are one operation", step: reentrant},
	{Name: "contended", About: "all clients wait for one lock, by the recipe of each peer, as threads of one process; a hand-off is one operation", queued: true, step: handOff},
	{Name: "herd", About: "the same where each client is a process by itself, and hears of every release", queued: true, step: herd},
	{Name: "native", About: "contended by LOCK.ACQUIRE with WAIT on lockstep; on another peer the same as contended", queued: true, step: native},
	{Name: "native-cycle", About: "cycle by LOCK.ACQUIRE and LOCK.RELEASE, which lockstep alone has", step: nativeCycle},
	{Name: "renew", About: "renewals of locks that are held, one after the other", oneOwner: true, prepare: holdShare, step: renew},
	{Name: "expire", About: "cycle while many leases end: how long until all of them are gone, and what the others feel of it", expiring: true, step: cycle},
	{Name: "miss", About: "try-lock of a lock that another one holds", prepare: holdForeign, step: miss},
	{Name: "mixed", About: "eight reads for a lock and an unlock; each is an operation", step: mixed},
}

// Find returns the workload of a name.
func Find(name string) (Workload, error) {
	i := slices.IndexFunc(Workloads, func(w Workload) bool { return w.Name == name })
	if i < 0 {
		return Workload{}, fmt.Errorf("there is no workload %q", name)
	}
	return Workloads[i], nil
}

// Queued reports whether the clients of the workload wait for each other's locks.
func (w Workload) Queued() bool { return w.queued }

// client is one goroutine that makes load.
type client struct {
	Session
	id   int
	run  *run
	keys []string // its own locks, one for each place in a pipeline
	n    int      // steps so far

	queue int           // which of the locks that clients wait for is this client's
	wait  time.Duration // how long the last step has waited for that lock

	ops, allOps int // operations in the measurement, and in the whole run
	latencies   []time.Duration
	waits       []time.Duration // one for each step in the measurement, if the workload is queued
	calm        []time.Duration // latencies in the phase calm, of the workload expire
}

// errWrong is the error for a reply that a lock server must not give.
var errWrong = errors.New("the peer's locks are broken")

func expect(what string, got, want int, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if got != want {
		return fmt.Errorf("%s: %w: %d instead of %d", what, errWrong, got, want)
	}
	return nil
}

func cycle(c *client) (int, error) {
	n, err := c.Lock(c.keys)
	if err := expect("lock", n, len(c.keys), err); err != nil {
		return 0, err
	}
	n, err = c.Unlock(c.keys)
	return n, expect("unlock", n, len(c.keys), err)
}

func leased(c *client) (int, error) {
	n, err := c.Hold(c.keys)
	if err := expect("lock", n, len(c.keys), err); err != nil {
		return 0, err
	}
	n, err = c.Drop(c.keys)
	return n, expect("unlock", n, len(c.keys), err)
}

func set(c *client) (int, error) {
	for i := range c.keys {
		c.keys[i] = "set:" + strconv.Itoa(c.id) + ":" + strconv.Itoa(c.n*len(c.keys)+i)
	}
	c.n++
	n, err := c.Lock(c.keys)
	return n, expect("lock", n, len(c.keys), err)
}

// holdShare takes a client's share of the locks. It takes fewer if that takes too long: no preparation may last for minutes.
func holdShare(c *client) error {
	mine, err := share{"held:", c.id, c.run.spec.Clients, c.run.spec.Locks, c.run.spec.Pipelines}.hold(c, c.run.late)
	if err != nil {
		return err
	}
	c.run.pass(mine)
	return nil
}

func unlock(c *client) (int, error) {
	keys := c.run.take(len(c.keys))
	if len(keys) == 0 {
		return 0, nil
	}
	n, err := c.Unlock(keys)
	return n, expect("unlock", n, len(keys), err)
}

func renew(c *client) (int, error) {
	keys := c.run.next(len(c.keys))
	n, err := c.Renew(keys)
	return n, expect("renew", n, len(keys), err)
}

func reentrant(c *client) (int, error) {
	r := c.Session.(Reentrant) // System.Lacks leaves out peers whose sessions are not Reentrant
	n, err := r.LockReentrant(c.keys)
	if err := expect("lock", n, len(c.keys), err); err != nil {
		return 0, err
	}
	n, err = r.UnlockReentrant(c.keys)
	return n, expect("unlock", n, len(c.keys), err)
}

const contendedKey = "contended"

// queueKey returns the name of the lock for which the client waits.
func (c *client) queueKey() string {
	if len(c.run.inside) == 1 {
		return contendedKey
	}
	return contendedKey + ":" + strconv.Itoa(c.queue)
}

func handOff(c *client) (int, error) {
	q := c.Session.(Queued) // System.Lacks leaves out peers whose sessions are not Queued
	return c.inside(q.Enter, q.Leave)
}

func herd(c *client) (int, error) {
	h := c.Session.(Herded) // System.Lacks leaves out peers whose sessions are not Herded
	return c.inside(h.EnterAlone, h.Leave)
}

// native is handOff on a peer without locks of its own, because the recipe is the best that its clients have.
func native(c *client) (int, error) {
	s, ok := c.Session.(Native)
	if !ok {
		return handOff(c)
	}
	return c.inside(s.EnterNative, s.LeaveNative)
}

func nativeCycle(c *client) (int, error) {
	s := c.Session.(Native) // System.Lacks leaves out peers whose sessions are not Native
	n, err := s.LockNative(c.keys)
	if err := expect("lock", n, len(c.keys), err); err != nil {
		return 0, err
	}
	n, err = s.UnlockNative(c.keys)
	return n, expect("unlock", n, len(c.keys), err)
}

// inside takes the contended lock, checks that no other client has it, and releases it.
func (c *client) inside(enter, leave func(string) error) (int, error) {
	key, began := c.queueKey(), time.Now()
	if err := enter(key); err != nil {
		return 0, fmt.Errorf("enter: %w", err)
	}
	c.wait = time.Since(began)
	inside := &c.run.inside[c.queue]
	if inside.Add(1) != 1 {
		return 0, fmt.Errorf("enter: %w: two are inside", errWrong)
	}
	inside.Add(-1)
	if err := leave(key); err != nil {
		return 0, fmt.Errorf("leave: %w", err)
	}
	return 1, nil
}

// foreign returns the keys of the locks that are held while the workload "miss" tries to take them, one for each place in a
// pipeline.
func foreign(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "foreign:" + strconv.Itoa(i)
	}
	return keys
}

func holdForeign(c *client) error {
	c.keys = foreign(len(c.keys))
	if c.id != 0 {
		return nil
	}
	n, err := c.Lock(c.keys)
	return expect("lock", n, len(c.keys), err)
}

func miss(c *client) (int, error) {
	n, err := c.Lock(c.keys)
	return len(c.keys), expect("try-lock", n, 0, err)
}

// mixed reads its lock four times while the lock is held, and four times while it is not.
func mixed(c *client) (int, error) {
	const steps = 10
	at := c.n % steps
	c.n++
	switch at {
	case 4:
		n, err := c.Lock(c.keys)
		return n, expect("lock", n, len(c.keys), err)
	case 9:
		n, err := c.Unlock(c.keys)
		return n, expect("unlock", n, len(c.keys), err)
	}
	want := 0
	if at > 4 {
		want = len(c.keys)
	}
	n, err := c.Held(c.keys)
	return len(c.keys), expect("read", n, want, err)
}

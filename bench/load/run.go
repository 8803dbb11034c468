package load

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Spec describes one measurement of one peer.
type Spec struct {
	Workload  Workload
	Clients   int
	Pipeline  int           // keys in one request
	Token     int           // minimum size of an owner's token in bytes
	Rate      float64       // operations per second of all clients; 0: as fast as they can
	Locks     int           // how many locks the workloads "unlock" and "renew" hold at most, and how many leases "expire" has
	Queues    int           // how many locks the clients of a queued workload wait for, the same number of clients for each; 0: one
	Within    time.Duration // in the workload "expire", the time from the end of the first lease to that of the last
	Warm, For time.Duration

	Pipelines bool // whether the peer has pipelines, which the preparation then uses
}

// Outcome is what the clients saw.
type Outcome struct {
	// Ops, Elapsed, Latencies, PerClient and Waits count the steps that ended within the measurement, even if they had begun before it.
	Ops       int
	Elapsed   time.Duration
	Latencies []time.Duration // one for each step, in no order
	PerClient []int           // operations of each client
	Waits     []time.Duration // how long each of these steps waited for its lock, in a queued workload

	// For the workload "expire": Calm is before the first lease ended, and Gone is from the last lease's end until all locks were
	// deleted.
	Calm []time.Duration
	Gone time.Duration

	// AllOps and Whole count all steps, also those before the measurement and those that had not ended when it ended.
	AllOps int
	Whole  time.Duration
}

// run is a measurement in progress.
type run struct {
	spec    Spec
	clients []*client
	phase   atomic.Int32
	first   sync.Once      // closes some when the first step ends in the measurement
	some    chan struct{}  // see first
	inside  []atomic.Int32 // clients that hold a contended lock, for each of these locks
	storm   *storm         // for the workload "expire"
	extra   Session        // the session that holds the storm's leases

	preparing time.Time
	mu        sync.Mutex
	pool      []string // keys of the locks that all clients together hold
	taken     atomic.Int64
}

// The phases of a run.
const (
	warming = iota
	calm    // only in the workload "expire": before the first lease ends
	measuring
	stopping
)

// prepareFactor bounds the preparation: it may last prepareFactor times as long as --warm and --for together.
const prepareFactor = 3

func (r *run) late() bool { return time.Since(r.preparing) > prepareFactor*(r.spec.Warm+r.spec.For) }

func (r *run) pass(keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pool = append(r.pool, keys...)
}

// take returns n keys of the pool. It returns each key only once.
func (r *run) take(n int) []string {
	end := int(r.taken.Add(int64(n)))
	return r.pool[min(end-n, len(r.pool)):min(end, len(r.pool))]
}

// next returns n keys of the pool. After the last key it begins again with the first.
func (r *run) next(n int) []string {
	n = min(n, len(r.pool))
	turns := len(r.pool) / n
	at := (int(r.taken.Add(1)) - 1) % turns * n
	return r.pool[at : at+n]
}

// Meter reads how much of the machine has been used so far. Run calls it while no client does anything.
type Meter func() error

// Run measures a workload. It calls the meters before the clients' first step and after their last one.
func Run(spec Spec, target Target, begin, end Meter) (out Outcome, err error) {
	r := &run{spec: spec, some: make(chan struct{}), inside: make([]atomic.Int32, max(1, spec.Queues))}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.open(target); err != nil {
		return Outcome{}, err
	}
	if err := r.prepare(target); err != nil {
		return Outcome{}, fmt.Errorf("preparing: %w", err)
	}
	if err := begin(); err != nil {
		return Outcome{}, err
	}
	if out, err = r.drive(); err != nil {
		return Outcome{}, err
	}
	if out.Ops == 0 {
		return Outcome{}, errors.New("no operation came to its end")
	}
	return out, end()
}

func (r *run) prepare(target Target) error {
	if r.spec.Workload.expiring {
		return r.gather(target)
	}
	if r.spec.Workload.prepare == nil {
		return nil
	}
	r.preparing = time.Now()
	if err := r.each(r.spec.Workload.prepare); err != nil {
		return err
	}
	if r.spec.Workload.oneOwner && len(r.pool) == 0 {
		return errors.New("no lock is held")
	}
	return nil
}

func (r *run) open(target Target) error {
	for id := range r.spec.Clients {
		owner := "owner"
		if !r.spec.Workload.oneOwner {
			owner = fmt.Sprint("owner:", id)
		}
		owner += strings.Repeat(".", max(0, r.spec.Token-len(owner)))
		s, err := target.Open(owner)
		if err != nil {
			return fmt.Errorf("client %d: %w", id, err)
		}
		c := &client{Session: s, id: id, run: r, keys: make([]string, r.spec.Pipeline)}
		// Neighbours wait for the same lock, because a target spreads neighbours over its servers.
		c.queue = id * len(r.inside) / r.spec.Clients
		for i := range c.keys {
			c.keys[i] = fmt.Sprintf("lock:%d:%d", id, i)
		}
		r.clients = append(r.clients, c)
	}
	return nil
}

func (r *run) close() (err error) {
	if r.extra != nil {
		err = r.extra.Close()
	}
	return errors.Join(err, r.each(func(c *client) error { return c.Close() }))
}

// each calls the function do for all clients at the same time.
func (r *run) each(do func(*client) error) error {
	return each(r.clients, func(_ int, c *client) error { return do(c) })
}

// drive has the clients work until the measurement is over. A client completes its last step, so it releases its lock.
func (r *run) drive() (Outcome, error) {
	began := time.Now()
	fault, done := error(nil), make(chan struct{})
	go func() {
		defer close(done)
		fault = r.each(func(c *client) error {
			pace := pacer{began: began, place: c.id, clients: r.spec.Clients, every: r.interval()}
			err := c.drive(&pace)
			if err != nil {
				r.phase.Store(stopping)
			}
			return err
		})
	}()
	var out Outcome
	var unseen error
	if r.storm != nil {
		out.Elapsed, unseen = r.storm.observe(r, done)
		out.Gone = r.storm.gone
	} else {
		out.Elapsed = r.observe(done)
	}
	r.phase.Store(stopping)
	<-done
	out.Whole = time.Since(began)
	for _, c := range r.clients {
		out.Ops += c.ops
		out.AllOps += c.allOps
		out.Latencies = append(out.Latencies, c.latencies...)
		out.Waits = append(out.Waits, c.waits...)
		out.Calm = append(out.Calm, c.calm...)
		out.PerClient = append(out.PerClient, c.ops)
	}
	return out, errors.Join(fault, unseen)
}

// observe measures the clients once they are warm.
func (r *run) observe(done <-chan struct{}) time.Duration {
	// A workload that uses up its locks is measured from its first step on: warming up would use up some of them.
	if r.spec.Warm > 0 && !r.spec.Workload.finite {
		wait(done, r.spec.Warm)
	}
	from := time.Now()
	r.phase.CompareAndSwap(warming, measuring) // unless an error has ended this phase
	wait(done, r.spec.For)
	select { // the measurement lasts until at least one step has ended, however long that takes
	case <-r.some:
	case <-done:
	}
	return time.Since(from)
}

// wait waits for the duration "last", or until done is closed.
func wait(done <-chan struct{}, last time.Duration) {
	timer := time.NewTimer(last)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// interval returns the time between two steps, counted over all clients; 0 without a rate.
func (r *run) interval() time.Duration {
	if r.spec.Rate <= 0 {
		return 0
	}
	return time.Duration(float64(time.Second) * float64(r.spec.Pipeline) / r.spec.Rate)
}

func (c *client) drive(pace *pacer) error {
	for {
		began, ok := pace.next(&c.run.phase)
		if !ok {
			return nil
		}
		n, err := c.run.spec.Workload.step(c)
		if err != nil || n == 0 {
			return err
		}
		c.allOps += n
		switch c.run.phase.Load() {
		case calm:
			c.calm = append(c.calm, time.Since(began))
		case measuring:
			c.ops += n
			c.latencies = append(c.latencies, time.Since(began))
			if c.run.spec.Workload.queued {
				c.waits = append(c.waits, c.wait)
			}
			c.run.first.Do(func() { close(c.run.some) })
		}
	}
}

// pacer says when a client's steps begin.
type pacer struct {
	began   time.Time
	place   int // this client's index among all clients
	clients int
	every   time.Duration
	n       int
}

// next waits for the client's next step and returns when that step was due. It returns false once the clients must stop.
func (p *pacer) next(phase *atomic.Int32) (time.Time, bool) {
	if p.every == 0 {
		return time.Now(), phase.Load() != stopping
	}
	due := p.due()
	for phase.Load() != stopping {
		wait := time.Until(due)
		if wait <= 0 {
			return due, true
		}
		time.Sleep(min(wait, 10*time.Millisecond))
	}
	return due, false
}

func (p *pacer) due() time.Time {
	due := p.began.Add(time.Duration(p.n*p.clients+p.place) * p.every)
	p.n++
	return due
}

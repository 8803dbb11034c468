package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
)

// load describes what the clients do.
type load struct {
	Clients int           `json:"clients"`
	Locks   int           `json:"locks"`
	Lease   time.Duration `json:"lease"`
	MinHold time.Duration `json:"min_hold"`
	MaxHold time.Duration `json:"max_hold"`
}

// askTimeout bounds each request by which an owner asks whether it still has its lock, and each release.
const askTimeout = time.Second

// client takes, holds, checks and releases random locks. For every system it uses redsync's mutex; only the connection pools
// differ.
type client struct {
	load
	sync    *redsync.Redsync
	since   time.Time
	random  *rand.Rand
	held    []holding
	history []grant
	refused int
	errors  map[string]int
}

// holding is a lock that the client has.
type holding struct {
	mutex *redsync.Mutex
	grant grant
	due   time.Duration
}

func newClient(l load, pools []redis.Pool, since time.Time, seed uint64) *client {
	return &client{load: l, sync: redsync.New(pools...), since: since,
		random: rand.New(rand.NewPCG(seed, 4)), errors: map[string]int{}}
}

// run takes and releases locks until ctx is done. Then it releases the locks that it still has.
func (c *client) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.take()
		for i := 0; i < len(c.held); {
			if c.now() < c.held[i].due {
				i++
				continue
			}
			c.giveBack(c.held[i])
			c.held = slices.Delete(c.held, i, i+1)
		}
	}
	for _, h := range c.held {
		c.giveBack(h)
	}
}

func (c *client) now() time.Duration { return time.Since(c.since) }

// take tries once to get a lock that this client does not have.
func (c *client) take() {
	name := fmt.Sprintf("lock:%d", c.random.IntN(c.Locks))
	if slices.ContainsFunc(c.held, func(h holding) bool { return h.grant.name == name }) {
		return
	}
	// With several nodes, a node that is down must not delay a majority that is up. With one node, this setting changes nothing.
	m := c.sync.NewMutex(name, redsync.WithExpiry(c.Lease), redsync.WithFailFast(true))
	err := m.TryLock()
	now := c.now()
	var taken *redsync.ErrTaken
	switch {
	case err == nil:
		hold := c.MinHold + time.Duration(c.random.Int64N(int64(c.MaxHold-c.MinHold)+1))
		c.held = append(c.held, holding{mutex: m, grant: grant{name: name, from: now}, due: now + hold})
	case errors.As(err, &taken):
		c.refused++
	default:
		c.fail(err)
		c.pause()
	}
}

// giveBack asks whether the client still has the lock, and releases it.
func (c *client) giveBack(h holding) {
	end := h.mutex.Until().Sub(c.since)
	h.grant.fate = c.ask(h.mutex, end)
	h.grant.to = min(c.now(), end)
	c.history = append(c.history, h.grant)
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	// A release that fails does not prove that the lock was lost, because go-redis may have sent the release twice.
	var taken *redsync.ErrTaken
	if _, err := h.mutex.UnlockContext(ctx); err != nil && !errors.Is(err, redsync.ErrLockAlreadyExpired) && !errors.As(err, &taken) {
		c.fail(err)
	}
}

// ask returns the first answer that comes before the lease is over by the owner's own clock.
func (c *client) ask(m *redsync.Mutex, end time.Duration) fate {
	for c.now() < end {
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		//lint:ignore SA1019 Until would look at the client's own clock; this method asks the server.
		ok, err := m.ValidContext(ctx)
		cancel()
		var taken *redsync.ErrTaken
		switch {
		case c.now() >= end:
			return notAsked
		case ok:
			return kept
		case errors.As(err, &taken):
			return lost
		}
		c.fail(err)
		c.pause()
	}
	return notAsked
}

// pause waits as long as redsync waits between two tries.
func (c *client) pause() {
	time.Sleep(50*time.Millisecond + time.Duration(c.random.Int64N(int64(200*time.Millisecond))))
}

// fail counts errors by the first 120 bytes of their text.
func (c *client) fail(err error) {
	text := err.Error()
	if len(text) > 120 {
		text = text[:120]
	}
	c.errors[text]++
}

// herd has all clients of a run.
type herd struct {
	since   time.Time
	clients []*client
	closers []func() error
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// startHerd starts the clients. For each client, it calls open, which makes the client's connections.
func startHerd(l load, open func() ([]redis.Pool, func() error)) *herd {
	ctx, cancel := context.WithCancel(context.Background())
	h := &herd{since: time.Now(), cancel: cancel}
	for i := range l.Clients {
		pools, closer := open()
		c := newClient(l, pools, h.since, uint64(i))
		h.clients, h.closers = append(h.clients, c), append(h.closers, closer)
		h.done.Go(func() { c.run(ctx) })
	}
	return h
}

// stop ends the load and returns what the clients have seen.
func (h *herd) stop() (history []grant, refused int, failures map[string]int, err error) {
	h.cancel()
	h.done.Wait()
	failures = map[string]int{}
	for i, c := range h.clients {
		history = append(history, c.history...)
		refused += c.refused
		for text, n := range c.errors {
			failures[text] += n
		}
		err = errors.Join(err, h.closers[i]())
	}
	return history, refused, failures, err
}

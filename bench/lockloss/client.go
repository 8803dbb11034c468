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

// load is what the clients do.
type load struct {
	Clients int           `json:"clients"`
	Locks   int           `json:"locks"`
	Lease   time.Duration `json:"lease"`
	MinHold time.Duration `json:"min_hold"`
	MaxHold time.Duration `json:"max_hold"`
}

// askTimeout bounds one question of an owner whether it still has its lock, and
// one release.
const askTimeout = time.Second

// client takes locks at random, holds each for a while, asks whether it still
// has it, and gives it back. The code is the same for every system, redsync's
// mutex; only the pools differ.
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

// run takes locks and gives them back until ctx is done; then it gives back the locks that it has.
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
	// With several nodes, those that are down must not hold up a majority that is
	// there; with one, this changes nothing.
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

// giveBack asks whether the lock is still there, and releases it.
func (c *client) giveBack(h holding) {
	end := h.mutex.Until().Sub(c.since)
	h.grant.fate = c.ask(h.mutex, end)
	h.grant.to = min(c.now(), end)
	c.history = append(c.history, h.grant)
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	// A release that finds nothing, or another's token, is no proof of a loss:
	// go-redis may have sent it twice. The question before it was the proof.
	var taken *redsync.ErrTaken
	if _, err := h.mutex.UnlockContext(ctx); err != nil && !errors.Is(err, redsync.ErrLockAlreadyExpired) && !errors.As(err, &taken) {
		c.fail(err)
	}
}

// ask asks until there is an answer, or until the lease is over by the owner's
// own clock. Only an answer that came before that counts.
func (c *client) ask(m *redsync.Mutex, end time.Duration) fate {
	for c.now() < end {
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		//lint:ignore SA1019 Until would be the client's own clock; here the server is asked.
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

// pause is as long as redsync waits between two tries.
func (c *client) pause() {
	time.Sleep(50*time.Millisecond + time.Duration(c.random.Int64N(int64(200*time.Millisecond))))
}

// fail counts an error by the first 120 bytes of its text.
func (c *client) fail(err error) {
	text := err.Error()
	if len(text) > 120 {
		text = text[:120]
	}
	c.errors[text]++
}

// herd is all clients of a run.
type herd struct {
	since   time.Time
	clients []*client
	closers []func() error
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// startHerd starts the clients; open connects one of them.
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

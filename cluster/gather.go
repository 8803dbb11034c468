package cluster

import (
	"context"
	"time"

	"lockstep/store"
)

// After a batch has been answered its clients send again. A subscriber that the batch has woken tries
// to take the lock that is free. The sequencer waits for them for a moment, so that they share one
// entry and one disk write instead of two. It evaluates the requests that are there meanwhile, so
// little is left to do when the last one comes.
//
// Where the wait costs more than it saves, the sequencer soon gives it up (learn). One lock that is
// handed on is such a case. Measured with 50 clients: with a lock for each client, full batches
// instead of batches of 39 made a sixth more cycles per second; with one lock for all, the wait made a
// tenth fewer hand-offs.

// gatherLimit bounds how long a batch waits for more requests.
const gatherLimit = time.Millisecond

// gatherRetry bounds for how many batches the sequencer does not wait after a wait that did not pay. The
// fewer waits failed to pay lately, the sooner it waits again.
const gatherRetry = 32

// gathering is how a batch waits for more requests.
type gathering struct {
	missing int           // requests that are still expected; 0: the batch does not wait
	waited  int           // requests that were there at the beginning
	came    int           // requests that have come since
	start   time.Duration // monotonic, as the others
	until   time.Duration
	ended   time.Duration
}

// gather takes the waiting requests, and decides whether the batch waits for more. When a batch has just
// been answered, its clients are about to send again, and so are subscribers that its messages have told
// that a lock is free. A short wait for them, at most twice as long as that batch took, makes one full
// batch instead of two, each with a disk write of its own. The requests that are there are evaluated
// meanwhile (more).
func (s *sequencer) gather() []*request {
	if ready := s.node.cfg.ready; ready != nil {
		ready(s)
	}
	q := s.take()
	now := s.node.cfg.Time.Monotonic()
	patience := min(2*s.lastTook, gatherLimit) - (now - s.answered)
	switch {
	case len(q) == 0 || len(q) >= s.expected || patience <= 0:
	case s.gatherPause > 0:
		s.gatherPause--
	default:
		s.gathering = gathering{missing: s.expected - len(q), waited: len(q), start: now, until: now + patience}
	}
	return q
}

// more waits for some of the requests that the present batch expects, and returns q with them added. It
// returns q unchanged when the wait is over.
func (s *sequencer) more(ctx context.Context, q []*request) []*request {
	g := &s.gathering
	for g.missing > 0 {
		n := len(q)
		if q = s.takeMore(q); len(q) > n {
			g.came += len(q) - n
			g.missing -= len(q) - n
			break
		}
		left := g.until - s.node.cfg.Time.Monotonic()
		if left <= 0 || ctx.Err() != nil {
			break
		}
		s.await(ctx, (3*g.missing+3)/4, left) // to be woken for each request would cost more than it saves
	}
	return q
}

// await returns when so many requests are queued, when patience has passed, or when ctx ends.
func (s *sequencer) await(ctx context.Context, requests int, patience time.Duration) {
	s.mu.Lock()
	enough := len(s.queue) >= requests
	if !enough {
		s.want = requests
	}
	s.mu.Unlock()
	if enough {
		return
	}
	s.patience.Reset(patience)
	select {
	case <-s.full:
	case <-s.patience.C:
	case <-ctx.Done():
	}
	s.patience.Stop()
}

// gathered ends the waiting of the present batch.
func (s *sequencer) gathered() {
	if g := s.gathering; g.waited > 0 {
		s.gathering = gathering{ended: s.node.cfg.Time.Monotonic()}
		s.learn(g.waited, g.came, s.gathering.ended-g.start)
	}
}

// learn decides how soon the sequencer waits again after a wait. The wait did not pay if less than a
// quarter of the expected requests came. Nor did it if it cost the requests that waited more time than it
// saved those that came, each of which would have waited for a batch.
func (s *sequencer) learn(waited, came int, took time.Duration) {
	if came*4 >= s.expected-waited && time.Duration(came)*s.lastTook >= time.Duration(waited)*took {
		s.vain /= 2
		return
	}
	s.vain = min(2*s.vain+1, gatherRetry)
	s.gatherPause = s.vain
}

// note remembers what the next gather needs to know of a batch that has just
// been answered.
func (s *sequencer) note(b *batch, started time.Duration) {
	s.answered = s.node.cfg.Time.Monotonic()
	s.lastTook = s.answered - max(started, s.gathering.ended)
	s.expected = s.waiting() + len(b.requests) + s.told
	s.told = 0
}

// receivers returns how many subscribers a message reaches. gather then expects a request of each of
// them.
func (s *sequencer) receivers(kind store.PublishKind, channel string) int {
	n := 0
	if count := s.node.cfg.Receivers; count != nil {
		n = count(kind, channel)
	}
	s.told += n
	return n
}

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

// gatherRetry is after how many batches at most waiting is tried again when it did not
// pay: sooner if that was seldom so lately.
const gatherRetry = 32

// gathering is how a batch waits for more requests.
type gathering struct {
	missing int           // how many are still expected; 0: it waits for nobody
	waited  int           // were there at the beginning
	came    int           // have come since
	start   time.Duration // monotonic, as the others
	until   time.Duration
	ended   time.Duration
}

// gather takes the waiting requests. When a batch has just been answered, its
// clients are about to send again, and so are those whom its messages have told that a
// lock is free. Waiting for them a little, at most for twice as long as that batch took,
// makes one full batch of what would be two, each with a disk write of its own. Those who
// are there are evaluated meanwhile (more).
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

// more waits for some of those whom the present batch waits for, and returns q with them
// added; q as it is if it is to wait no longer.
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
		s.await(ctx, (3*g.missing+3)/4, left) // being woken for each would cost more than it saves
	}
	return q
}

// await returns when so many requests wait, or when patience has ended.
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

// learn decides how soon to wait again, when some have waited for others to come. It did
// not pay if few of those came who were expected, or if it took those who waited more time
// than it saved those who came, who would have waited for a batch.
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

// receivers is how many subscribers a message reaches, whom gather then waits for.
func (s *sequencer) receivers(kind store.PublishKind, channel string) int {
	n := 0
	if count := s.node.cfg.Receivers; count != nil {
		n = count(kind, channel)
	}
	s.told += n
	return n
}

package cluster

import (
	"context"
	"time"

	"lockstep/store"
)

// gatherLimit bounds how long a batch waits for more requests.
const gatherLimit = time.Millisecond

// gatherRetry is after how many batches at most waiting is tried again when it did not
// pay: sooner if that was seldom so lately.
const gatherRetry = 32

// gather takes the waiting requests. When a batch has just been answered, its
// clients are about to send again, and so are those whom its messages have told that a
// lock is free. Waiting for them a little, at most for twice as long as that batch took,
// makes one full batch of what would be two, each with a disk write of its own.
func (s *sequencer) gather(ctx context.Context) []*request {
	if ready := s.node.cfg.ready; ready != nil {
		ready(s)
	}
	start := s.node.cfg.Time.Monotonic()
	patience := min(2*s.lastTook, gatherLimit) - (start - s.answered)
	before := s.waiting()
	if before == 0 || before >= s.expected || patience <= 0 {
		return s.take()
	}
	if s.gatherPause > 0 {
		s.gatherPause--
		return s.take()
	}
	if !s.awaits() {
		return s.take()
	}
	s.patience.Reset(patience)
	select {
	case <-s.full:
	case <-s.patience.C:
	case <-ctx.Done():
	}
	s.patience.Stop()
	q := s.take()
	s.learn(before, len(q)-before, s.node.cfg.Time.Monotonic()-start)
	return q
}

// awaits has full told when as many requests wait as are expected; false if they do.
func (s *sequencer) awaits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) >= s.expected {
		return false
	}
	s.want = s.expected
	return true
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
	s.lastTook = s.answered - started
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

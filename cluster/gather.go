package cluster

import (
	"context"
	"time"

	"lockstep/store"
)

// gatherLimit bounds how long a batch waits for more requests.
const gatherLimit = time.Millisecond

// gatherRetry is after how many batches waiting is tried again when it did not
// pay.
const gatherRetry = 32

// gather takes the waiting requests. When a batch has just been answered, its
// clients are about to send again, and so are those whom its messages have told that a
// lock is free. Waiting for them a little, at most for as long as that batch took, makes
// one full batch of what would be two halves, each with a disk write of its own.
func (s *sequencer) gather(ctx context.Context) []*request {
	if ready := s.node.cfg.ready; ready != nil {
		ready(s)
	}
	patience := min(s.lastTook, gatherLimit) - (s.node.cfg.Time.Monotonic() - s.answered)
	before := s.waiting()
	if before == 0 || before >= s.expected || patience <= 0 {
		return s.take()
	}
	if s.gatherPause > 0 {
		s.gatherPause--
		return s.take()
	}
	s.mu.Lock()
	s.want = s.expected
	s.mu.Unlock()
	s.patience.Reset(patience)
	select {
	case <-s.full:
	case <-s.patience.C:
	case <-ctx.Done():
	}
	s.patience.Stop()
	q := s.take()
	if (len(q)-before)*4 < s.expected-before {
		s.gatherPause = gatherRetry
	}
	return q
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

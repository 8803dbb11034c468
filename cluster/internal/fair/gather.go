package fair

import (
	"context"
	"time"
)

// After a batch, its clients send again, and subscribers try to take the lock that is now free. The sequencer waits a moment for all of
// them, so that they share one entry. It soon stops waiting where the wait costs more than it saves (learn).

// GatherLimit bounds how long a batch waits for more requests.
const GatherLimit = time.Millisecond

// GatherRetry bounds how many batches do not wait after a wait that did not pay. The number doubles with each such wait, and halves
// otherwise.
const GatherRetry = 32

// Gatherer decides how long a batch waits, and for how many requests.
type Gatherer[R comparable] struct {
	in    *Inbox[R]
	clock Clock

	present  gathering     // how the present batch waits
	expected int           // requests of the next batch if all clients of the last one send again, and all its subscribers send
	Told     int           // number of subscribers to which the present batch sends messages
	answered time.Duration // when the last batch was answered
	lastTook time.Duration // how long the last batch took after it had stopped waiting
	pause    int           // number of batches to come that do not wait, though they have fewer requests than expected
	vain     int           // length of the next pause: it grows when a wait does not pay, and shrinks when it does
}

// NewGatherer returns a Gatherer that takes requests out of an Inbox.
func NewGatherer[R comparable](in *Inbox[R], clock Clock) Gatherer[R] {
	return Gatherer[R]{in: in, clock: clock}
}

// gathering is how a batch waits for more requests.
type gathering struct {
	missing int           // requests that are still expected; 0: the batch does not wait
	waited  int           // requests that were there at the beginning
	came    int           // requests that have come since
	start   time.Duration // monotonic, as are the fields until and ended
	until   time.Duration
	ended   time.Duration
}

// Gather returns the queued requests as the beginning of a batch. Gather also decides whether More waits: for GatherLimit at most after
// the last batch.
func (g *Gatherer[R]) Gather() []R {
	q := g.in.Take()
	now := g.clock.Monotonic()
	patience := min(2*g.lastTook, GatherLimit) - (now - g.answered)
	switch {
	case len(q) == 0 || len(q) >= g.expected || patience <= 0:
	case g.pause > 0:
		g.pause--
	default:
		g.present = gathering{missing: g.expected - len(q), waited: len(q), start: now, until: now + patience}
	}
	return q
}

// More waits for some of the requests that the batch expects, and adds them to q.
func (g *Gatherer[R]) More(ctx context.Context, q []R) []R {
	p := &g.present
	for p.missing > 0 {
		n := len(q)
		if q = g.in.TakeMore(q); len(q) > n {
			p.came += len(q) - n
			p.missing -= len(q) - n
			break
		}
		left := p.until - g.clock.Monotonic()
		if left <= 0 || ctx.Err() != nil {
			break
		}
		g.in.Await(ctx, (3*p.missing+3)/4, left) // to be woken for each request would cost more than it saves
	}
	return q
}

// Gathered ends the waiting of the present batch.
func (g *Gatherer[R]) Gathered() {
	if p := g.present; p.waited > 0 {
		g.present = gathering{ended: g.clock.Monotonic()}
		g.learn(p.waited, p.came, g.present.ended-p.start)
	}
}

// learn decides how many batches do not wait next. A wait did not pay if few requests came, or it cost more than it saved.
func (g *Gatherer[R]) learn(waited, came int, took time.Duration) {
	if came*4 >= g.expected-waited && time.Duration(came)*g.lastTook >= time.Duration(waited)*took {
		g.vain /= 2
		return
	}
	g.vain = min(2*g.vain+1, GatherRetry)
	g.pause = g.vain
}

// Note remembers what the next Gather needs to know of the batch that has just been answered: how many requests it had, and when
// it started.
func (g *Gatherer[R]) Note(requests int, started time.Duration) {
	g.answered = g.clock.Monotonic()
	g.lastTook = g.answered - max(started, g.present.ended)
	g.expected = g.in.Waiting() + requests + g.Told
	g.Told = 0
}

package server

import (
	"sync/atomic"
	"time"
)

// Clients that have not authenticated are served a share of a loop's time, one after the other: a few hundred
// connections of a stranger that send as fast as they can would have all other clients of the loop wait for a turn of
// each of them. What strangers send beyond that stays with the operating system, which slows them down.

const (
	// strangersTurn is for how long a loop reads the input of strangers in a round.
	strangersTurn = 500 * time.Microsecond
	// strangersRest is how much longer than the last round with strangers it reads none.
	strangersRest = 3
	// strangersWait bounds that.
	strangersWait = 50 * time.Millisecond
)

// strangers are the idle connections with unread input whose clients have not authenticated, or send lines that make no
// command. The owner of the loop uses it.
type strangers struct {
	queue []*loopConn // the one that has waited longest first
	due   time.Time   // when the next ones may be served
	since time.Time   // when the present round began to serve some; zero: it has not
	timer *time.Timer // wakes the loop when they are due
	late  atomic.Bool // the timer has fired: they are due, whatever the clock says
}

func (s *strangers) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
}

// turn serves an idle connection with unread input now, or has it wait for its turn among strangers.
func (l *loop) turn(c *loopConn) {
	switch {
	case c.state != connIdle:
		c.ready = false
	case c.s.needsAuth() || c.vain:
		l.strangers.queue = append(l.strangers.queue, c)
	default:
		c.ready = false
		l.advance(c)
	}
}

// serveStrangers serves as many strangers as have time in this round.
func (l *loop) serveStrangers() {
	s := &l.strangers
	if len(s.queue) == 0 || l.now.Before(s.due) && !s.late.Load() {
		return
	}
	s.stop()
	s.late.Store(false)
	s.since = l.now
	served := 0
	for _, c := range s.queue {
		served++
		c.ready = false
		if c.state == connIdle {
			l.advance(c)
		}
		if l.srv.cfg.Clock().Sub(s.since) >= strangersTurn {
			break
		}
	}
	rest := copy(s.queue, s.queue[served:])
	clear(s.queue[rest:])
	s.queue = s.queue[:rest]
}

// strangersServed gives the others their time after a round in which strangers were served. It counts all of the round,
// with the replies that were sent.
func (l *loop) strangersServed() {
	s := &l.strangers
	if s.since.IsZero() {
		return
	}
	now := l.srv.cfg.Clock()
	s.due = now.Add(min(strangersRest*now.Sub(s.since), strangersWait))
	s.since = time.Time{}
}

// awaitStrangers makes the loop wake when strangers that wait are due. It returns false if they are due now. The caller
// holds mu.
func (l *loop) awaitStrangers() bool {
	s := &l.strangers
	if len(s.queue) == 0 {
		return true
	}
	left := min(s.due.Sub(l.srv.cfg.Clock()), strangersWait)
	switch {
	case left <= 0 || s.late.Load():
		return false
	case s.timer == nil:
		s.timer = time.AfterFunc(left, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			s.late.Store(true)
			if !l.ended {
				l.ring()
			}
		})
	default:
		s.timer.Reset(left)
	}
	return true
}

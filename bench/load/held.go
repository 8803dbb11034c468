package load

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
)

// each calls the function do for all elements at the same time. It returns the first error, because all usually have the same
// reason.
func each[T any](list []T, do func(id int, one T) error) error {
	var mu sync.Mutex
	var first error
	faults := 0
	var work sync.WaitGroup
	for id, one := range list {
		work.Go(func() {
			if err := do(id, one); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if faults++; first == nil {
					first = fmt.Errorf("client %d: %w", id, err)
				}
			}
		})
	}
	work.Wait()
	if faults > 1 {
		return fmt.Errorf("%w (and %d more)", first, faults-1)
	}
	return first
}

// share is the part of many locks that one session takes: every step-th lock from first on.
type share struct {
	name        string
	first, step int
	n           int
	pipeline    bool
}

// batch is how many locks a session takes in one pipeline, if the peer has pipelines.
const batch = 50

// hold takes the locks of the share until enough returns true.
func (p share) hold(s Session, enough func() bool) (keys []string, err error) {
	size := 1
	if p.pipeline {
		size = batch
	}
	for i := p.first; i < p.n && !enough(); {
		var some []string
		for ; len(some) < size && i < p.n; i += p.step {
			some = append(some, p.name+strconv.Itoa(i))
		}
		got, err := s.Hold(some)
		if err := expect("hold", got, len(some), err); err != nil {
			return keys, err
		}
		keys = append(keys, some...)
	}
	return keys, nil
}

// Held has locks that are held in addition to the measured ones.
type Held struct {
	sessions []Session
	n        int
	pipeline bool
}

// holders is how many sessions hold the locks of Held.
const holders = 8

// OpenHeld opens the sessions that will hold n locks.
func OpenHeld(target Target, n int, pipeline bool) (*Held, error) {
	h := &Held{n: n, pipeline: pipeline}
	for range min(n, holders) {
		s, err := target.Open("holder")
		if err != nil {
			return nil, errors.Join(err, h.Close())
		}
		h.sessions = append(h.sessions, s)
	}
	return h, nil
}

// Take takes all of the locks, however long that takes.
func (h *Held) Take() error {
	return each(h.sessions, func(id int, s Session) error {
		_, err := share{"alive:", id, holders, h.n, h.pipeline}.hold(s, func() bool { return false })
		return err
	})
}

// Close ends the sessions.
func (h *Held) Close() error {
	return each(h.sessions, func(_ int, s Session) error { return s.Close() })
}

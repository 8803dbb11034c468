package kills

import (
	"fmt"
	"sync"
)

// round is what all clients append and count between two looks at it.
type round struct {
	number int

	mu      sync.Mutex
	pending sync.WaitGroup
	pushes  *elements
	seen    map[int64]bool // replies to INCR
	maybe   int64          // increments of unknown fate
}

func newRound(number int) *round {
	r := &round{number: number, seen: map[int64]bool{}}
	r.pushes = newElements(r.list())
	return r
}

func (r *round) list() string    { return fmt.Sprintf("list:%d", r.number) }
func (r *round) counter() string { return fmt.Sprintf("shared:%d", r.number) }

func (r *round) pushed(element string, known bool) {
	defer r.pending.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	if known {
		r.pushes.acked[element] = true
	} else {
		r.pushes.maybe[element] = true
	}
}

func (r *round) incremented(j *judge, got any, known bool) {
	defer r.pending.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	n, number := got.(int64)
	switch {
	case !known || !number:
		r.maybe++
	case r.seen[n]:
		j.fault(writeLost, "%s was %d for two clients", r.counter(), n)
	default:
		r.seen[n] = true
	}
}

// close judges the round when nothing is under way in it any more.
func (r *round) close(j *judge, list []string, total int64) {
	r.pushes.are(j, list)
	c := counter{name: r.counter(), low: int64(len(r.seen)), high: int64(len(r.seen)) + r.maybe}
	c.is(j, total)
	j.count("elements and increments checked for exactly-once", len(list)+int(total))
}

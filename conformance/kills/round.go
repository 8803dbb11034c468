package kills

import (
	"fmt"
	"sync"

	"github.com/lockstep-io/lockstep/conformance/judge"
)

// round has what all clients append and count between two checks.
type round struct {
	number int

	mu      sync.Mutex
	pending sync.WaitGroup
	pushes  *judge.Elements
	seen    map[int64]bool // replies to INCR
	maybe   int64          // increments whose outcome is unknown
}

func newRound(number int) *round {
	r := &round{number: number, seen: map[int64]bool{}}
	r.pushes = judge.NewElements(r.list())
	return r
}

func (r *round) list() string    { return fmt.Sprintf("list:%d", r.number) }
func (r *round) counter() string { return fmt.Sprintf("shared:%d", r.number) }

func (r *round) pushed(element string, known bool) {
	defer r.pending.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	if known {
		r.pushes.Acked[element] = true
	} else {
		r.pushes.Maybe[element] = true
	}
}

func (r *round) incremented(j *judge.Judge, got any, known bool) {
	defer r.pending.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	n, number := got.(int64)
	switch {
	case !known || !number:
		r.maybe++
	case r.seen[n]:
		j.Fault(judge.WriteLost, "%s was %d for two clients", r.counter(), n)
	default:
		r.seen[n] = true
	}
}

// close judges the round. No command of the round may be in progress any more.
func (r *round) close(j *judge.Judge, list []string, total int64) {
	r.pushes.Are(j, list)
	c := judge.Counter{Name: r.counter(), Low: int64(len(r.seen)), High: int64(len(r.seen)) + r.maybe}
	c.Is(j, total)
	j.Count("elements and increments checked for exactly-once", len(list)+int(total))
}

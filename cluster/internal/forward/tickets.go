package forward

import (
	"sync"
)

// Ticket identifies a write of another node, or a write of this node that an earlier leader may have received.
type Ticket struct {
	Origin uint64 // boot number of the node that forwards the write
	ID     uint64 // number of the write on that node; 0: the request may be executed twice
	Low    uint64 // the origin waits for no write with a smaller number
	Again  bool   // the write may have been executed already
}

// Tickets hands out the numbers of the writes that this node forwards.
type Tickets struct {
	mu   sync.Mutex
	next uint64
	low  uint64              // all smaller numbers have ended
	over map[uint64]struct{} // ended numbers from low on
}

// Begin returns a new number.
func (t *Tickets) Begin() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next == 0 {
		t.next, t.low, t.over = 1, 1, map[uint64]struct{}{}
	}
	id := t.next
	t.next++
	return id
}

// End notes that no client waits for the write with this number any more.
func (t *Tickets) End(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over[id] = struct{}{}
	for {
		if _, ok := t.over[t.low]; !ok {
			return
		}
		delete(t.over, t.low)
		t.low++
	}
}

func (t *Tickets) Lowest() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.low
}

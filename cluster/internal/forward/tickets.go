package forward

import (
	"container/list"
	"sync"
)

// Ticket identifies a write of another node, or a write of this node that an earlier leader may have received.
type Ticket struct {
	Origin uint64 // boot number of the node that forwards the write
	ID     uint64 // number of the write on that node; 0: the request needs no number, because it may be executed twice
	Low    uint64 // the origin waits for no write with a smaller number
	Again  bool   // the write may have been executed already
}

// Tickets hands out the numbers of the writes that this node forwards. It remembers only those for which a client waits.
type Tickets struct {
	mu    sync.Mutex
	last  uint64
	open  list.List // numbers for which a client waits, in order
	where map[uint64]*list.Element
}

// Begin returns a new number, and remembers it until End.
func (t *Tickets) Begin() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.where == nil {
		t.where = map[uint64]*list.Element{}
	}
	t.last++
	t.where[t.last] = t.open.PushBack(t.last)
	return t.last
}

// End notes that no client waits for the write with this number any more.
func (t *Tickets) End(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.where[id]; e != nil {
		t.open.Remove(e)
		delete(t.where, id)
	}
}

// Lowest returns the lowest number for which a client waits, or the next new number if no client waits.
func (t *Tickets) Lowest() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.open.Front(); e != nil {
		return e.Value.(uint64)
	}
	return t.last + 1
}

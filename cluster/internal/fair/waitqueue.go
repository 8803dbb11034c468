package fair

import (
	"slices"
	"sync"
	"sync/atomic"
)

// WaitQueue holds requests in the order of their arrival: those that wait for a leader, where a late release would end a lock taken again
// with its token, or those that wait in a Gate.
type WaitQueue struct {
	arrived atomic.Uint64 // requests so far
	length  atomic.Int32  // len(list), readable without mu

	mu   sync.Mutex
	list []*Place // sorted by number
}

// Place is a request's place in the queue.
type Place struct {
	number uint64
	First  chan struct{} // has room for one; gets a value when the request may have become the first
}

// Number counts a request that has just arrived, and returns its number in the order of arrival.
func (l *WaitQueue) Number() uint64 { return l.arrived.Add(1) }

// Empty reports whether no request waits.
func (l *WaitQueue) Empty() bool { return l.length.Load() == 0 }

// Join adds a request to the queue, at the place that belongs to its number.
func (l *WaitQueue) Join(number uint64) *Place {
	p := &Place{number: number, First: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	at, _ := slices.BinarySearchFunc(l.list, number, func(x *Place, n uint64) int {
		if x.number < n {
			return -1
		}
		return 1
	})
	l.list = slices.Insert(l.list, at, p)
	l.length.Store(int32(len(l.list)))
	return p
}

// IsFirst reports whether no request is before p. If one is, p.First tells when to ask again.
func (l *WaitQueue) IsFirst(p *Place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list) > 0 && l.list[0] == p
}

// Leave removes a place from the queue. If it was the first, Leave tells the request behind it (Place.First). A second call does
// nothing.
func (l *WaitQueue) Leave(p *Place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(l.list, p)
	if at < 0 {
		return
	}
	l.list = slices.Delete(l.list, at, at+1)
	l.length.Store(int32(len(l.list)))
	if at == 0 && len(l.list) > 0 {
		select {
		case l.list[0].First <- struct{}{}:
		default:
		}
	}
}

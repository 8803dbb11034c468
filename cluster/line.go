package cluster

import (
	"slices"
	"sync"
	"sync/atomic"
)

// line holds the submissions that wait for a leader. They go on in order of arrival, and clients count on
// that: redsync sends a release of a lock that it has given up, and then takes the lock again by another
// connection, with the same token. A release that came last would end a lock that its owner believes to
// hold. The order is the same for all connections of the node; submissions that had been sent to an
// earlier leader go first.
type line struct {
	arrived atomic.Uint64 // submissions so far
	length  atomic.Int32

	mu   sync.Mutex
	list []*standing // by number
}

// standing is a submission's place in the line.
type standing struct {
	number uint64
	first  chan struct{} // has room for one: there may be no submission before it now
}

// number returns the number of a submission that has just arrived.
func (l *line) number() uint64 { return l.arrived.Add(1) }

// empty reports whether no submission waits.
func (l *line) empty() bool { return l.length.Load() == 0 }

// join takes the place that belongs to a number.
func (l *line) join(number uint64) *standing {
	p := &standing{number: number, first: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	at, _ := slices.BinarySearchFunc(l.list, number, func(x *standing, n uint64) int {
		if x.number < n {
			return -1
		}
		return 1
	})
	l.list = slices.Insert(l.list, at, p)
	l.length.Store(int32(len(l.list)))
	return p
}

// isFirst reports whether no submission is before p. If one is, p.first tells when to ask again.
func (l *line) isFirst(p *standing) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list) > 0 && l.list[0] == p
}

// leave gives up a place; a second call does nothing.
func (l *line) leave(p *standing) {
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
		case l.list[0].first <- struct{}{}:
		default:
		}
	}
}

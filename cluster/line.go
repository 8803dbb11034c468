package cluster

import (
	"slices"
	"sync"
	"sync/atomic"
)

// line has the submissions that wait for a leader, in order of arrival, and
// they go on in that order. A client that gives a request up and sends others,
// by other connections, counts on it: redsync takes a lock again, with the same
// token, after it has sent a release of what it gave up. A release that came last
// would end a lock that its owner believes to hold. The order is that of all
// connections of the node; what had been sent to an earlier leader goes first.
type line struct {
	arrived atomic.Uint64 // submissions so far
	length  atomic.Int32

	mu   sync.Mutex
	list []*standing // by number
}

// standing is a submission's place in the line.
type standing struct {
	number uint64
	first  chan struct{} // has room for one: there may be nobody before it now
}

// number is taken when a submission arrives.
func (l *line) number() uint64 { return l.arrived.Add(1) }

// empty reports whether nobody waits.
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

// isFirst reports whether nobody is before p. If somebody is, p.first tells
// when to ask again.
func (l *line) isFirst(p *standing) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list) > 0 && l.list[0] == p
}

// leave gives a place up, if it has not been.
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

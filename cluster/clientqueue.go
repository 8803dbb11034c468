package cluster

import (
	"cmp"
	"slices"
	"time"
)

// waitKey names a key that blocked clients wait for.
type waitKey struct {
	db   int
	key  string
	free bool // they wait for a lock, so until the key is free
}

// place is a blocked client's place in the queue of one key.
type place struct {
	w          *blockedClient
	queue      *waitQueue
	order      order // grows from head to tail, unless the queue is mixed
	prev, next *place
	listed     bool
}

// order is what places and blocked clients are sorted by: first by the field place, then by since, then by number.
type order struct {
	place  uint64        // the place in the queues, which the next leader keeps (blockedClients.placeOf)
	since  time.Duration // when the client came, or lost its place
	number uint64        // each new order gets a higher number than all before
}

func (o order) compare(p order) int {
	return cmp.Or(cmp.Compare(o.place, p.place), cmp.Compare(o.since, p.since), cmp.Compare(o.number, p.number))
}

// waitQueue is the list of blocked clients that wait for one key.
type waitQueue struct {
	key        waitKey
	number     uint64 // its number in blockedClients.inLine
	head, tail *place
	n          int
	mixed      bool // a client that was sent again may stand behind clients that came later; sort clears it
}

func (q *waitQueue) push(p *place) {
	q.mixed = q.mixed || q.tail != nil && p.order.compare(q.tail.order) < 0
	q.insert(p, q.tail)
}

// sort puts a mixed queue in order at once, because a search in each push would walk over the queue.
func (q *waitQueue) sort() {
	if !q.mixed {
		return
	}
	list := make([]*place, 0, q.n)
	for p := q.head; p != nil; p = p.next {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *place) int { return a.order.compare(b.order) })
	q.head, q.tail, q.n, q.mixed = nil, nil, 0, false
	for _, p := range list {
		q.insert(p, q.tail)
	}
}

// insert puts p behind the place after. If after is nil, insert puts p at the beginning.
func (q *waitQueue) insert(p, after *place) {
	p.prev, p.listed = after, true
	if after == nil {
		p.next, q.head = q.head, p
	} else {
		p.next, after.next = after.next, p
	}
	if p.next == nil {
		q.tail = p
	} else {
		p.next.prev = p
	}
	q.n++
}

func (q *waitQueue) remove(p *place) {
	if p.prev == nil {
		q.head = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		q.tail = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next, p.listed = nil, nil, false
	q.n--
}

// restore puts a place back into the queue, where its order says.
func (q *waitQueue) restore(p *place) {
	var after *place
	for x := q.head; x != nil && x.order.compare(p.order) < 0; x = x.next {
		after = x
	}
	q.insert(p, after)
}

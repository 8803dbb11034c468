package cluster

import (
	"cmp"
	"maps"
	"slices"

	"github.com/lockstep-io/lockstep/store"
)

// readyList lists the keys whose blocked clients have to be served, each key once. The element anyKey, after SWAPDB, stands for a
// round of all keys that clients wait for, perhaps over several log entries.
type readyList struct {
	keys   []waitKey
	listed map[waitKey]bool
	round  round
}

// round is how far a round through all keys that clients wait for has come.
type round struct {
	next, last uint64 // numbers of the next queue to look at and of the last queue of the round
	many       manyRound
	again      bool // databases were swapped meanwhile, so another round has to follow
}

// manyRound is how far a round has come with the keys of the clients that wait for many keys (block_keys.go). These keys may
// have no queues.
type manyRound struct {
	client uint64 // the number (order.number) of the client to look at next
	key    int    // the index of the next key of that client
	last   uint64 // the number of the last client of the round
}

// take returns the next key of the clients that wait for many keys; ok is false if there is none.
func (r *manyRound) take(ws *blockedClients) (k waitKey, ok bool) {
	for {
		i, there := ws.findMany(r.client)
		if i == len(ws.many) || ws.many[i].order.number > r.last {
			return k, false
		}
		w := ws.many[i]
		if !there {
			r.client, r.key = w.order.number, 0
		}
		if r.key < len(w.keys.ends) {
			r.key++
			return waitKey{db: w.wait.DB, key: w.keys.at(r.key - 1)}, true
		}
		r.client, r.key = r.client+1, 0
	}
}

// line has the wait queues of all keys, sorted by number. Ended queues stay until the batch is over, because a rollback may reopen
// them.
type line struct {
	queues []*waitQueue
	last   uint64 // number of the latest queue
	ended  int
}

// add puts a new queue, which is still empty, at the end of the line.
func (l *line) add(q *waitQueue) {
	l.last++
	q.number = l.last
	l.queues = append(l.queues, q)
}

// tidy removes the queues that have ended, if they are more than half of all.
func (l *line) tidy() {
	if 2*l.ended > len(l.queues) {
		l.queues = slices.DeleteFunc(l.queues, func(q *waitQueue) bool { return q.n == 0 })
		l.ended = 0
	}
}

// from returns the first queue that has not ended among those with this number or a higher one; nil if there is none.
func (l *line) from(number uint64) *waitQueue {
	i, _ := slices.BinarySearchFunc(l.queues, number, func(q *waitQueue, number uint64) int { return cmp.Compare(q.number, number) })
	for ; i < len(l.queues); i++ {
		if l.queues[i].n > 0 {
			return l.queues[i]
		}
	}
	return nil
}

// anyKey stands for all keys that clients wait for; no database has the number -1.
var anyKey = waitKey{db: -1}

// take removes and returns the next key of the list, which must not be empty. For anyKey, ok is false after its round.
func (l *readyList) take(ws *blockedClients) (k waitKey, ok bool) {
	if k = l.keys[0]; k != anyKey {
		l.drop()
		return k, true
	}
	if q := ws.inLine.from(l.round.next); q != nil && q.number <= l.round.last {
		l.round.next = q.number + 1
		return q.key, true
	}
	if k, ok := l.round.many.take(ws); ok {
		return k, true
	}
	l.drop()
	if l.round.again {
		l.putAll(ws)
	}
	return k, false
}

// drop removes the first key.
func (l *readyList) drop() {
	delete(l.listed, l.keys[0])
	l.keys = l.keys[1:]
}

// putBack makes a key the first of the list, unless it is in the list already.
func (l *readyList) putBack(k waitKey) {
	if !l.listed[k] {
		l.keys = slices.Insert(l.keys, 0, k)
		l.list(k)
	}
}

func (l *readyList) list(k waitKey) {
	if l.listed == nil {
		l.listed = map[waitKey]bool{}
	}
	l.listed[k] = true
}

func (l *readyList) clone() readyList {
	if len(l.keys) == 0 {
		return readyList{}
	}
	return readyList{slices.Clone(l.keys), maps.Clone(l.listed), l.round}
}

// add adds the ready keys for which clients wait. If the parameter all is true, any key may be ready (SWAPDB).
func (l *readyList) add(ws *blockedClients, keys []store.ReadyKey, all bool) {
	for _, k := range keys {
		l.put(ws, waitKey{k.DB, k.Key, k.Type == store.TypeFree})
	}
	if all {
		l.putAll(ws)
	}
}

func (l *readyList) put(ws *blockedClients, k waitKey) {
	if l.listed[k] || !ws.waitedFor(k) {
		return
	}
	l.list(k)
	l.keys = append(l.keys, k)
}

// putAll adds all keys that clients wait for now.
func (l *readyList) putAll(ws *blockedClients) {
	if l.listed[anyKey] {
		l.round.again = true // keys that the round has passed may be ready now
		return
	}
	l.round = round{next: 1, last: ws.inLine.last, many: manyRound{last: ws.last}}
	l.list(anyKey)
	l.keys = append(l.keys, anyKey)
}

// follow adds the keys of another list behind the keys of this list. At most one of the two lists may have the element anyKey.
func (l *readyList) follow(ws *blockedClients, other readyList) {
	for _, k := range other.keys {
		if k != anyKey {
			l.put(ws, k)
			continue
		}
		l.round = other.round
		l.list(k)
		l.keys = append(l.keys, k)
	}
}

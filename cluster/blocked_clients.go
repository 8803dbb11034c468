package cluster

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/store"
)

// Blocked clients on the leader. A blocked client is a request whose command found no element. It stands in the queues of its
// keys (if it has very many: block_keys.go), in the order of arrival at its node. block.go says how exact this order is and how
// blocked clients survive a change of leader.
//
// When a command gives a key an element, the leader answers the key's blocked clients in the same batch, so no other command
// comes between. Only those too many for one entry are served later (serveTurns).
//
// A client that waits for a lock stands in another queue, that of the clients that wait until its key is free. When the key is
// deleted or expires, the first of them gets the lock in the same batch.
//
// store.Txn.TakeReady names the keys that have become lists or sorted sets, or free. Blocked clients are served in the order of Redis's
// handleClientsBlockedOnKeys, and with its oddity: a client that waits for another type than the key's goes to the end of the
// queue. A blocking command in a script or a transaction never becomes a blocked client.
//
// Before a batch is evaluated again, rollback restores the queues. If the log refuses a batch, the leader does not know which
// keys another entry made ready. So all blocked clients then go back to their origins, the nodes of the clients.

// blockedClient is a blocking command on the leader.
type blockedClient struct {
	req   *request
	wait  *store.Wait // nil until its command has found no element
	state atomic.Int32
	quit  atomic.Int32 // how to end it (quitSoon, quitNow, quitRefused); 0: nobody has asked to end it
	// joined is called when it is certain that the client waits (confirm); it may be nil.
	joined func()
	// dequeue takes the request out of the leader's inbox, so that abandoned commands do not fill it while the disk hangs; nil
	// only in tests.
	dequeue func(*request)

	origin uint64 // boot number of the client's node
	id     uint64 // number of the command on the client's node
	token  uint64 // token of the link that it came by; 0: no link
	waited forward.Waited
	since  time.Duration // if sent again: when it came to its client's node, by this node's clock; else: when it joined here

	size   int64  // the bytes that guests counts for this client
	number uint64 // its number in guests, in order of arrival
	index  int    // its index in guests.list; -1: it is not there

	all    *blockedClients   // the blockedClients in whose queues it waits; nil: it has not joined yet
	order  order             // its order among all blocked clients
	places []place           // one place for each key, if the keys are few
	keys   *keyIndex         // an index of the keys, if they are many (block_keys.go)
	found  map[uint32]*place // if the keys are many: the places for those that were ready, by the number of the key in the index
	fresh  bool              // it has joined in the present batch
	given  grants            // the leases that its command has taken, when it was served
	early  bool              // a new leader holds it, or has held it (early.go)
}

// States of a blocked client. The goroutine that sets blockedTaken must answer the client or release it; the one that sets
// blockedCancelled must answer it.
const (
	blockedAsked     int32 = iota // its command has not been evaluated yet
	blockedTaken                  // its command is being evaluated, or the present batch answers it
	blockedJoining                // in the queues since the present batch, which has not ended yet (settle)
	blockedWaiting                // in the queues
	blockedCancelled              // answered, or about to be, with forward.ErrCancelled or another error
)

const (
	quitSoon    int32 = 1 + iota // evaluate the command once, and cancel it if it finds no element
	quitNow                      // cancel the command, even before it is evaluated
	quitRefused                  // as quitNow, but answer that there is no memory for it
)

// cancel cancels or refuses the blocked client, unless it is served before. With quitSoon, a committed batch first proves that
// there was no element.
func (w *blockedClient) cancel(how int32) {
	for old := w.quit.Load(); how > old && !w.quit.CompareAndSwap(old, how); old = w.quit.Load() {
	}
	switch {
	case w.state.CompareAndSwap(blockedWaiting, blockedCancelled):
		w.all.bury(w)
		w.cancelled()
	case how >= quitNow && w.state.CompareAndSwap(blockedAsked, blockedCancelled):
		if w.dequeue != nil {
			w.dequeue(w.req)
		}
		w.cancelled()
	}
}

// cancelled answers a blocked client whose state is blockedCancelled: its command has had no effect.
func (w *blockedClient) cancelled() {
	if w.quit.Load() == quitRefused {
		w.req.refuse(ErrBlockedMemory)
		return
	}
	w.req.complete(forward.ErrCancelled)
}

// release makes a taken blocked client wait again.
func (w *blockedClient) release() {
	if w.fresh {
		w.state.Store(blockedJoining)
		return
	}
	w.state.Store(blockedWaiting)
	w.finishCancel()
}

// finishCancel carries out a cancel that came while the blocked client was taken, or before it was confirmed.
func (w *blockedClient) finishCancel() {
	if how := w.quit.Load(); how != 0 {
		w.cancel(how)
	}
}

// confirm notes that the blocked client certainly waits: its batch is committed, or wrote nothing while this node led.
func (w *blockedClient) confirm() {
	w.fresh = false
	if !w.state.CompareAndSwap(blockedJoining, blockedWaiting) {
		return // it has been served or cancelled since
	}
	if w.joined != nil {
		w.joined()
	}
	w.finishCancel()
}

// blockedClients holds all blocked clients that wait. Only the evaluating goroutine uses it, except for bury.
type blockedClients struct {
	queues map[waitKey]*waitQueue
	many   []*blockedClient // the clients that wait for many keys, sorted by order.number
	inLine line             // the queues, in the order in which they were made
	all    map[*blockedClient]struct{}
	owners map[string]map[*blockedClient]struct{} // the clients that wait for locks, by owner
	tokens map[uint64]uint64                      // token of the present link of each origin
	last   uint64                                 // number of the latest order
	term   uint64                                 // Raft term of the leader
	came   uint64                                 // how many clients have come in this term
	began  time.Duration                          // monotonic time at which the term began here

	ready  readyList // the keys whose blocked clients have yet to be served
	before readyList // the value of ready when the present batch began

	// The changes by the present batch, for rollback.
	served   []*blockedClient
	joined   []*blockedClient
	handed   map[waitKey]struct{} // the locks that the present batch has handed on
	answered []*request           // the requests of the clients in served, until addAnswered adds these requests to the batch

	buried atomic.Int32 // length of dead
	left   atomic.Bool  // a client that waited for a lock is in dead: others may get the lock now
	wake   func()       // lets the evaluating goroutine sweep
	mu     sync.Mutex
	dead   []*blockedClient // cancelled, but still in the queues
	// deadForLocks is how many of them have waited for locks.
	deadForLocks int
}

func newBlockedClients() *blockedClients {
	return &blockedClients{wake: func() {}, queues: map[waitKey]*waitQueue{}, all: map[*blockedClient]struct{}{}, owners: map[string]map[*blockedClient]struct{}{}, tokens: map[uint64]uint64{}}
}

func (ws *blockedClients) any() bool { return len(ws.all) > 0 }

// pending reports whether blocked clients of ready keys have yet to be served.
func (ws *blockedClients) pending() bool { return len(ws.ready.keys) > 0 }

// queue returns the queue of a key, a new one if there is none.
func (ws *blockedClients) queue(k waitKey) *waitQueue {
	if q := ws.queues[k]; q != nil {
		return q
	}
	q := &waitQueue{key: k}
	ws.queues[q.key] = q
	ws.inLine.add(q)
	return q
}

// reopen returns the key's present queue, or takes ended into use again with its old number, by which a round (readyList) finds
// it.
func (ws *blockedClients) reopen(ended *waitQueue) *waitQueue {
	if q := ws.queues[ended.key]; q != nil {
		return q
	}
	ws.queues[ended.key] = ended
	ws.inLine.ended--
	return ended
}

func (ws *blockedClients) join(w *blockedClient, wait *store.Wait, now time.Duration) {
	if w.waited.Age == 0 {
		w.since = now
	}
	w.wait, w.all, w.places, w.found, w.fresh = wait, ws, nil, nil, true
	w.order = ws.nextOrder(ws.placeOf(w), w.since)
	ws.enter(w)
	if len(wait.Keys) >= manyKeys {
		if w.keys == nil {
			w.keys = newKeyIndex(wait.Keys)
		}
		ws.addMany(w)
		return
	}
	w.places = make([]place, 0, len(wait.Keys))
	for _, key := range wait.Keys {
		q := ws.queue(waitKey{wait.DB, string(key), wait.Type == store.TypeFree})
		if q.tail != nil && q.tail.w == w {
			continue // the command names the key twice
		}
		w.places = append(w.places, place{w: w, queue: q, order: ws.nextOrder(w.order.place, w.since)})
		q.push(&w.places[len(w.places)-1])
	}
}

// enter adds a client to those that wait.
func (ws *blockedClients) enter(w *blockedClient) {
	ws.all[w] = struct{}{}
	if owner := w.owner(); owner != "" {
		if ws.owners[owner] == nil {
			ws.owners[owner] = map[*blockedClient]struct{}{}
		}
		ws.owners[owner][w] = struct{}{}
	}
}

// owner returns the owner for which a client waits for a lock, or "" if the client waits for something else.
func (w *blockedClient) owner() string {
	if w.wait == nil {
		return ""
	}
	return w.wait.Owner
}

// forLock reports whether a client waits for a lock, or has waited for one.
func (w *blockedClient) forLock() bool { return len(w.places) > 0 && w.places[0].queue.key.free }

// forLocks reports whether any client waits for a lock.
func (ws *blockedClients) forLocks() bool { return len(ws.owners) > 0 }

// placeBits is how many bits of a place number the clients of one term.
const placeBits = 40

// placeOf returns the place of a client that joins. A client keeps the place that an earlier leader has given it, so the order stays when
// the leader changes. If an earlier leader has got its command, but its node does not know its place, it comes before all clients that
// come in this term.
func (ws *blockedClients) placeOf(w *blockedClient) uint64 {
	switch {
	case w.waited.Place != 0:
		return w.waited.Place
	case w.waited.Age != 0 && w.since < ws.began:
		return ws.term << placeBits
	}
	return ws.nextPlace()
}

// nextPlace returns the place behind all clients.
func (ws *blockedClients) nextPlace() uint64 {
	ws.came++
	return ws.term<<placeBits | ws.came
}

func (ws *blockedClients) nextOrder(place uint64, since time.Duration) order {
	ws.last++
	return order{place, since, ws.last}
}

// leave removes a blocked client from its queues and from the lists of ws. Its places keep their order, for restore.
func (ws *blockedClients) leave(w *blockedClient) {
	for p := range w.allPlaces() {
		ws.giveUp(p)
	}
	delete(ws.all, w)
	if same := ws.owners[w.owner()]; same != nil {
		if delete(same, w); len(same) == 0 {
			delete(ws.owners, w.owner())
		}
	}
	if i, there := ws.findMany(w.order.number); there && ws.many[i] == w {
		ws.many = slices.Delete(ws.many, i, i+1)
	}
}

// allPlaces yields the places that a client has, or had before it left its queues.
func (w *blockedClient) allPlaces() iter.Seq[*place] {
	return func(yield func(*place) bool) {
		for i := range w.places {
			if !yield(&w.places[i]) {
				return
			}
		}
		for _, p := range w.found {
			if !yield(p) {
				return
			}
		}
	}
}

// giveUp removes a place from its queue, and ends the queue if that was its last place.
func (ws *blockedClients) giveUp(p *place) {
	if !p.listed {
		return
	}
	p.queue.remove(p)
	if p.queue.n == 0 {
		delete(ws.queues, p.queue.key)
		ws.inLine.ended++
	}
}

// take makes the caller the only one that may answer a blocked client. It returns false if the blocked client has been
// cancelled.
func (ws *blockedClients) take(w *blockedClient) bool {
	return w.state.CompareAndSwap(blockedWaiting, blockedTaken) || w.state.CompareAndSwap(blockedJoining, blockedTaken)
}

// answer ends the wait of a taken blocked client. The client gets the reply with the present batch.
func (ws *blockedClients) answer(w *blockedClient, reply store.Reply) {
	w.req.replies = append(w.req.replies[:0], reply)
	ws.leave(w)
	ws.served = append(ws.served, w)
	ws.answered = append(ws.answered, w.req)
}

// rollback undoes the changes by the present batch, before its requests are evaluated again.
func (ws *blockedClients) rollback() {
	for _, w := range ws.joined {
		ws.leave(w)
		w.wait, w.fresh = nil, false
		// A blocked client that was cancelled meanwhile stays cancelled.
		if !w.state.CompareAndSwap(blockedJoining, blockedAsked) {
			w.state.CompareAndSwap(blockedTaken, blockedAsked)
		}
	}
	for _, w := range ws.served {
		if w.wait == nil {
			continue // it also joined in this batch, and has left above
		}
		for p := range w.allPlaces() {
			p.queue = ws.reopen(p.queue)
			p.queue.restore(p)
		}
		ws.enter(w)
		if w.keys != nil {
			ws.addMany(w)
		}
		w.release()
	}
	ws.ready = ws.before.clone()
	ws.clear()
}

// settle ends the present batch, and confirms the clients that joined in it and were not dropped.
func (ws *blockedClients) settle() {
	for _, w := range ws.joined {
		w.confirm()
	}
	ws.before = ws.ready.clone()
	ws.inLine.tidy()
	ws.clear()
}

// unsure reports whether the present batch has evaluated new blocking commands. Only if this node still leads may the clients
// of these commands wait.
func (ws *blockedClients) unsure() bool { return len(ws.joined) > 0 }

func (ws *blockedClients) clear() {
	clear(ws.served)
	clear(ws.joined)
	clear(ws.answered)
	clear(ws.handed)
	ws.served, ws.joined, ws.answered = ws.served[:0], ws.joined[:0], ws.answered[:0]
}

// bury lists a cancelled blocked client in ws.dead: a later sweep removes it from the queues. Any goroutine may call bury.
func (ws *blockedClients) bury(w *blockedClient) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.dead = append(ws.dead, w)
	ws.buried.Store(int32(len(ws.dead)))
	if w.forLock() {
		ws.deadForLocks++
		ws.left.Store(true)
		ws.wake()
	}
}

// sweepPlaces limits, roughly, how many places one sweep removes from the queues, because all requests wait while it runs.
const sweepPlaces = 4096

// sweep removes cancelled clients from the queues, but leaves some to the next sweep if they have very many places.
func (ws *blockedClients) sweep() {
	if ws.buried.Load() == 0 {
		return
	}
	for _, w := range ws.exhume() {
		ws.leave(w)
		ws.follow(w)
	}
}

// follow lists the lock for which a client has waited, because those behind it may get the lock now: SHARED does not overtake others that
// wait, and neither does LIMIT.
func (ws *blockedClients) follow(w *blockedClient) {
	if !w.forLock() {
		return
	}
	k := w.places[0].queue.key
	ws.ready.put(ws, k)
	ws.before.put(ws, k) // this batch may be evaluated again
}

// exhume takes out of ws.dead as many clients as one sweep removes, and returns them.
func (ws *blockedClients) exhume() []*blockedClient {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	n := 0
	for places := 0; n < len(ws.dead) && places < sweepPlaces; n++ {
		places += 1 + len(ws.dead[n].places) + len(ws.dead[n].found)
	}
	first := ws.dead[:n:n]
	if ws.dead = ws.dead[n:]; len(ws.dead) == 0 {
		ws.dead = nil
	}
	for _, w := range first {
		if w.forLock() {
			ws.deadForLocks--
		}
	}
	ws.left.Store(ws.deadForLocks > 0)
	ws.buried.Store(int32(len(ws.dead)))
	return first
}

// drop cancels the clients for which the function which returns true, in order of arrival. Their nodes send the commands again.
func (ws *blockedClients) drop(which func(*blockedClient) bool) {
	for _, w := range ws.inOrder(which) {
		if w.state.CompareAndSwap(blockedWaiting, blockedCancelled) || w.state.CompareAndSwap(blockedJoining, blockedCancelled) {
			ws.bury(w)
			w.req.complete(errNotExecuted)
		}
	}
	ws.sweep()
}

func everyBlockedClient(*blockedClient) bool { return true }

// inOrder returns the blocked clients for which the function which returns true, in order of arrival.
func (ws *blockedClients) inOrder(which func(*blockedClient) bool) []*blockedClient {
	var list []*blockedClient
	for w := range ws.all {
		if which(w) {
			list = append(list, w)
		}
	}
	slices.SortFunc(list, func(a, b *blockedClient) int { return a.order.compare(b.order) })
	return list
}

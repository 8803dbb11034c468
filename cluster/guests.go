package cluster

import (
	"container/heap"
	"sync"
)

// Bytes that a blocking command takes on the leader while it waits, without the bytes of its keys (TestBlockedSize measures
// them).
const (
	blockedCost = 1 << 10 // the command itself, its request, and the functions that answer it
	placeCost   = 256     // for each key: an argument, a place, a queue, and the queue's entry in the map of queues
)

// BlockedSize returns about how many bytes a blocking command takes on the leader while it waits.
func BlockedSize(args [][]byte) int64 {
	n := int64(blockedCost)
	for _, arg := range args {
		n += placeCost + 2*int64(len(arg)) // as the argument, and as the key
	}
	return n
}

// guests are the blocking commands of other nodes' clients on the leader. Beyond limit, the largest are refused, so that they
// drive out no small ones.
type guests struct {
	limit int64 // bytes; 0: no limit

	mu   sync.Mutex
	last uint64
	list guestHeap
	size int64 // bytes of the commands in list
	all  int64 // size, plus the bytes of refused commands that have not been answered yet
}

// arrive adds w. If at is true, the caller queues w, and calls g.left when w has been answered. The caller refuses the clients in
// refused.
func (g *guests) arrive(w *blockedClient) (refused []*blockedClient, at bool) {
	w.size = BlockedSize(w.req.calls[0].Args)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.limit > 0 && g.all+w.size > 2*g.limit {
		w.size = 0
		return nil, false
	}
	g.last++
	w.number = g.last
	g.all += w.size
	g.size += w.size
	heap.Push(&g.list, w)
	for g.limit > 0 && g.size > g.limit {
		largest := heap.Pop(&g.list).(*blockedClient)
		g.size -= largest.size
		refused = append(refused, largest)
	}
	return refused, true
}

// left removes a blocked client that has been answered.
func (g *guests) left(w *blockedClient) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all -= w.size
	if w.index >= 0 {
		heap.Remove(&g.list, w.index)
		g.size -= w.size
	}
}

// guestHeap orders blocked clients by size, the largest first. Of equally large ones, the latest is first.
type guestHeap []*blockedClient

func (h guestHeap) Len() int { return len(h) }
func (h guestHeap) Less(i, j int) bool {
	if h[i].size != h[j].size {
		return h[i].size > h[j].size
	}
	return h[i].number > h[j].number
}

func (h guestHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *guestHeap) Push(x any) {
	w := x.(*blockedClient)
	w.index = len(*h)
	*h = append(*h, w)
}

func (h *guestHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	w.index = -1
	return w
}

package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/store"
)

// A reply of many elements takes several times as much while it is in hand, between its evaluation and its encoding for
// the client, as on the wire; at a follower it stays as the leader has sent it until it is encoded. Nobody who does not
// read makes that last, but many clients at once would have as much in hand as each of them may ask for. So whoever brings
// such replies about waits until those before them have been encoded: the sequencer before it runs further long reads, and
// a follower before it reads what is large of what its leader sends.

const (
	// repliesInHand is how many bytes of large replies a node has in hand before it waits.
	repliesInHand = 8 << 20
	// beyondInHand is how many bytes a leader has in hand before every request waits, and not long reads alone.
	beyondInHand = 3 * repliesInHand
	// inHandPatience bounds a wait. Sessions encode within that time, unless the processors are overloaded.
	inHandPatience = time.Second
	// countReplies is up to where it is counted what replies take.
	countReplies = 64 << 20
)

// inHand counts the large replies that a node has in hand.
type inHand struct {
	bytes atomic.Int64

	mu    sync.Mutex
	freed chan struct{} // closed when there is room again; nil: nobody waits
}

// RepliesInHand is how many bytes of large replies are in hand.
func (n *Node) RepliesInHand() int64 { return n.inHand.bytes.Load() }

func (h *inHand) isFull() bool { return h.bytes.Load() > repliesInHand }

func (h *inHand) isBeyond() bool { return h.bytes.Load() > beyondInHand }

func (h *inHand) add(n int64) {
	if h.bytes.Add(n); n > 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.freed != nil && !h.isFull() {
		close(h.freed)
		h.freed = nil
	}
}

// await waits until there is room again, where many more are in hand than may be.
func (h *inHand) await(ctx context.Context) {
	if h.isBeyond() {
		h.take(ctx, nil, 0)
	}
}

// awaitRoom waits until there is room.
func (h *inHand) awaitRoom(ctx context.Context) {
	if h.isFull() {
		h.take(ctx, nil, 0)
	}
}

// take waits until there is room, and takes some for a client.
func (h *inHand) take(ctx context.Context, c *Client, bytes int) {
	patience := time.NewTimer(inHandPatience)
	defer patience.Stop()
	for late := false; ; {
		h.mu.Lock()
		if late || !h.isFull() {
			c.holds(bytes)
			h.mu.Unlock()
			return
		}
		if h.freed == nil {
			h.freed = make(chan struct{})
		}
		freed := h.freed
		h.mu.Unlock()
		select {
		case <-freed:
		case <-patience.C:
			late = true
		case <-ctx.Done():
			late = true
		}
	}
}

// holds says how many bytes of replies to the client are in hand now. Few are not counted.
func (c *Client) holds(bytes int) {
	if c == nil || c.node == nil {
		return
	}
	if bytes <= smallReply {
		if c.inHand.Load() == 0 {
			return
		}
		bytes = 0
	}
	if was := c.inHand.Swap(int64(bytes)); was != int64(bytes) {
		c.node.add(int64(bytes) - was)
	}
}

// Encoded says that the replies to the client's last submission are in hand no more: they have been encoded, or
// count among what the client itself holds.
func (c *Client) Encoded() { c.holds(0) }

// extent is what replies take while they are in hand.
func extent(replies []store.Reply) int { return store.Extent(replies, countReplies) }

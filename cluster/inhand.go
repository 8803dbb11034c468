package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/store"
)

// A large reply is in hand from its evaluation until it is encoded for the client. Meanwhile it takes
// several times as much memory as on the wire; on a follower it stays as the leader has sent it until it
// is encoded. A client that does not read cannot make that last, but many clients at once would have as
// much in hand as each of them may ask for. So a node that makes or receives such replies waits until
// earlier ones have been encoded: the sequencer before it runs more long reads, and a follower before it
// reads a large result from its leader.

const (
	// repliesInHand is how many bytes of large replies a node has in hand before it waits.
	repliesInHand = 8 << 20
	// beyondInHand is how many bytes a leader has in hand before all requests wait, not only long reads.
	beyondInHand = 3 * repliesInHand
	// inHandPatience bounds a wait. Sessions encode within that time, unless the processors are overloaded.
	inHandPatience = time.Second
	// countReplies is the size beyond which the bytes of replies are no longer counted.
	countReplies = 64 << 20
)

// inHand counts the large replies that a node has in hand.
type inHand struct {
	bytes atomic.Int64

	mu    sync.Mutex
	freed chan struct{} // closed when there is room again; nil: nobody waits
}

// RepliesInHand returns how many bytes of large replies are in hand.
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

// await waits for room if far too much is in hand (isBeyond).
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

// take waits until there is room, and takes it for a client. It waits no longer than inHandPatience.
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

// holds sets how many bytes of replies to the client are in hand now. Small replies are not counted.
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

// Encoded says that the replies to the client's last submission are in hand no more: they have been
// encoded, or the session counts them as memory of the client.
func (c *Client) Encoded() { c.holds(0) }

// extent returns how many bytes replies take while they are in hand.
func extent(replies []store.Reply) int { return store.Extent(replies, countReplies) }

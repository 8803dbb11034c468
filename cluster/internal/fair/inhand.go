package fair

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// A large reply is in hand from its evaluation until it is encoded for the client, and takes a leader several times its length. So that
// not too many are in hand, the sequencer waits before it runs more long reads, and a follower before it reads a large result.

const (
	// RepliesInHand is how many bytes of large replies a node has in hand before it waits.
	RepliesInHand = 8 << 20
	// BeyondInHand is how many bytes a leader has in hand before all requests wait, not only long reads.
	BeyondInHand = 3 * RepliesInHand
	// InHandPatience bounds a wait. Sessions encode replies within that time, unless the processors are overloaded.
	InHandPatience = time.Second
	// SmallReply is the size in bytes up to which InHand does not count the replies to a request.
	SmallReply = 8 << 10
	// countReplies is the size in bytes at which Extent stops counting.
	countReplies = 64 << 20
)

// InHand counts the large replies that a node has in hand.
type InHand struct {
	bytes atomic.Int64

	mu    sync.Mutex
	freed chan struct{} // closed when IsFull has become false; nil: nobody waits
}

// Bytes returns how many bytes of large replies are in hand.
func (h *InHand) Bytes() int64 { return h.bytes.Load() }

// IsFull reports whether long reads have to wait.
func (h *InHand) IsFull() bool { return h.bytes.Load() > RepliesInHand }

// IsBeyond reports whether all requests have to wait.
func (h *InHand) IsBeyond() bool { return h.bytes.Load() > BeyondInHand }

func (h *InHand) add(n int64) {
	if h.bytes.Add(n); n > 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.freed != nil && !h.IsFull() {
		close(h.freed)
		h.freed = nil
	}
}

// AwaitRoom waits while IsFull is true, for no longer than InHandPatience, or until ctx ends.
func (h *InHand) AwaitRoom(ctx context.Context) {
	if h.IsFull() {
		h.take(ctx, nil, 0)
	}
}

// take waits as AwaitRoom does, and then counts that many bytes of replies to c as in hand.
func (h *InHand) take(ctx context.Context, c *Client, bytes int) {
	patience := time.NewTimer(InHandPatience)
	defer patience.Stop()
	for late := false; ; {
		h.mu.Lock()
		if late || !h.IsFull() {
			h.bytes.Add(c.hold(bytes))
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

// Holds sets how many bytes of replies to the client are in hand now. Up to SmallReply, they count as none.
func (c *Client) Holds(bytes int) {
	if more := c.hold(bytes); more != 0 {
		c.node.add(more)
	}
}

// hold sets c.inHand as Holds does, and returns by how much c.inHand has grown. The caller must add that number to InHand.bytes.
func (c *Client) hold(bytes int) (more int64) {
	if c == nil || c.node == nil {
		return 0
	}
	if bytes <= SmallReply {
		if c.inHand.Load() == 0 {
			return 0
		}
		bytes = 0
	}
	return int64(bytes) - c.inHand.Swap(int64(bytes))
}

// Encoded notes that no reply to the client is in hand any more: encoded, counted as the client's memory, or not wanted.
func (c *Client) Encoded() { c.Holds(0) }

// Extent returns about how many bytes of memory replies take while they are in hand.
func Extent(replies []store.Reply) int { return store.Extent(replies, countReplies) }

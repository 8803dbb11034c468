package fair

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"
)

// Client is what a node remembers of the connection of a client.
type Client struct {
	addr     netip.Addr
	node     *InHand                            // the large replies that the node has in hand
	inHand   atomic.Int64                       // bytes of large replies to this client that are in hand
	heavy    atomic.Int64                       // monotonic time until which it counts as heavy; 0: it does not
	own      atomic.Bool                        // it counts as heavy because of its own work, not only because of its address
	owes     atomic.Int64                       // cost of the heavy work to which HoldReplies has to delay the replies; 0: none
	since    atomic.Int64                       // monotonic time of its latest request, if it counted as heavy then; else 0
	gone     atomic.Bool                        // the server has cut it off
	admitted atomic.Bool                        // GiveWay has admitted large arguments of its session, and the session has not kept or answered them yet
	leave    atomic.Pointer[context.CancelFunc] // Gone calls it; nil: nothing waits for the client to be cut off
	light    atomic.Uint64                      // upper half: Gate.era at its last light request; lower half: number of its light requests in that era
}

// NewClient returns the Client for a connection from an address.
func (g *Gate) NewClient(addr netip.Addr) *Client {
	c := &Client{addr: addr, node: &g.InHand}
	c.heavy.Store(int64(g.known(addr, g.clock.Monotonic())))
	return c
}

// Gone notes that the server has cut the client off. Requests of a client that has merely closed its connection are still run.
func (c *Client) Gone() {
	if c == nil {
		return
	}
	c.gone.Store(true)
	if leave := c.leave.Load(); leave != nil {
		(*leave)()
	}
}

// OwesNothing makes HoldReplies let the reply to the client's last request pass at once, though the request was heavy work.
func (c *Client) OwesNothing() {
	if c != nil {
		c.owes.Store(0)
	}
}

// IsGone reports whether the client has been cut off. c is nil for work without a client.
func (c *Client) IsGone() bool { return c != nil && c.gone.Load() }

// until returns a context that ends with ctx, or when the client is cut off. c is nil for work without a client.
func (c *Client) until(ctx context.Context) (_ context.Context, end context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if c == nil {
		return ctx, cancel
	}
	c.leave.Store(&cancel)
	if c.gone.Load() {
		cancel()
	}
	return ctx, func() {
		c.leave.Store(nil)
		cancel()
	}
}

// AwaitGone returns a channel that gets a value when the client is cut off. The caller must call end afterwards.
func (c *Client) AwaitGone() (gone <-chan struct{}, end func()) {
	if c == nil {
		return nil, func() {}
	}
	left, outer := make(chan struct{}, 1), c.leave.Load()
	leave := context.CancelFunc(func() {
		select {
		case left <- struct{}{}:
		default:
		}
		if outer != nil {
			(*outer)()
		}
	})
	c.leave.Store(&leave)
	if c.gone.Load() {
		leave()
	}
	return left, func() { c.leave.Store(outer) }
}

// lightSince returns c.light if it is of this era (Gate.era), else the value for no light request in this era.
func (c *Client) lightSince(era uint32) uint64 {
	if n := c.light.Load(); uint32(n>>32) == era {
		return n
	}
	return uint64(era) << 32
}

// IsHeavy reports whether the client counts as heavy now. If it does, and c.since is 0, IsHeavy sets c.since to the present time.
func (g *Gate) IsHeavy(c *Client) bool {
	until := c.heavy.Load()
	if until == 0 {
		return false
	}
	if now := g.clock.Monotonic(); now < time.Duration(until) {
		c.since.CompareAndSwap(0, int64(now))
		return true
	}
	c.heavy.CompareAndSwap(until, 0)
	return false
}

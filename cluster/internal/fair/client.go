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
	node     *InHand                            // large replies that the node has in hand …
	inHand   atomic.Int64                       // … and the bytes of this client among them
	heavy    atomic.Int64                       // monotonic time until which it counts as heavy; 0: it does not
	own      atomic.Bool                        // it counts as heavy because of its own work, not only because of its address
	owes     atomic.Int64                       // cost of the work whose replies have to be held; 0: none
	since    atomic.Int64                       // monotonic time of its request, if it counted as heavy then; else 0
	gone     atomic.Bool                        // the server has cut it off
	admitted atomic.Bool                        // GiveWay has admitted large arguments of its session, which has not called leave yet
	leave    atomic.Pointer[context.CancelFunc] // called when it is cut off; nil: nothing waits for that
	light    atomic.Uint64                      // upper half: the era of its last light request; lower half: number of its light requests in that era
}

// NewClient returns the Client for a connection from an address.
func (g *Gate) NewClient(addr netip.Addr) *Client {
	c := &Client{addr: addr, node: &g.InHand}
	c.heavy.Store(int64(g.known(addr, g.clock.Monotonic())))
	return c
}

// Gone says that the server has cut the client off. A request of the client that still waits for its turn is not run
// then. If only the connection is lost, what was sent is run.
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

// AwaitGone returns a channel that has a value when the client is cut off. end must be called when nobody waits for that any more. c
// is nil for work without a client.
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

// lightSince returns the value of Client.light for an era, with no requests if the last one came in an earlier era.
func (c *Client) lightSince(era uint32) uint64 {
	if n := c.light.Load(); uint32(n>>32) == era {
		return n
	}
	return uint64(era) << 32
}

// IsHeavy reports whether the client counts as heavy now.
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

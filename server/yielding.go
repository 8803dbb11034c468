package server

import (
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/cluster/brake"
)

// Each connection leaves garbage, and strangers decide how many there are. If memory is scarce, everything waits for the collector, even
// the evaluation of commands (brake.Bring). So strangers and newcomers wait first, while strangersMargin is left for the others, but for
// yieldMost at most. They wait only when they have left strangersGarbage since the last wait.
//
// Senders of large commands (incoming.yields) and clients that begin many subscriptions (eachName) wait in the same way.
const (
	strangersMargin  = 16 << 20
	strangersGarbage = 4 << 20
	newcomerGarbage  = 8 << 10 // bytes of garbage that a connection leaves, without its input
	yieldMost        = 2 * time.Second
	yieldLook        = 5 * time.Millisecond
)

// garbage counts the bytes of garbage that one kind of clients leaves.
type garbage struct {
	bytes  atomic.Int64
	scarce func() bool // memoryIsScarce, except in tests
}

// memoryIsScarce reports whether less than strangersMargin is left, and then starts a cycle of the collector. It returns false if memory
// has hardly grown since the last cycle.
func memoryIsScarce() bool { return brake.Short(strangersMargin) }

// yielding is the state of one goroutine that works for strangers, newcomers, or senders of large commands.
type yielding struct {
	since time.Time // when the goroutine began to wait; zero: it does not wait
}

// must reports whether the work has to wait now.
func (y *yielding) must(g *garbage, now time.Time) bool {
	if g.bytes.Load() >= strangersGarbage {
		if g.scarce() {
			if y.since.IsZero() {
				y.since = now
			}
			if now.Sub(y.since) < yieldMost {
				return true
			}
		}
		g.bytes.Store(0)
	}
	y.since = time.Time{}
	return false
}

// yield waits as long as must says.
func (srv *Server) yield(y *yielding, g *garbage) {
	for y.must(g, srv.cfg.Clock()) {
		select {
		case <-time.After(yieldLook):
		case <-srv.stop:
			return
		}
	}
}

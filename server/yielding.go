package server

import (
	"sync/atomic"
	"time"

	"lockstep/cluster/brake"
)

// Strangers decide how many connections there are, and each connection leaves garbage. Where the data leaves the collector little
// room, a thousand connections a second fill that room faster than a cycle of the collector ends, and then everybody would wait for
// the collector: evaluation, too (brake.Bring). So strangers and newcomers wait first, while there is still room for the others
// (strangersMargin). They wait for a cycle of the collector, but not longer than yieldMost: others may fill the memory, too. Only
// many of them wait: they have left strangersGarbage since they last waited, or since memory was last found ample.
//
// Senders of large commands wait in the same way (incoming.yields): a megabyte of short arguments takes several megabytes.
// So do clients that begin many subscriptions by one command (eachName), which take more than their names.
const (
	strangersMargin  = 16 << 20
	strangersGarbage = 4 << 20
	newcomerGarbage  = 8 << 10 // what a connection takes, without its input
	yieldMost        = 2 * time.Second
	yieldLook        = 5 * time.Millisecond
)

// garbage counts the garbage that clients of a kind leave.
type garbage struct {
	bytes  atomic.Int64
	scarce func() bool // memoryIsScarce, except in tests
}

// memoryIsScarce reports whether the memory in use leaves less than strangersMargin below its limit, and a cycle of the collector
// may change that. It starts the cycle.
func memoryIsScarce() bool { return brake.Short(strangersMargin) }

// yielding is for one goroutine that works for such clients.
type yielding struct {
	since time.Time // when it began to wait; zero: it does not wait
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

package server

import (
	"sync/atomic"
	"time"

	"lockstep/cluster/brake"
)

// Strangers decide how many connections there are, and each connection leaves garbage. If the data leaves the collector
// little room, a thousand connections a second fill that room before a cycle of the collector ends. Then everything would
// wait for the collector, even the evaluation of commands (brake.Bring). So strangers and newcomers wait first, while there
// is still room for the others (strangersMargin). They wait for a cycle of the collector, but no longer than yieldMost,
// because others may fill the memory, too. They wait only if they are many: if they have left strangersGarbage since they
// last waited, or since memory was last found ample.
//
// Senders of large commands wait in the same way (incoming.yields): a megabyte of short arguments takes several megabytes. Clients
// that begin many subscriptions by one command wait, too (eachName): a subscription takes more memory than its name.
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

// memoryIsScarce reports whether less than strangersMargin is left below the memory limit. If so, it starts a cycle of the
// collector. But if the memory in use has hardly grown since the last cycle, a new one would change nothing, and memoryIsScarce
// returns false.
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

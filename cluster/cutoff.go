package cluster

import (
	"sync"
	"sync/atomic"
)

// cutOffCalls has the calls of a peer whose clients that node has cut off, while the calls are in hand here.
type cutOffCalls struct {
	any   atomic.Bool
	mu    sync.Mutex
	calls map[uint64]struct{}
}

// maxCutOff bounds the calls. A node names a call that has just been answered now and then, which is never taken out.
const maxCutOff = 1 << 16

func (c *cutOffCalls) note(call uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil || len(c.calls) >= maxCutOff {
		c.calls = map[uint64]struct{}{}
	}
	c.calls[call] = struct{}{}
	c.any.Store(true)
}

// forget takes out a call that is answered.
func (c *cutOffCalls) forget(call uint64) {
	if !c.any.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, call)
	c.any.Store(len(c.calls) > 0)
}

func (c *cutOffCalls) has(call uint64) bool {
	if !c.any.Load() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, has := c.calls[call]
	return has
}

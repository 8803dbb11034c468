package cluster

import (
	"sync"
	"sync/atomic"
)

// cutOffCalls holds those calls of a peer whose clients the peer has cut off, until this node has answered them.
type cutOffCalls struct {
	any   atomic.Bool
	mu    sync.Mutex
	calls map[uint64]struct{}
}

// maxCutOff bounds the calls in cutOffCalls, because a call that was just answered would never be removed.
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

// forget removes a call that is answered.
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

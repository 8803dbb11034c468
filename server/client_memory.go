package server

import (
	"strconv"
	"strings"
	"sync/atomic"

	"lockstep/store"
)

// What all clients together make this node hold (maxmemory-clients): commands that have
// arrived in part or wait, what they have queued and watch, and what is on its way to
// them. When that is too much, those who hold most are cut off, as in Redis.
//
// Only what is large is counted as it changes: small buffers cost a command nothing, and
// are found by looking at every client once a second.

// clientMemory counts what clients hold.
type clientMemory struct {
	large   atomic.Int64  // bytes in large buffers
	limit   *atomic.Int64 // 0: none
	cutting atomic.Bool   // somebody looks for those who hold most
	cut     atomic.Int64  // clients that were cut off
	relieve func()
}

// changed tells of a large buffer that has grown, or shrunk.
func (m *clientMemory) changed(by int64) {
	total, limit := m.large.Add(by), m.limit.Load()
	if by > 0 && limit > 0 && total > limit && m.cutting.CompareAndSwap(false, true) {
		go func() {
			defer m.cutting.Store(false)
			m.relieve()
		}()
	}
}

// memory is what a client holds, beside its buffers of fixed size.
func (s *session) memory() int64 {
	return int64(s.out.size()) + s.conn.held.Load() + s.kept.Load()
}

// evictClients cuts off clients until the others hold less than the limit.
func (srv *Server) evictClients() {
	limit := srv.clientMemory.limit.Load()
	if limit == 0 {
		return
	}
	list, total := srv.each(), int64(0)
	sizes := make(map[*session]int64, len(list))
	for _, s := range list {
		sizes[s] = s.memory()
		total += sizes[s]
	}
	for total > limit {
		var most *session
		for _, s := range list {
			if !s.noEvict.Load() && sizes[s] > 0 && (most == nil || sizes[s] > sizes[most]) {
				most = s
			}
		}
		if most == nil {
			return
		}
		srv.clientMemory.cut.Add(1)
		srv.cfg.Log.Warn("a client was cut off: all clients together hold more than maxmemory-clients", "addr", most.addr, "bytes", sizes[most])
		most.out.abort()
		total -= sizes[most]
		sizes[most] = 0
	}
}

// ClientMemory returns what clients hold in large buffers, and how many were cut off for it.
func (srv *Server) ClientMemory() (bytes, cutOff int64) {
	return srv.clientMemory.large.Load(), srv.clientMemory.cut.Load()
}

// parseClientLimit reads maxmemory-clients: an amount of memory, or a share of maxmemory.
func parseClientLimit(value string, maxMemory int64) (limit int64, ok bool) {
	if share, is := strings.CutSuffix(value, "%"); is {
		n, err := strconv.Atoi(share)
		return maxMemory / 100 * int64(n), err == nil && n >= 0 && n <= 100
	}
	return store.ParseMemory(value)
}

package server

import (
	"strconv"
	"strings"
	"sync/atomic"

	"lockstep/store"
)

// What all clients together make this node hold (maxmemory-clients): commands that have
// arrived in part or wait, what they have queued, watch, listen to and call themselves,
// and what is on its way to them. When that is too much, those who hold most are cut off, as in Redis.
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

// What an entry takes in the tables that a client grows, apart from the bytes of its name.
const (
	subscriptionCost = 320 // in the session's own and in the hub's, with a set of subscribers
	prefixCost       = 320 // of CLIENT TRACKING, likewise
	watchCost        = 192 // a watched key: its place in the list and in the set
	sleeperCost      = 128 // a key of a command that blocks, where the leader looks for it
)

// holdings are what a client holds in tables and lists, of which the sum of all clients
// is told when it has grown by much.
type holdings struct {
	bytes atomic.Int64
	told  atomic.Int64 // goneClient: nothing more is told
}

// goneClient is what nobody has been told.
const goneClient = -1 << 62

// holds counts what the client holds now, or no more. Any goroutine may call it.
func (s *session) holds(by int64) {
	now, told := s.held.bytes.Add(by), s.held.told.Load()
	if told == goneClient {
		return
	}
	if d := now - told; (d > keepOutput || -d > keepOutput || now == 0 && d != 0) && s.held.told.CompareAndSwap(told, now) {
		s.srv.clientMemory.changed(d)
	}
}

// leavesMemory takes back what was told of a client that has gone.
func (s *session) leavesMemory() {
	if told := s.held.told.Swap(goneClient); told != goneClient {
		s.srv.clientMemory.changed(-told)
	}
}

// keeps counts what the client has queued and watches.
func (s *session) keeps(n int) {
	s.holds(int64(n - s.kept))
	s.kept = n
}

// memory is what a client holds, beside its buffers of fixed size.
func (s *session) memory() int64 {
	n := int64(s.out.size()) + s.conn.held.Load() + s.held.bytes.Load()
	if sealed, by := s.conn.Conn.(sealer); by {
		n += int64(sealed.waiting())
	}
	return n
}

// sealer is a connection that keeps ciphertext until its socket has room.
type sealer interface{ waiting() int }

// evictClients cuts off clients until the others hold less than the limit.
func (srv *Server) evictClients() {
	limit := srv.clientMemory.limit.Load()
	if limit == 0 {
		return
	}
	list, total := srv.each(), int64(0)
	sizes := make(map[*session]int64, len(list))
	for _, s := range list {
		if !s.out.isOver() { // else what it holds is about to go
			sizes[s] = s.memory()
			total += sizes[s]
		}
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

package server

import (
	"cmp"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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
	large atomic.Int64  // bytes in large buffers
	limit *atomic.Int64 // 0: none

	arriving  atomic.Int64 // the part of it that is of large commands
	strangers atomic.Int64 // bytes in the buffers of clients that have not authenticated

	cutting atomic.Bool  // somebody looks for those who hold most
	cut     atomic.Int64 // clients that were cut off
	relieve func()
	evictions
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

// beyond reports whether large commands alone take so much more than clients may hold that
// those who send more of them are cut off there and then, before they take more: to find those who hold most
// takes time, in which many clients fill the memory.
func (m *clientMemory) beyond() bool {
	return m.noRoomToGrow(0)
}

// noRoomToGrow reports whether large commands would take so much with n bytes more.
func (m *clientMemory) noRoomToGrow(n int64) bool {
	limit := m.limit.Load()
	return limit > 0 && m.arriving.Load()+n > limit+limit/8
}

// beyondWith reports whether all that is large would take so much with n bytes more.
func (m *clientMemory) beyondWith(n int64) bool {
	limit := m.limit.Load()
	return limit > 0 && m.large.Load()+n > limit+limit/8
}

// strangersShare is which part of the limit the buffers of all clients may take that have
// not authenticated.
const strangersShare = 8

// noRoomFor reports whether those clients hold too much.
func (m *clientMemory) noRoomFor(strangers int64) bool {
	limit := m.limit.Load()
	return limit > 0 && strangers > limit/strangersShare
}

// refused notes that one of them is cut off for it.
func (m *clientMemory) refused(addr net.Addr, n int64) {
	m.cut.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count++; n > m.most.n {
		m.most = holder{addr: addr.String(), n: n}
	}
}

// What an entry takes in the tables that a client grows, apart from the bytes of its name.
const (
	subscriptionCost = 320 // in the session's own and in the hub's, with a set of subscribers
	prefixCost       = 320 // of CLIENT TRACKING, likewise
	watchCost        = 192 // a watched key: its place in the list and in the set
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

// evictions have clients cut off by one at a time, and tell of them.
type evictions struct {
	mu    sync.Mutex
	count int64 // since the last log line
	most  holder
	said  time.Time
}

// holder is a client and what it holds.
type holder struct {
	s      *session
	addr   string
	n      int64
	exempt bool // CLIENT NO-EVICT
}

// evictClients cuts off clients until the others hold less than the limit: those who hold
// most first. Those with NO-EVICT stay, as in Redis, as long as they hold no more than half of
// it together: the node has to live, and others need room.
func (srv *Server) evictClients() {
	e := &srv.clientMemory.evictions
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.say(srv.cfg.Log, srv.cfg.Clock())
	limit := srv.clientMemory.limit.Load()
	if limit == 0 {
		return
	}
	total, exempt, holders := srv.holders()
	if total <= limit {
		return
	}
	slices.SortStableFunc(holders, func(a, b holder) int { return cmp.Compare(b.n, a.n) })
	for _, h := range holders {
		if total <= limit || h.n == 0 {
			return
		}
		if h.exempt {
			if exempt <= limit/2 {
				continue
			}
			exempt -= h.n
		}
		srv.clientMemory.cut.Add(1)
		if e.count++; h.n > e.most.n {
			e.most = holder{addr: h.addr, n: h.n}
		}
		h.s.out.abort()
		total -= h.n
	}
}

// holders are the clients with what each holds, and all of them, and all that are exempt.
func (srv *Server) holders() (total, exempt int64, holders []holder) {
	for _, s := range srv.each() {
		if s.out.isOver() {
			continue // what it holds is about to go
		}
		h := holder{s, s.addr, s.memory(), s.noEvict.Load()}
		holders = append(holders, h)
		total += h.n
		if h.exempt {
			exempt += h.n
		}
	}
	return total, exempt, holders
}

// say writes the log line that is due. Clients decide how many are cut off.
func (e *evictions) say(log *slog.Logger, now time.Time) {
	if e.count == 0 || now.Sub(e.said) < logSilence {
		return
	}
	log.Warn("clients were cut off: all clients together held more than maxmemory-clients", "count", e.count, "largest", e.most.addr, "bytes", e.most.n)
	e.count, e.most, e.said = 0, holder{}, now
}

// ClientMemory returns what clients hold, of those that hold more than keepOutput, and how many were cut off for it.
func (srv *Server) ClientMemory() (bytes, cutOff int64) {
	return srv.clientMemory.large.Load(), srv.clientMemory.cut.Load()
}

// TrackedKeys returns how many keys are remembered for CLIENT TRACKING, and what they take.
func (srv *Server) TrackedKeys() (keys int, bytes int64) {
	t := srv.hub.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.keys), t.size
}

// parseClientLimit reads maxmemory-clients: an amount of memory, or a share of maxmemory.
func parseClientLimit(value string, maxMemory int64) (limit int64, ok bool) {
	if share, is := strings.CutSuffix(value, "%"); is {
		n, err := strconv.Atoi(share)
		return maxMemory / 100 * int64(n), err == nil && n >= 0 && n <= 100
	}
	return store.ParseMemory(value)
}

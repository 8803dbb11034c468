package server

import (
	"cmp"
	"iter"
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

// This file counts the memory that all clients together use on this node (maxmemory-clients):
// incomplete and waiting commands, queued commands, watched keys, subscriptions, client names, and
// pending output. When the sum is too large, the clients that hold most are cut off, as in Redis.
//
// The server counts only large buffers as they change. It counts small buffers when it looks at every
// client once a second, so that they cost a command nothing.

// clientMemory counts the memory that clients hold.
type clientMemory struct {
	large atomic.Int64  // bytes in large buffers
	limit *atomic.Int64 // 0: no limit

	arriving  atomic.Int64 // the part of large for incoming commands
	strangers atomic.Int64 // bytes in the buffers of clients that have not authenticated
	exempt    atomic.Int64 // about how much clients with CLIENT NO-EVICT hold; holders corrects it

	cutting atomic.Bool  // a goroutine looks for the clients that hold most
	cut     atomic.Int64 // clients that were cut off for memory, or for too many commands before AUTH
	relieve func()
	evictions

	turns atomic.Uint64 // how many parts of large commands loops have read (incoming.nextPart)
}

// userMemory counts the memory that the clients of one user hold.
type userMemory struct {
	complete atomic.Int64  // bytes of large commands that have arrived
	turn     atomic.Uint64 // the value of clientMemory.turns at this user's latest turn
}

// crowded reports whether the large commands of a user that have arrived exceed a quarter of the limit: then the node should read
// no more of them.
func (m *clientMemory) crowded(u *userMemory) bool {
	limit := m.limit.Load()
	return limit > 0 && u.complete.Load() > limit/4
}

// changed adds the growth of a large buffer; by is negative when the buffer shrinks.
func (m *clientMemory) changed(by int64) {
	total, limit := m.large.Add(by), m.limit.Load()
	if by > 0 && limit > 0 && total > limit && m.cutting.CompareAndSwap(false, true) {
		go func() {
			defer m.cutting.Store(false)
			m.relieve()
		}()
	}
}

// beyond reports whether large incoming commands alone exceed the limit by more than an eighth. Then the server
// cuts off their senders at once: finding the clients that hold most takes time, and many clients could fill
// the memory meanwhile.
func (m *clientMemory) beyond() bool {
	return m.noRoomToGrow(0)
}

// noRoomToGrow is beyond with n more bytes of large commands.
func (m *clientMemory) noRoomToGrow(n int64) bool {
	limit := m.limit.Load()
	return limit > 0 && m.arriving.Load()+n > limit+limit/8
}

// beyondWith reports whether all large buffers with n more bytes exceed the limit by more than an eighth.
func (m *clientMemory) beyondWith(n int64) bool {
	limit := m.limit.Load()
	return limit > 0 && m.large.Load()+n > limit+limit/8
}

// sparesWith reports whether clients with CLIENT NO-EVICT are spared even if they hold n more bytes.
func (m *clientMemory) sparesWith(n int64) bool { return m.exempt.Load()+n <= m.limit.Load()/2 }

// All clients that have not authenticated share 1/strangersShare of the limit for their buffers.
const strangersShare = 8

// noRoomFor reports whether the buffers of unauthenticated clients are too large.
func (m *clientMemory) noRoomFor(strangers int64) bool {
	limit := m.limit.Load()
	return limit > 0 && strangers > limit/strangersShare
}

// refused counts a client that is cut off because of n bytes.
func (m *clientMemory) refused(addr net.Addr, n int64) {
	m.cut.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count++; n > m.most.n {
		m.most = holder{addr: addr.String(), n: n}
	}
}

// These are the costs of one entry in tables that a client grows, without the bytes of its name.
const (
	subscriptionCost = 320 // in the session's table and in the hub's, with a set of subscribers
	prefixCost       = 320 // a prefix of CLIENT TRACKING, in the same two kinds of tables
	watchCost        = 192 // a watched key: its entries in the list and in the set
)

// holdings is the memory that a client holds in tables and lists. The session adds a change to the sum of
// all clients (clientMemory.large) when the change exceeds keepOutput, or the client holds nothing any more.
type holdings struct {
	bytes atomic.Int64
	told  atomic.Int64 // the last reported value; goneClient: no more reports
}

// goneClient is a value that no report can have.
const goneClient = -1 << 62

// holds adds by (bytes, perhaps negative) to what the client holds. Any goroutine may call it.
func (s *session) holds(by int64) {
	now, told := s.held.bytes.Add(by), s.held.told.Load()
	if told == goneClient {
		return
	}
	if d := now - told; (d > keepOutput || -d > keepOutput || now == 0 && d != 0) && s.held.told.CompareAndSwap(told, now) {
		s.exempts(d)
		s.srv.clientMemory.changed(d)
	}
}

// tellsExactly reports to the byte what the client holds. The small changes that holds does not report may add up, over many
// clients, to much memory.
func (s *session) tellsExactly() {
	now, told := s.held.bytes.Load(), s.held.told.Load()
	if now != told && told != goneClient && s.held.told.CompareAndSwap(told, now) {
		s.srv.clientMemory.changed(now - told)
	}
}

// leavesMemory subtracts the reported memory of a client that has left from the sum.
func (s *session) leavesMemory() {
	if told := s.held.told.Swap(goneClient); told != goneClient {
		s.srv.clientMemory.changed(-told)
	}
}

// keeps sets the memory of the client's queued commands and watched keys.
func (s *session) keeps(n int) {
	s.holds(int64(n - s.kept))
	s.kept = n
}

// memory returns what a client holds, without its fixed-size buffers.
func (s *session) memory() int64 {
	n := int64(s.out.memoryHeld()) + s.conn.held.Load() + s.held.bytes.Load()
	if sealed, by := s.conn.Conn.(sealer); by {
		n += int64(sealed.waiting())
	}
	return n
}

// sealer is a connection that keeps ciphertext until its socket has room.
type sealer interface{ waiting() int }

// evictions lets one goroutine at a time cut clients off, and logs the evictions.
type evictions struct {
	mu    sync.Mutex
	count int64 // since the last log line
	most  holder
	said  time.Time
}

// holder is a client and the memory that it holds.
type holder struct {
	s      *session
	addr   string
	n      int64
	exempt bool // CLIENT NO-EVICT
}

// evictClients cuts off clients until the others hold no more than the limit. Next is always the largest client of the user whose
// clients together hold most, so that the connections of one user do not cause the clients of another to be cut off. Clients with
// NO-EVICT stay, as in Redis, while they together hold no more than half of the limit: the node must survive, and the other clients
// need room.
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
	for h := range mostFirst(holders) {
		if total <= limit || h.n == 0 {
			return
		}
		if h.exempt {
			if exempt <= limit/2 { // as sparesWith
				continue
			}
			exempt -= h.n
		}
		srv.clientMemory.cut.Add(1)
		if e.count++; h.n > e.most.n {
			e.most = holder{addr: h.addr, n: h.n}
		}
		h.s.out.cut()
		total -= h.n
	}
}

// mostFirst yields the holders one by one. The next one is always the largest remaining holder of the user whose remaining
// holders together hold most.
func mostFirst(holders []holder) iter.Seq[holder] {
	return func(yield func(holder) bool) {
		slices.SortStableFunc(holders, func(a, b holder) int { return cmp.Compare(b.n, a.n) })
		type ofUser struct {
			sum  int64
			list []holder
		}
		byAccount := map[*account]*ofUser{}
		var users []*ofUser
		for _, h := range holders {
			acc := h.s.account.Load()
			u := byAccount[acc]
			if u == nil {
				u = &ofUser{}
				byAccount[acc] = u
				users = append(users, u)
			}
			u.sum += h.n
			u.list = append(u.list, h)
		}
		for len(users) > 0 {
			u := slices.MaxFunc(users, func(a, b *ofUser) int { return cmp.Compare(a.sum, b.sum) })
			h := u.list[0]
			if u.list, u.sum = u.list[1:], u.sum-h.n; len(u.list) == 0 {
				users = slices.DeleteFunc(users, func(x *ofUser) bool { return x == u })
			}
			if !yield(h) {
				return
			}
		}
	}
}

// holders returns every client with the memory it holds, the total, and the total of clients with
// NO-EVICT. It also makes the reported sums exact: beyondWith, sparesWith and goesOn decide by them.
func (srv *Server) holders() (total, exempt int64, holders []holder) {
	for _, s := range srv.each() {
		s.tellsExactly()
		if s.out.isOver() {
			continue // its memory is about to be freed
		}
		h := holder{s, s.addr, s.memory(), s.noEvict.Load()}
		holders = append(holders, h)
		total += h.n
		if h.exempt {
			exempt += h.n
		}
	}
	srv.clientMemory.exempt.Store(exempt)
	return total, exempt, holders
}

// say writes a log line, at most one per logSilence: clients decide how many evictions there are.
func (e *evictions) say(log *slog.Logger, now time.Time) {
	if e.count == 0 || now.Sub(e.said) < logSilence {
		return
	}
	log.Warn("clients were cut off: all clients together held more than maxmemory-clients", "count", e.count, "largest", e.most.addr, "bytes", e.most.n)
	e.count, e.most, e.said = 0, holder{}, now
}

// ClientMemory returns the bytes in the large buffers of clients, and how many clients were cut off for
// memory, or because they sent too many commands before they authenticated.
func (srv *Server) ClientMemory() (bytes, cutOff int64) {
	return srv.clientMemory.large.Load(), srv.clientMemory.cut.Load()
}

// TrackedKeys returns how many keys the server remembers for CLIENT TRACKING, and their memory.
func (srv *Server) TrackedKeys() (keys int, bytes int64) {
	t := srv.hub.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.keys.len(), t.size
}

// parseClientLimit reads maxmemory-clients: an amount of memory, or a percentage of maxmemory.
func parseClientLimit(value string, maxMemory int64) (limit int64, ok bool) {
	if share, is := strings.CutSuffix(value, "%"); is {
		n, err := strconv.Atoi(share)
		return maxMemory / 100 * int64(n), err == nil && n >= 0 && n <= 100
	}
	return store.ParseMemory(value)
}

package server

import (
	"cmp"
	"iter"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// This file counts the memory of this node's clients, and cuts off those that hold most. Small changes are counted only once a second.

// clientMemory is the memory that the clients of this node hold.
type clientMemory struct {
	large atomic.Int64  // bytes in large buffers and holdings, as last reported
	dying atomic.Int64  // about how many of them belong to clients that have been cut off and are still to be closed
	limit *atomic.Int64 // 0: no limit

	arriving  atomic.Int64 // the part of the field large that is for large incoming commands
	strangers atomic.Int64 // bytes in the buffers of clients that have not authenticated
	exempt    atomic.Int64 // about how many bytes clients with CLIENT NO-EVICT hold; Server.holders corrects it

	cutting atomic.Bool  // a goroutine looks for the clients that hold most
	cut     atomic.Int64 // how many clients were cut off to save memory
	relieve func()       // Server.evictClients

	evicting  sync.Mutex // held by evictClients: one goroutine at a time cuts clients off
	evictions seldomLine

	turns atomic.Uint64 // how many times a loop has read a part of a large command (incoming.nextPart)
}

// userMemory is about the large commands that the clients of one user send.
type userMemory struct {
	complete atomic.Int64  // bytes of large commands that have arrived completely and wait to run
	turn     atomic.Uint64 // the value of clientMemory.turns when a loop last read a part for this user
}

// crowded reports whether waiting large commands of user u take so much that the node should put off reading more of them.
func (m *clientMemory) crowded(u *userMemory) bool {
	limit := m.limit.Load()
	return limit > 0 && u.complete.Load() > limit/4
}

// changed adds bytes, perhaps negative, to the sum. Beyond the limit, it starts a goroutine that cuts off clients, unless one runs
// already.
func (m *clientMemory) changed(by int64) {
	m.large.Add(by)
	if by < 0 {
		m.freed(-by)
	} else if m.exceeded() && m.cutting.CompareAndSwap(false, true) {
		go func() {
			defer m.cutting.Store(false)
			m.relieve()
		}()
	}
}

// exceeded reports whether clients that have not been cut off hold more than the limit.
func (m *clientMemory) exceeded() bool {
	limit := m.limit.Load()
	return limit > 0 && m.large.Load()-m.dying.Load() > limit
}

// alive notes how many bytes the clients hold that have not been cut off. What they have taken since then may count as dying, until
// Server.holders looks again.
func (m *clientMemory) alive(bytes int64) { m.dying.Store(max(m.large.Load()-bytes, 0)) }

// freed notes that clients have given back n bytes. If others than the dying ones did, exceeded may report too early that the limit is
// exceeded, and Server.holders then corrects the sum.
func (m *clientMemory) freed(n int64) {
	for d := m.dying.Load(); d > 0 && !m.dying.CompareAndSwap(d, max(d-n, 0)); d = m.dying.Load() {
	}
}

// beyond reports whether large incoming commands exceed the limit so far that their senders must be cut off without a search for the
// largest clients.
func (m *clientMemory) beyond() bool {
	return m.noRoomToGrow(0)
}

// noRoomToGrow reports what the method beyond would report if large incoming commands took n more bytes.
func (m *clientMemory) noRoomToGrow(n int64) bool {
	limit := m.limit.Load()
	return limit > 0 && m.arriving.Load()+n > limit+limit/8
}

// beyondWith reports whether the sum would exceed the limit by more than an eighth if clients held n more bytes.
func (m *clientMemory) beyondWith(n int64) bool {
	limit := m.limit.Load()
	return limit > 0 && m.large.Load()+n > limit+limit/8
}

// sparesWith reports whether clients with CLIENT NO-EVICT, with n more bytes, together hold little enough to be spared.
func (m *clientMemory) sparesWith(n int64) bool { return m.exempt.Load()+n <= m.limit.Load()/2 }

// All clients that have not authenticated share 1/strangersShare of the limit for their buffers.
const strangersShare = 8

// noRoomFor reports whether unauthenticated clients use more than their share of the limit; strangers is the number of bytes in their
// buffers.
func (m *clientMemory) noRoomFor(strangers int64) bool {
	limit := m.limit.Load()
	return limit > 0 && strangers > limit/strangersShare
}

// refused counts a client that is cut off because there is no memory for n bytes of a command, a reply or buffers.
func (m *clientMemory) refused(addr net.Addr, n int64) { m.evicted(addr.String(), n) }

// evicted counts a client that is cut off; n is how many bytes the client holds or wanted.
func (m *clientMemory) evicted(addr string, n int64) {
	m.cut.Add(1)
	m.evictions.count(n, "largest", addr, "bytes", n)
}

// These are the bytes that one entry takes in the tables that a client can fill, without the bytes of the entry's name.
const (
	subscriptionCost = 320 // a subscription: its entries in messaging.subs and in the hub's table, with the set of subscribers
	prefixCost       = 320 // a prefix of CLIENT TRACKING: its entries in the session's list and the tracker's tree, with the sessions
	watchCost        = 192 // a watched key: its entries in watchList and in the set watching
)

// holdings is the memory that a client holds outside its connection and its outbox. session.holds reports large changes, and
// tellsExactly the others once a second.
type holdings struct {
	bytes atomic.Int64
	told  atomic.Int64 // the value of the field bytes in the last report; goneClient: the client has left, and there are no more reports
}

// goneClient is the value of holdings.told after the client has left. No report can have this value.
const goneClient = -1 << 62

// holds adds a number of bytes, which may be negative, to the client's holdings. Any goroutine may call it.
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

// tellsExactly reports even a small change of the client's holdings, because many small changes add up.
func (s *session) tellsExactly() {
	now, told := s.held.bytes.Load(), s.held.told.Load()
	if now != told && told != goneClient && s.held.told.CompareAndSwap(told, now) {
		s.srv.clientMemory.changed(now - told)
	}
}

// When a client has left, leavesMemory takes its reported holdings out of the sum of all clients.
func (s *session) leavesMemory() {
	if told := s.held.told.Swap(goneClient); told != goneClient {
		s.srv.clientMemory.changed(-told)
	}
}

// keeps sets one part of the client's holdings to n bytes: the part for queued and executing commands and for watched keys.
func (s *session) keeps(n int) {
	s.holds(int64(n - s.kept))
	s.kept = n
}

// memory returns how many bytes a client holds, without its buffers of fixed size.
func (s *session) memory() int64 {
	n := int64(s.out.memoryHeld()) + s.conn.held.Load() + s.held.bytes.Load()
	if sealed, by := s.conn.Conn.(sealer); by {
		n += int64(sealed.waiting())
	}
	return n
}

// sealer is a connection that keeps ciphertext until its socket has room. The method waiting returns how many bytes the
// connection keeps.
type sealer interface{ waiting() int }

// holder is a client and the memory that it holds.
type holder struct {
	s      *session
	addr   string
	n      int64
	exempt bool // CLIENT NO-EVICT
}

// evictClients cuts off clients until the others hold no more than the limit: each time the largest client of the user whose clients
// hold most. It spares clients with NO-EVICT as sparesWith says.
func (srv *Server) evictClients() {
	m := &srv.clientMemory
	m.evicting.Lock()
	defer m.evicting.Unlock()
	defer func() { m.evictions.sayRest(srv.cfg.Clock()) }()
	limit := m.limit.Load()
	if limit == 0 {
		return
	}
	total, exempt, holders := srv.holders()
	if total <= limit {
		return
	}
	defer func() { m.alive(total) }()
	for h := range mostFirst(holders) {
		if total <= limit || h.n == 0 {
			return
		}
		if h.exempt {
			if exempt <= limit/2 { // as in sparesWith
				continue
			}
			exempt -= h.n
		}
		m.evicted(h.addr, h.n)
		h.s.out.cut()
		total -= h.n
	}
}

// mostFirst yields the holders in the order in which evictClients cuts them off.
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

// holders returns the clients that have not been cut off, and sums of their memory. It also corrects the sums in clientMemory.
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
	srv.clientMemory.alive(total)
	return total, exempt, holders
}

// ClientMemory returns how many bytes clients hold in large buffers, tables and lists, as last reported, and
// how many clients were cut off to save memory.
func (srv *Server) ClientMemory() (bytes, cutOff int64) {
	return srv.clientMemory.large.Load(), srv.clientMemory.cut.Load()
}

// TrackedKeys returns how many keys the server remembers for CLIENT TRACKING, and how many bytes they take.
func (srv *Server) TrackedKeys() (keys int, bytes int64) {
	t := srv.hub.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.keys.len(), t.size
}

// clientShare reads maxmemory-clients as a percentage of maxmemory. The second result is false for an amount of memory; ok says whether
// the percentage is valid.
func clientShare(value string) (percent int64, is, ok bool) {
	share, is := strings.CutSuffix(value, "%")
	percent, ok = redistext.ParseInt([]byte(share))
	return percent, is, ok && percent >= 0
}

// checkClientLimit is paramDef.check for maxmemory-clients.
func checkClientLimit(v string) (canonical, fault string) {
	if percent, is, ok := clientShare(v); is {
		switch {
		case !ok:
			return "", "argument must be a memory or percent value"
		case percent > 100:
			return "", "percentage argument must be less or equal to 100"
		}
		return v, ""
	}
	n, ok := memoryOf(v)
	if !ok || n > math.MaxInt64 {
		return "", "argument must be a memory or percent value"
	}
	return strconv.FormatUint(n, 10), ""
}

// setClientLimit makes a value of maxmemory-clients effective. The caller holds mu, or nobody else has p yet.
func (p *params) setClientLimit(value string, maxMemory int64) {
	percent, is, _ := clientShare(value)
	if !is {
		p.clientShare = -1
		p.clientLimit.Store(number(value))
		return
	}
	p.clientShare = percent
	p.shareMaxMemory(maxMemory)
}

// shareMaxMemory sets the limit of clients if it is a percentage of maxmemory. The caller holds mu, or nobody else has p yet.
func (p *params) shareMaxMemory(maxMemory int64) {
	switch {
	case p.clientShare < 0:
	case p.clientShare == 0:
		p.clientLimit.Store(0)
	case maxMemory == 0:
		p.clientLimit.Store(p.defaultClientLimit)
	default:
		p.clientLimit.Store(max(1, maxMemory/100*p.clientShare+maxMemory%100*p.clientShare/100))
	}
}

// followMaxMemory computes the limit of clients again, because a client of any node may have changed maxmemory.
func (srv *Server) followMaxMemory() {
	limit := srv.MaxMemory()
	srv.params.mu.Lock()
	defer srv.params.mu.Unlock()
	srv.params.shareMaxMemory(limit)
}

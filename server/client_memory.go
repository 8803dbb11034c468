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

	"lockstep/store/redistext"
)

// This file counts the memory that all clients of this node use together. That is the memory for commands that have arrived
// in part or wait to run, queued commands, watched keys, subscriptions, client names, replies under construction, and
// pending output. If the sum exceeds maxmemory-clients, the server cuts off the clients that hold most, as Redis does.
//
// The server adds only large changes to the sum at once. It counts small ones when it looks at every
// client once a second, so that most commands need not change the sum.

// clientMemory is the memory that the clients of this node hold.
type clientMemory struct {
	large atomic.Int64  // bytes in large buffers and holdings, as last reported
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

// crowded reports whether the complete large commands of the user u that wait to run take more than a quarter of the limit. If they
// do, the node should put off reading more large commands of that user.
func (m *clientMemory) crowded(u *userMemory) bool {
	limit := m.limit.Load()
	return limit > 0 && u.complete.Load() > limit/4
}

// changed adds a number of bytes to the sum. The number is negative if a client holds less than before. If the sum grows
// beyond the limit, changed starts a goroutine that cuts off the clients that hold most, unless one runs already.
func (m *clientMemory) changed(by int64) {
	total, limit := m.large.Add(by), m.limit.Load()
	if by > 0 && limit > 0 && total > limit && m.cutting.CompareAndSwap(false, true) {
		go func() {
			defer m.cutting.Store(false)
			m.relieve()
		}()
	}
}

// beyond reports whether large incoming commands alone exceed the limit by more than an eighth. If they do, the server cuts
// off the sender of such a command at once. It does not wait for the search for the clients that hold most, because many
// clients could fill the memory during that search.
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

// sparesWith reports whether the server spares clients with CLIENT NO-EVICT when it cuts off clients to save memory. It
// spares them if they together, with n more bytes, hold at most half of the limit.
func (m *clientMemory) sparesWith(n int64) bool { return m.exempt.Load()+n <= m.limit.Load()/2 }

// All clients that have not authenticated share 1/strangersShare of the limit for their buffers.
const strangersShare = 8

// noRoomFor reports whether all unauthenticated clients together use more than their share of the limit
// (strangersShare). The argument strangers is the number of bytes in their buffers.
func (m *clientMemory) noRoomFor(strangers int64) bool {
	limit := m.limit.Load()
	return limit > 0 && strangers > limit/strangersShare
}

// refused counts a client that is cut off because there is no memory for n bytes of a command, a reply or buffers.
func (m *clientMemory) refused(addr net.Addr, n int64) { m.evicted(addr.String(), n) }

// evicted counts a client that is cut off. The argument n is the number of bytes that the client holds, or that it
// wanted. The next log line names the client with the most bytes.
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

// holdings is the memory that a client holds outside its connection and its outbox: for example, in tables and lists, and
// for the reply under construction. The sum of all clients (clientMemory.large) has each client's holdings as last reported.
// session.holds reports them when they differ by more than keepOutput from the last report, or have become 0. Once a second,
// tellsExactly reports smaller differences.
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

// tellsExactly reports even a small change of the client's holdings. session.holds does not report small changes, and
// over many clients these may add up to much memory.
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

// evictClients cuts off clients until the others hold no more than the limit. Each time it takes the user whose clients
// together hold most, and of this user the client that holds most. So the many connections of one user do not cost
// another user a client. As in Redis, evictClients spares clients with NO-EVICT, but only while these clients together
// hold at most half of the limit. The node must survive, and the other clients need memory, too.
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

// mostFirst yields the holders in the order in which evictClients cuts them off. Each time it takes the user whose remaining
// holders together hold most, and yields the largest of these holders.
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

// holders returns all clients that have not been cut off, with the memory that each holds, the total, and the total of those
// with NO-EVICT. It also corrects the sums large and exempt of clientMemory. beyondWith, sparesWith and goesOn decide by
// these sums.
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

// clientShare reads a value of maxmemory-clients. If the value is a percentage of maxmemory, the second result (is) is true,
// and ok says whether Redis could read the percentage. If the value is an amount of memory, the second result is false.
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

// shareMaxMemory sets the limit of clients if maxmemory-clients is a percentage of maxmemory. A percentage of 0 means
// no limit. If maxmemory is 0, any other percentage means the default limit, because without a limit the clients could
// use up the node's memory. The caller holds mu, or nobody else has p yet.
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

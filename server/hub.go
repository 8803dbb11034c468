package server

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/server/history"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// Hub delivers published messages to this node's subscribers. Nodes publish the messages of the log entries that they apply, so all
// deliver them in the same order (exception: Missed).
type Hub struct {
	mu       sync.RWMutex
	channels table[*subscribers]
	shards   table[*subscribers]
	patterns table[*subscribers]
	matching matching
	load     load
	warned   atomic.Int64           // Unix time of the last log line of cutOff
	data     atomic.Pointer[Server] // the server that has the clients for data
	heard    atomic.Int64           // how many channels, patterns and shard channels have subscribers; readable without mu
	hurried  atomic.Int64           // how many of them Listens counts (hurries); readable without mu

	tracker *tracker

	accounts *accounts

	locks     *history.History
	watchers  table[*subscribers] // those of patterns that begin with lockEvents
	lockNames lockNames           // readable without mu
}

var (
	_ store.Sink    = (*Hub)(nil)
	_ store.KeySink = (*Hub)(nil)

	_ store.AccountSink = (*Hub)(nil)
)

// subscribers are the sessions that have subscribed to one name: a channel, a pattern or a shard channel.
type subscribers struct{ roomy[*session, struct{}] }

// each returns the sessions; subs may be nil.
func (subs *subscribers) each() map[*session]struct{} {
	if subs == nil {
		return nil
	}
	return subs.m
}

// NewHub returns a hub without subscribers.
func NewHub() *Hub {
	h := &Hub{
		tracker:  newTracker(),
		accounts: newAccounts(),
	}
	h.locks = history.New(historySize, history.Most, h.tellOfLock)
	return h
}

// subKind is one of the three kinds of subscription, and an index of subWords.
type subKind int

const (
	subChannel subKind = iota
	subPattern
	subShard
)

var subWords = [...]struct{ subscribe, unsubscribe, message string }{
	subChannel: {"subscribe", "unsubscribe", "message"},
	subPattern: {"psubscribe", "punsubscribe", "pmessage"},
	subShard:   {"ssubscribe", "sunsubscribe", "smessage"},
}

func (h *Hub) byKind(k subKind) *table[*subscribers] {
	switch k {
	case subPattern:
		return &h.patterns
	case subShard:
		return &h.shards
	}
	return &h.channels
}

// subscribersOf returns who has subscribed to a name. The caller holds mu.
func (h *Hub) subscribersOf(k subKind, name string) map[*session]struct{} {
	subs, _ := h.byKind(k).get(name)
	return subs.each()
}

// Publish implements store.Sink.
func (h *Hub) Publish(kind store.PublishKind, channel, message string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var d delivery
	defer h.delivered(&d)
	if kind == store.Shard {
		d.deliver(subShard, h.subscribersOf(subShard, channel), channel, message)
		return
	}
	d.deliver(subChannel, h.subscribersOf(subChannel, channel), channel, message)
	h.matches(&h.patterns, channel, func(pattern string, subs map[*session]struct{}) {
		d.deliver(subPattern, subs, pattern, channel, message)
	})
}

// A node matches a message with all patterns before it applies the next log entry, so slow patterns must cost little. After matchSteps
// steps for a message, the hub cuts off the client with the most patterns, at most matchCuts times. A single pattern may take matchSteps
// steps, or fewSteps after matchCuts cuts, before its clients are cut off.
const (
	matchSteps = 1 << 20
	matchCuts  = 3
	fewSteps   = 256
)

// matches calls do for each pattern among those that matches the channel. It may leave out slow patterns, and patterns of clients cut off. The caller
// holds mu for reading.
func (h *Hub) matches(among *table[*subscribers], channel string, do func(pattern string, subs map[*session]struct{})) {
	if among.len() > manyPatterns {
		clock := h.clock()
		began := clock()
		defer func() { h.matched(began, clock()) }()
	}
	steps, cuts, most := 0, 0, matchSteps
	for i := range among.parts {
		for pattern, subs := range among.parts[i].m {
			if steps > matchSteps {
				if cuts < matchCuts {
					h.cutOffMostPatterns(cuts > 0)
				}
				steps, cuts = 0, cuts+1
			}
			if cuts > 0 && subs.over() {
				continue
			}
			if cuts >= matchCuts {
				most = fewSteps
			}
			ok, n := redistext.MatchWithin(pattern, channel, most)
			if !ok && n > most {
				h.cutOff(slices.Collect(maps.Keys(subs.m))...)
				n, cuts = 0, cuts+1
			}
			steps += n + 1
			if ok {
				do(pattern, subs.m)
			}
		}
	}
}

// Above manyPatterns patterns, the hub measures the time of matching. Beyond matchTime in a second, it cuts off clients.
const (
	manyPatterns = 256
	matchTime    = 500 * time.Millisecond
)

// matching is the time that the hub has spent on matching messages within one second. The field since is the beginning
// of that second.
type matching struct {
	mu    sync.Mutex
	since time.Time
	took  time.Duration
}

// clock returns the clock of any session that has a pattern, or nil without one. The caller holds mu for reading.
func (h *Hub) clock() func() time.Time {
	for _, subs := range h.patterns.all() {
		for s := range subs.m {
			return s.srv.cfg.Clock
		}
	}
	return nil
}

// matched adds the time of matching one message. Beyond matchTime in a second, it cuts off the clients with most patterns. The caller
// holds Hub.mu for reading.
func (h *Hub) matched(began, now time.Time) {
	m := &h.matching
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.since) > time.Second {
		m.since, m.took = now, 0
	}
	if m.took += now.Sub(began); m.took < matchTime {
		return
	}
	m.took = 0
	sessions, _ := h.byPatterns()
	n := 0
	for left := h.patterns.len() / 2; n < len(sessions) && left > 0; n++ {
		left -= sessions[n].subs[subPattern].len()
	}
	h.cutOff(sessions[:n]...)
}

// over reports whether all of the subscribers have been cut off, or their connections have failed.
func (subs *subscribers) over() bool {
	for s := range subs.m {
		if !s.out.isOver() {
			return false
		}
	}
	return true
}

// cutOffMostPatterns cuts off the client with the most patterns, but not while patterns of clients cut off earlier may still slow the
// matching (leftOut: they do not). The caller holds mu for reading.
func (h *Hub) cutOffMostPatterns(leftOut bool) {
	if sessions, others := h.byPatterns(); len(sessions) > 0 && (leftOut || !others) {
		h.cutOff(sessions[0])
	}
}

// byPatterns returns the sessions with patterns, most patterns first, and whether others with patterns have been cut off. The caller holds
// mu for reading.
func (h *Hub) byPatterns() (sessions []*session, others bool) {
	seen := map[*session]struct{}{}
	for _, subs := range h.patterns.all() {
		for s := range subs.m {
			if _, again := seen[s]; again {
				continue
			}
			seen[s] = struct{}{}
			if s.out.isOver() {
				others = true
			} else {
				sessions = append(sessions, s)
			}
		}
	}
	slices.SortFunc(sessions, func(a, b *session) int { return b.subs[subPattern].len() - a.subs[subPattern].len() })
	return sessions, others
}

// cutOff cuts off clients because of their patterns, and ends their subscriptions in a goroutine. The caller holds mu for reading.
func (h *Hub) cutOff(sessions ...*session) {
	go h.drop(sessions)
	for _, s := range sessions {
		s.out.cut()
		now := s.srv.cfg.Clock().Unix()
		if last := h.warned.Load(); now-last >= 10 && h.warned.CompareAndSwap(last, now) {
			s.srv.cfg.Log.Warn("a client was cut off: to look for a message among its patterns takes too long",
				"client", s.conn.RemoteAddr(), "patterns", s.subs[subPattern].len())
		}
	}
}

// Missed implements store.KeySink: this node has missed changes and messages. It disconnects all subscribers, because one could wait for a
// missed message forever.
func (h *Hub) Missed() {
	h.tracker.touchAll()
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, names := range []*table[*subscribers]{&h.channels, &h.shards, &h.patterns} {
		for _, subs := range names.all() {
			for s := range subs.m {
				s.out.abort()
			}
		}
	}
}

// Receivers returns how often this node would deliver a message. As in Redis, each matching pattern of a client counts besides the
// channel.
func (h *Hub) Receivers(kind store.PublishKind, channel string) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if kind == store.Shard {
		return len(h.subscribersOf(subShard, channel))
	}
	n := len(h.subscribersOf(subChannel, channel))
	h.matches(&h.patterns, channel, func(_ string, subs map[*session]struct{}) { n += len(subs) })
	return n
}

// Subscribers returns how many clients of this node have subscribed to a channel.
func (h *Hub) Subscribers(kind store.PublishKind, channel string) int {
	switch {
	case h.heard.Load() == 0:
		return 0
	case kind == store.Shard:
		return h.count(subShard, channel)
	}
	return h.count(subChannel, channel)
}

// Listens reports whether this node has subscribers or tracking clients, to whom each message goes at once. That costs the leader a request
// for each entry, so events of locks, to which dashboards listen, may come some ms later. Listens takes no lock, because the Raft code calls it
// for every answer to the leader.
func (h *Hub) Listens() bool { return h.hurried.Load() > 0 || h.tracker.clients.Load() > 0 }

// deliver sends a message to subscribers. The argument words has the message's elements except the first (such as "message"); words[0] is
// the name.
func (d *delivery) deliver(kind subKind, subs map[*session]struct{}, words ...string) {
	if len(subs) == 0 {
		return
	}
	var frames [4][]byte
	told := &subscription{kind: kind, name: words[0], push: store.Strs(slices.Insert(words, 0, subWords[kind].message)...)}
	told.push.Kind = store.Push
	for s := range subs {
		d.begin(s)
		resp := s.protocol()
		if frames[resp] == nil {
			frames[resp] = appendReply(nil, &told.push, resp)
		}
		s.out.push(message{frame: frames[resp], resp: resp, told: told}, s.srv.params.pubsubLimit(), d.began)
		s.messages.Add(1)
	}
	d.end()
}

// subscribe adds a subscription and confirms it, both under mu, so that no message comes before the confirmation.
func (h *Hub) subscribe(s *session, kind subKind, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, again := s.subs[kind].get(name); !again {
		all := h.byKind(kind)
		subs, is := all.get(name)
		if !is {
			h.heard.Add(1)
			h.hurried.Add(hurries(name))
			subs = &subscribers{}
			all.put(name, subs)
			h.watchLocks(kind, name, subs)
		}
		subs.put(s, struct{}{})
		s.subs[kind].put(name, struct{}{})
		s.holds(subscriptionCost + int64(len(name)))
	}
	s.confirm(subWords[kind].subscribe, store.Str(name), s.subscriptions(kind))
}

// hurries returns 1 for the name of a channel or a pattern whose messages go to subscribers at once, else 0 (Listens). A channel of an
// owner, as granted:me, is what the owner waits for.
func hurries(name string) int64 {
	_, event, _ := strings.Cut(name, "__:")
	return store.Flag(!strings.HasPrefix(name, lockEvents) || strings.Contains(event, ":")).Int
}

// unsubscribe removes a subscription, if the session has it. In any case it puts a confirmation into the session's output.
func (h *Hub) unsubscribe(s *session, kind subKind, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, is := s.subs[kind].get(name); is {
		h.remove(s, kind, name)
	}
	s.confirm(subWords[kind].unsubscribe, store.Str(name), s.subscriptions(kind))
}

// remove removes a subscription that exists. The caller holds mu.
func (h *Hub) remove(s *session, kind subKind, name string) {
	all := h.byKind(kind)
	subs, _ := all.get(name)
	subs.drop(s)
	if len(subs.m) == 0 {
		h.heard.Add(-1)
		h.hurried.Add(-hurries(name))
		all.drop(name)
		h.leaveLocks(kind, name)
	}
	s.subs[kind].drop(name)
	s.holds(-subscriptionCost - int64(len(name)))
}

// drop ends all subscriptions of sessions, without confirmations. It takes mu for dropAtOnce names at a time, so that nobody waits for
// long.
func (h *Hub) drop(sessions []*session) {
	for len(sessions) > 0 {
		sessions = h.dropSome(sessions)
	}
}

// dropAtOnce is the number of names after which drop lets others have the lock.
const dropAtOnce = 256

// dropSome ends up to dropAtOnce subscriptions, and returns the sessions that may have more.
func (h *Hub) dropSome(sessions []*session) []*session {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := dropAtOnce
	for i, s := range sessions {
		for kind := range s.subs {
			for name := range s.subs[kind].all() {
				if left--; left < 0 {
					return sessions[i:]
				}
				h.remove(s, subKind(kind), name)
			}
		}
		s.subscriptions(subChannel)
	}
	return nil
}

// confirmNone confirms the end of all subscriptions of a kind to a session that had none of them.
func (h *Hub) confirmNone(s *session, kind subKind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.confirm(subWords[kind].unsubscribe, store.Nil, s.subscriptions(kind))
}

// nameSteps and stepsPerName (for each name) bound the matching of PUBSUB CHANNELS, because other commands of the kind cluster.OwnList
// wait for it.
const (
	nameSteps    = 1 << 17
	stepsPerName = 32
)

// names returns, sorted, the channels or shard channels that match a pattern (nil: all). The result ok is false if the matching takes too
// many steps.
func (h *Hub) names(kind subKind, pattern *string) (list []string, ok bool) {
	all := namesOfTable(&h.mu, h.byKind(kind))
	if pattern == nil {
		slices.Sort(all)
		return all, true
	}
	list = []string{}
	left := nameSteps + stepsPerName*len(all)
	for _, name := range all {
		matches, n := redistext.MatchWithin(*pattern, name, left)
		if left -= n; left < 0 {
			return nil, false
		}
		if matches {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list, true
}

// count returns how many sessions have subscribed to a name.
func (h *Hub) count(kind subKind, name string) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.subscribersOf(kind, name))
}

// size returns how many names of a kind have subscribers.
func (h *Hub) size(kind subKind) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.byKind(kind).len()
}

// Hub.of returns the names of one kind that a session has subscribed to.
func (h *Hub) of(s *session, kind subKind) []string {
	return namesOfTable(&h.mu, &s.subs[kind])
}

// counts returns how many subscriptions of each kind a session has.
func (h *Hub) counts(s *session) (n [3]int) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for i := range n {
		n[i] = s.subs[i].len()
	}
	return n
}

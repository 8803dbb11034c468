package server

import (
	"slices"
	"strings"

	"github.com/lockstep-io/lockstep/store"
)

// This file sends clients messages about the keys that a write set has changed. The next write set waits for this, so its cost is bounded:
// each key is stored once, each message is encoded once per protocol version, and beyond the limits below, one message says that all keys
// may have changed ("all keys").

const (
	// maxChangedSize bounds the bytes of the keys in one write set's messages for prefixes. Beyond it, listeners of a prefix are told "all
	// keys".
	maxChangedSize = 1 << 20
	// maxTold is how many messages about one write set are sent. After them, a client that would get another message is told
	// "all keys", once.
	maxTold = 1 << 16
	// maxForgotten bounds the readers of changed keys for one write set. Beyond it, the node forgets all keys, and tells clients without
	// BCAST "all keys".
	maxForgotten = 1 << 20
)

// changes has the changed keys of one write set for the listeners of prefixes, and counts the messages about the write set.
type changes struct {
	list     []changedKey
	index    map[string]int // the index of each key in list
	nodes    []*prefix      // the prefixes of each key in list, key after key
	prefixes []*prefix      // the prefixes of all changed keys, each once
	size     int            // the bytes that maxChangedSize limits

	writers   map[uint64]struct{}   // the origins of the changes in list
	own       int                   // bytes of the messages that messageFor made for single NOLOOP sessions
	told      int                   // how many messages tracker.tell has sent, or replaced by "all keys"
	sent      int64                 // the bytes of these messages
	forgotten int                   // the number of readers that maxForgotten limits
	overrun   map[*session]struct{} // sessions that have been told "all keys" and get no more messages
	emptied   bool                  // the last change was a TouchAll, a change of all keys
	delivery  delivery
	flooded   bool // a TouchAll came after maxTold messages, so all sessions are in overrun
}

// changedKey is a key that the write set has changed and that has a prefix with listeners.
type changedKey struct {
	key      string
	by       uint64 // the origin of the change
	from, to int    // the key's prefixes are changes.nodes[from:to]
}

// Applied implements store.KeySink.
func (h *Hub) Applied(writes []byte) {
	t := h.tracker
	if t.clients.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes = changes{}
	store.EachTouched(writes, t)
	t.broadcast()
	t.changes.delivery.end()
	h.delivered(&t.changes.delivery)
	t.changes = changes{} // because the old value may take much memory
}

// touchAll locks mu and calls TouchAll. It is for a caller that does not apply a write set.
func (t *tracker) touchAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes = changes{}
	t.TouchAll()
}

// Touch implements store.Toucher. The caller holds mu.
func (t *tracker) Touch(key string, origin uint64) {
	t.changes.emptied = false
	if ids, is := t.keys.get(key); is {
		t.invalidate(strings.Clone(key), ids, origin)
	}
	if t.listed > 0 {
		t.changes.note(&t.prefixes, key, origin)
	}
}

// TouchAll implements store.Toucher. The caller holds mu. FLUSHALL causes a call for each database that has keys, but only the
// first of them sends messages.
func (t *tracker) TouchAll() {
	c := &t.changes
	if c.emptied || c.flooded {
		return
	}
	c.emptied, c.flooded = true, c.told > maxTold
	t.forgetKeys()
	for _, s := range t.sessions.m {
		t.tell(s, allKeys)
	}
}

// forgetKeys forgets all keys that sessions have read. The caller holds mu.
func (t *tracker) forgetKeys() {
	t.keys = table[map[int64]struct{}]{}
	t.items, t.size = 0, 0
}

// invalidate tells the readers of a key that it has changed, and forgets these readers, except a NOLOOP session that has changed the key.
func (t *tracker) invalidate(key string, ids map[int64]struct{}, origin uint64) {
	if t.changes.forgotten += len(ids); t.changes.forgotten > maxForgotten {
		t.invalidateAll()
		return
	}
	m := about(key, origin)
	for id := range ids {
		s := t.sessions.m[id]
		if s != nil {
			how := s.tracking.Load()
			if how.noloop && origin == t.origin(s) {
				continue
			}
			if !how.bcast {
				t.tell(s, m)
			}
		}
		delete(ids, id)
		t.items--
		t.size -= readerCost
	}
	if len(ids) == 0 {
		t.size -= trackedCost + int64(len(key))
		t.keys.drop(key)
	}
}

// invalidateAll forgets all keys that sessions have read, and tells all sessions except those in BCAST mode that all keys may have
// changed.
func (t *tracker) invalidateAll() {
	t.forgetKeys()
	for _, s := range t.sessions.m {
		if !s.tracking.Load().bcast {
			t.tellAll(s)
		}
	}
}

// note records a changed key for the listeners of its prefixes.
func (c *changes) note(root *prefix, key string, origin uint64) {
	if i, again := c.index[key]; again {
		if c.list[i].by != origin {
			c.list[i].by = someone
		}
		return
	}
	from := len(c.nodes)
	root.of(key, func(p *prefix) {
		if !p.marked {
			p.marked = true
			c.prefixes = append(c.prefixes, p)
		}
		if p.every {
			return
		}
		if c.size += lateCost + len(key); c.size > maxChangedSize {
			p.every = true
			return
		}
		c.nodes = append(c.nodes, p)
	})
	if len(c.nodes) == from {
		return
	}
	if c.index == nil {
		c.index = map[string]int{}
	}
	key = strings.Clone(key)
	c.index[key] = len(c.list)
	c.list = append(c.list, changedKey{key, origin, from, len(c.nodes)})
}

// broadcast tells the listeners of prefixes which keys a write set has changed.
func (t *tracker) broadcast() {
	c := &t.changes
	if len(c.prefixes) == 0 {
		return
	}
	slices.SortFunc(c.list, func(a, b changedKey) int { return strings.Compare(a.key, b.key) })
	c.writers = map[uint64]struct{}{}
	for i, changed := range c.list {
		c.writers[changed.by] = struct{}{}
		for _, p := range c.nodes[changed.from:changed.to] {
			p.keys = append(p.keys, int32(i))
		}
	}
	slices.SortFunc(c.prefixes, func(a, b *prefix) int { return strings.Compare(a.text, b.text) }) // in Redis's order
	for _, p := range c.prefixes {
		if p.every {
			for s := range p.sessions.m {
				t.tellAll(s)
			}
		} else {
			t.tellKeys(p)
		}
		p.keys, p.marked, p.every = nil, false, false
	}
}

// tellKeys tells the listeners of a prefix which of its keys have changed.
func (t *tracker) tellKeys(p *prefix) {
	m := t.changes.message(p, someone)
	for s := range p.sessions.m {
		if mine := t.messageFor(s, p, m); len(mine.keys) > 0 {
			t.tell(s, mine)
		}
	}
}

// messageFor returns m or, for a NOLOOP session, a message without its own changes, unless such messages have become too large.
func (t *tracker) messageFor(s *session, p *prefix, m *notice) *notice {
	c, me := &t.changes, t.origin(s)
	_, wrote := c.writers[me]
	how := s.tracking.Load() // nil: disable has ended the tracking, but has not yet removed the session from all prefixes
	if !wrote || how == nil || !how.noloop || c.own+m.size() > maxChangedSize {
		return m
	}
	c.own += m.size()
	return c.message(p, me)
}

// message returns the message about the changed keys of a prefix, except those that the origin without has changed.
func (c *changes) message(p *prefix, without uint64) *notice {
	m := &notice{keys: make([]string, 0, len(p.keys))}
	for _, i := range p.keys {
		if by := c.list[i].by; by == someone || by != without {
			m.add(c.list[i].key, by)
		}
	}
	return m
}

// tell sends a session a message about the present write set, or "all keys" once if the messages have become too many or too large.
func (t *tracker) tell(s *session, m *notice) {
	c := &t.changes
	t.tells(s)
	if _, over := c.overrun[s]; over {
		return
	}
	c.told++
	c.sent += int64(m.size())
	if limit := t.maxSize(); c.told > maxTold || limit > 0 && c.sent > limit {
		t.tellAll(s)
		return
	}
	t.send(s, m)
}

// tells counts a message to a session as work.
func (t *tracker) tells(s *session) {
	t.changes.delivery.begin(s)
	s.messages.Add(1)
}

// tellAll tells a session that all keys may have changed. The session gets no later message about the present
// write set.
func (t *tracker) tellAll(s *session) {
	c := &t.changes
	t.tells(s)
	if _, over := c.overrun[s]; over {
		return
	}
	if c.overrun == nil {
		c.overrun = map[*session]struct{}{}
	}
	c.overrun[s] = struct{}{}
	t.send(s, allKeys)
}

// notice is the message that keys have changed. Many sessions may get the same notice.
type notice struct {
	keys   []string  // nil: all keys may have changed
	bytes  int       // the length of all keys together
	by     uint64    // the origin of the first key's change
	frames [4][]byte // the encoded message, by protocol version
}

// allKeys is the message that all keys may have changed. It is encoded in advance: several trackers share it without a common lock.
var allKeys = func() *notice {
	m := &notice{}
	m.frame(2)
	m.frame(3)
	return m
}()

// about returns the message that one key has changed. The argument by is the origin of the change.
func about(key string, by uint64) *notice {
	m := &notice{}
	m.add(key, by)
	return m
}

// add appends a key to the message. The argument by is the origin of the key's change.
func (m *notice) add(key string, by uint64) {
	if len(m.keys) == 0 {
		m.by = by
	}
	m.keys = append(m.keys, key)
	m.bytes += len(key)
}

// size returns how much memory the message takes, as the server estimates it.
func (m *notice) size() int { return lateCost + lateCost*len(m.keys) + m.bytes }

// frame returns the encoded message for a protocol version, and keeps it for the next call. The caller holds the tracker's mu.
func (m *notice) frame(resp int) []byte {
	if m.frames[resp] == nil {
		list := store.Nil
		if m.keys != nil {
			list = store.Strs(m.keys...)
		}
		push := store.Reply{Kind: store.Push, Elems: []store.Reply{store.Str("invalidate"), list}}
		if resp < 3 {
			push.Elems = []store.Reply{store.Str("message"), store.Str(invalidateChannel), list}
		}
		m.frames[resp] = appendReply(nil, &push, resp)
	}
	return m.frames[resp]
}

// maxHeld and maxLateSize bound the messages held back for a session. Beyond them, one message says that all keys may have changed.
const (
	maxHeld     = 4096    // the largest number of messages
	maxLateSize = 1 << 20 // the largest number of bytes of these messages
	lateCost    = 24      // the memory of a message without its keys, and of each key without the bytes of its name
)

// dropLate forgets the messages that the tracker holds back for the session. The caller holds the tracker's mu.
func (s *session) dropLate() {
	s.holds(-int64(s.lateSize))
	s.late, s.lateSize = nil, 0
}

// send delivers a message, or holds it back until tracker.release if it must follow a reply for which the session waits.
func (t *tracker) send(s *session, m *notice) {
	own := m.by != someone && m.by == t.origin(s)
	if s.waiting || own && s.blocked.Load() != nil {
		s.late = append(s.late, m)
		size := s.lateSize + m.size()
		if len(s.late) > maxHeld || size > maxLateSize {
			s.late, size = []*notice{allKeys}, lateCost
		}
		s.holds(int64(size - s.lateSize))
		s.lateSize = size
		return
	}
	t.deliver(s, m)
}

// invalidateChannel is the channel on which RESP2 clients get their messages.
const invalidateChannel = "__redis__:invalidate"

// deliver sends a message about the keys of s to s, or to the session that REDIRECT names. It sets tracking.broken if that session has
// left or changed its user.
func (t *tracker) deliver(s *session, m *notice) {
	how := s.tracking.Load()
	if how == nil {
		return
	}
	target := s
	if how.redirect != 0 {
		target = s.srv.session(how.redirect)
	}
	// Under the hub's lock the target stays a subscriber, and keeps its protocol, until the message is in its output.
	h := s.srv.hub
	h.mu.RLock()
	defer h.mu.RUnlock()
	// Since the CLIENT TRACKING command, the target may have logged in as another user.
	if target == nil || target.out.isOver() || target.account.Load() != s.account.Load() {
		how.broken.Store(true)
		if s.protocol() > 2 {
			s.push(store.Str("tracking-redir-broken"), store.Int(how.redirect))
		}
		return
	}
	if redirected := how.redirect != 0; target.hears(redirected) {
		resp := target.protocol()
		target.pushMessage(message{frame: m.frame(resp), resp: resp, notice: m, redirected: redirected})
	}
}

// push sends the client a message that is not the reply to a command.
func (s *session) push(elems ...store.Reply) {
	r := store.Reply{Kind: store.Push, Elems: elems}
	resp := s.protocol()
	s.pushMessage(message{frame: appendReply(nil, &r, resp), resp: resp})
}

func (s *session) pushMessage(m message) {
	s.out.push(m, s.srv.params.limitOf(s.class()), s.srv.cfg.Clock())
}

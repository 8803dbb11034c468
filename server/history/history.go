// Package history keeps what has happened to locks: the latest events in memory, and their numbers.
//
// A node finds the events in the log entries that it applies, so all nodes have the same events with the same numbers. Only where a node
// has got a snapshot in place of entries, events are missing; the history says so (store.LockGap).
package history

import (
	"sync"
	"sync/atomic"

	"github.com/lockstep-io/lockstep/store"
)

// Mode says which events a History keeps.
type Mode int32

const (
	Off   Mode = iota
	Most       // all but renewals, of which there are many
	Every      // all
)

// Event is an event with its place in the log and its time.
type Event struct {
	store.LockEvent
	Seq   uint64 // number of the write set; several events may have one number
	At    int64  // Unix time in ms
	Lease int64  // the same time on the lease clock, in ms

	Node     string // the node of the client that has got the lock, and the client's id there; "": not known
	ClientID uint64
}

// History implements store.LockSink.
type History struct {
	mode atomic.Int32
	tell func(Event) // gets each event as it comes, in order; nil: nobody

	mu     sync.Mutex
	ring   ring
	latest Event             // only the place and the time of the last write set
	more   chan struct{}     // closed when the next event comes; nil: nobody waits
	counts map[string]Counts // by kind

	clientOf atomic.Pointer[func(number uint64) (node string, id uint64)]
}

// Counts are the numbers of the events of a kind of lock, indexed by store.LockHow.
type Counts [store.LockGap + 1]uint64

// mostKinds bounds History.counts: there are a dozen kinds.
const mostKinds = 100

// New returns a History that keeps events of about that many bytes. tell, if not nil, gets each event; it must not block.
func New(bytes int, mode Mode, tell func(Event)) *History {
	h := &History{ring: newRing(bytes), tell: tell, counts: map[string]Counts{}}
	h.mode.Store(int32(mode))
	return h
}

// Switched is the reason of the gap of SetMode. A reader who has the events up to the gap still has to note it: those after it are missing.
const Switched = "lock-audit has changed"

// NameClients lets a function say which client has a number (store.Txn.SetClient). Without it, no event names a client.
func (h *History) NameClients(clientOf func(number uint64) (node string, id uint64)) {
	h.clientOf.Store(&clientOf)
}

// Name names the client of an event.
func (h *History) Name(e *Event) {
	e.Node, e.ClientID = "", 0
	if clientOf := h.clientOf.Load(); clientOf != nil && e.Client != 0 {
		e.Node, e.ClientID = (*clientOf)(e.Client)
	}
}

// SetMode changes which events are kept from now on.
func (h *History) SetMode(m Mode) {
	before := Mode(h.mode.Swap(int32(m)))
	if m != before {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.gap(h.latest.Seq, store.Time{Wall: h.latest.At * 1000, Lease: h.latest.Lease}, Switched)
	}
}

// Wanted implements store.LockSink.
func (h *History) Wanted() bool { return Mode(h.mode.Load()) != Off }

// Locked implements store.LockSink.
func (h *History) Locked(seq uint64, at store.Time, events []store.LockEvent) {
	h.keep(seq, at, events, h.tell)
}

// Retold implements store.LockSink.
func (h *History) Retold(seq uint64, at store.Time, events []store.LockEvent) {
	h.keep(seq, at, events, nil)
}

func (h *History) keep(seq uint64, at store.Time, events []store.LockEvent, tell func(Event)) {
	every := Mode(h.mode.Load()) == Every
	h.mu.Lock()
	defer h.mu.Unlock()
	h.latest = Event{Seq: seq, At: at.Wall / 1000, Lease: at.Lease}
	for i := range events {
		if events[i].How == store.LockRenewed && !every {
			continue
		}
		h.put(Event{LockEvent: events[i], Seq: seq, At: at.Wall / 1000, Lease: at.Lease}, tell)
	}
	if len(events) > 0 {
		h.wake()
	}
}

// Lost implements store.LockSink.
func (h *History) Lost(seq uint64, at store.Time) {
	if !h.Wanted() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gap(seq, at, "a snapshot has replaced the state")
}

// gap says that events until the write set seq are missing; mu is held.
func (h *History) gap(seq uint64, at store.Time, why string) {
	h.latest = Event{Seq: seq, At: at.Wall / 1000, Lease: at.Lease}
	h.put(Event{LockEvent: store.LockEvent{How: store.LockGap, Reason: why}, Seq: seq, At: at.Wall / 1000, Lease: at.Lease}, h.tell)
	h.wake()
}

// put keeps an event; mu is held.
func (h *History) put(e Event, tell func(Event)) {
	h.ring.add(&e)
	counts, known := h.counts[e.Kind]
	if known || len(h.counts) < mostKinds {
		counts[e.How]++
		h.counts[e.Kind] = counts
	}
	if tell != nil {
		h.Name(&e)
		tell(e)
	}
}

// wake lets the method Next go on; mu is held.
func (h *History) wake() {
	if h.more != nil {
		close(h.more)
		h.more = nil
	}
}

// Counts returns the numbers of events since the start, by kind. Events of no lock have the kind "".
func (h *History) Counts() map[string]Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make(map[string]Counts, len(h.counts))
	for kind, c := range h.counts {
		list[kind] = c
	}
	return list
}

// View returns the events that are kept now.
func (h *History) View() View {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ring.view()
}

// View is a part of a history, which no longer changes. Its events have no names of clients (Name).
type View struct {
	blocks  [][]byte
	names   []*filter
	dropped *Event // a gap before the first block; nil: none
}

// Each calls fn with the events, the oldest first, until fn returns false. It may leave out events of other locks than key ("": none). The
// first event is a gap if older ones have been dropped.
func (v View) Each(key string, fn func(e *Event) bool) {
	if v.dropped != nil && !fn(v.dropped) {
		return
	}
	for i := range v.blocks {
		if !v.eachOf(i, key, fn) {
			return
		}
	}
}

// eachOf does the work of Each for one block. It returns false if fn has.
func (v View) eachOf(i int, key string, fn func(e *Event) bool) bool {
	if key != "" && !v.names[i].may(key) {
		return true
	}
	var e Event
	for b := v.blocks[i]; len(b) > 0; {
		if b = e.read(b); !fn(&e) {
			return false
		}
	}
	return true
}

// From returns a part of the view that has all events of the write sets from seq on.
func (v View) From(seq uint64) View {
	for len(v.blocks) > 1 && v.names[0].last < seq {
		v = View{blocks: v.blocks[1:], names: v.names[1:]}
	}
	return v
}

// Latest returns the end of the view that has the last n events for which wants returns true, or all if there are fewer, and how many such
// events it has: the first block may have more of them.
func (v View) Latest(n int64, key string, wants func(e *Event) bool) (end View, has int64) {
	for i := len(v.blocks) - 1; i >= 0; i-- {
		v.eachOf(i, key, func(e *Event) bool {
			if wants(e) {
				has++
			}
			return true
		})
		if has >= n {
			return View{blocks: v.blocks[i:], names: v.names[i:]}, has
		}
	}
	if v.dropped != nil && wants(v.dropped) {
		has++
	}
	return v, has
}

// Cursor is a place between two events. The zero Cursor is before the first one.
type Cursor struct {
	block uint64
	at    int
}

// Next returns the events behind a cursor, at most those of one block, and the cursor behind them. If some are not kept any more, the first
// event is a gap. Without events it returns the number of the write set up to which the reader has read all, and a channel that is closed when
// the next event comes.
func (h *History) Next(from Cursor) (list []Event, next Cursor, upTo uint64, more <-chan struct{}) {
	h.mu.Lock()
	b, next, dropped := h.ring.from(from)
	if len(b) == 0 && dropped == nil {
		if h.more == nil {
			h.more = make(chan struct{})
		}
		upTo, more = h.latest.Seq, h.more
	}
	h.mu.Unlock()
	if dropped != nil {
		list = append(list, *dropped)
	}
	for len(b) > 0 {
		list = append(list, Event{})
		last := &list[len(list)-1]
		b = last.read(b)
		h.Name(last)
	}
	return list, next, upTo, more
}

package server

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
)

// At the leader, a client that publishes waits for the delivery of its messages. At another node nobody waits. So deliveries may make that
// node fall behind the log, and its clients hear of released locks too late. Such a node cuts off the clients that get most messages.

// The hub cuts clients off if all looks during loadWait, one each loadPeriod, find that deliveries took most of the time, and the node has
// not applied the entries known at the first look.
const (
	loadPeriod = 250 * time.Millisecond
	loadWait   = 2 * time.Second
	maxLooks   = 64
)

// load is the work of delivering since the last look.
type load struct {
	mu      sync.Mutex
	since   time.Time
	took    time.Duration
	applied uint64   // the last entry that the node had applied at the last look
	looks   []sample // the latest looks, if all found too much work: up to maxLooks whose entries are not all applied
}

// sample is what the hub saw at a look.
type sample struct {
	at        time.Time
	committed uint64 // the last entry that the node had heard of
}

// delivery is the work of delivering one message, or all messages about one write set.
type delivery struct {
	to    *session  // one of the sessions that get a message; nil: no session gets one
	began time.Time // when the present part of the work began
	took  time.Duration
}

func (d *delivery) begin(s *session) {
	if d.began.IsZero() {
		d.to, d.began = s, s.srv.cfg.Clock()
	}
}

func (d *delivery) end() {
	if !d.began.IsZero() {
		d.took += d.to.srv.cfg.Clock().Sub(d.began)
		d.began = time.Time{}
	}
}

// delivered adds work to the load. The caller is applying a log entry.
func (h *Hub) delivered(d *delivery) {
	if d.to == nil {
		return
	}
	l := &h.load
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took += d.took
	now := d.to.srv.cfg.Clock()
	period := now.Sub(l.since)
	if period < loadPeriod {
		return
	}
	at := d.to.srv.backend.Progress()
	if at.Applied == l.applied && l.took > 0 && period < time.Minute {
		return // the node is still applying the same entry
	}
	if 2*l.took <= period {
		l.looks = nil
	} else {
		h.busy(now, at)
	}
	l.since, l.took, l.applied = now, 0, at.Applied
}

// busy adds a look that found too much work. It cuts clients off if entries committed at a look loadWait ago are not applied. The caller
// holds load.mu.
func (h *Hub) busy(now time.Time, at cluster.Progress) {
	l := &h.load
	begins := len(l.looks) == 0
	l.looks = slices.DeleteFunc(l.looks, func(old sample) bool { return old.committed <= at.Applied })
	waits := len(l.looks) > 0 && now.Sub(l.looks[0].at) >= loadWait
	if len(l.looks) < maxLooks {
		l.looks = append(l.looks, sample{now, at.Committed})
	}
	if begins || waits {
		go h.lighten(waits)
	}
}

// lighten resets the clients' counts of messages. If cut is true, it cuts off those that got most: as many as together got half of all.
func (h *Hub) lighten(cut bool) {
	type listener struct {
		s *session
		n int64
	}
	var list []listener
	all := int64(0)
	for s := range h.listeners() {
		n := s.messages.Swap(0)
		if !s.out.isOver() {
			list, all = append(list, listener{s, n}), all+n
		}
	}
	if !cut {
		return
	}
	slices.SortFunc(list, func(a, b listener) int { return cmp.Compare(b.n, a.n) })
	var sessions []*session
	for left := all / 2; left > 0; list = list[1:] {
		s, n := list[0].s, list[0].n
		s.srv.seldom.behind.count(n, "client", s.addr, "messages", n)
		s.out.cut()
		sessions, left = append(sessions, s), left-n
	}
	h.drop(sessions)
}

// listeners returns all clients that have subscriptions or track keys.
func (h *Hub) listeners() map[*session]struct{} {
	all := map[*session]struct{}{}
	h.mu.RLock()
	for _, names := range []*table[*subscribers]{&h.channels, &h.shards, &h.patterns} {
		for _, subs := range names.all() {
			maps.Copy(all, subs.m)
		}
	}
	h.mu.RUnlock()
	h.tracker.mu.Lock()
	defer h.tracker.mu.Unlock()
	for _, s := range h.tracker.sessions.m {
		all[s] = struct{}{}
	}
	return all
}

package cluster

import (
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// Clients that ask for a lock again and again (SET NX, scripts) wait for it, too. The leader remembers the last ones: they are in no state, and a
// new leader learns of them when they ask again.

const (
	mostPolls      = 4096             // how many are remembered
	mostPollsOfKey = 64               // how many of these for one lock
	pollOwner      = 256              // how many bytes of an owner's name
	pollFresh      = 2 * time.Second  // a client that asked so lately is still waiting,
	pollPauses     = 4                // or one that has let pass fewer than so many of its own pauses,
	pollLongest    = 10 * time.Second // but not so many
	pollApart      = time.Millisecond // two attempts within this time are one that ran twice
)

// pollKey names a lock: keys may be long, so it has a hash.
type pollKey struct {
	db   int
	hash uint64
}

// poll is an owner that has asked for a lock in vain.
type poll struct {
	key         pollKey
	owner, user string
	token       uint64 // of the lock for which it has asked last
	since, last time.Duration
	times       int64
}

// polls are the owners that have asked in vain last.
type polls struct {
	now  func() time.Duration
	seed maphash.Seed
	of   map[pollKey][]*poll
	ring []*poll // in the order in which they came; the oldest gives way
	next int
}

func newPolls(now func() time.Duration) *polls {
	return &polls{now: now, seed: maphash.MakeSeed(), of: map[pollKey][]*poll{}}
}

// asked notes that an owner has asked in vain.
func (p *polls) asked(db int, key string, token uint64, owner, user string) {
	at, now := pollKey{db, p.hash(key)}, p.now()
	owner = owner[:min(len(owner), pollOwner)]
	list := p.of[at]
	for _, w := range list {
		switch {
		case w.owner != owner || w.user != user:
			continue
		case now-w.last > pollLongest || token < w.token:
			w.since, w.times = now, 0
		case now-w.last < pollApart:
			w.token = token
			return
		}
		w.last, w.token = now, token
		w.times++
		return
	}
	w := &poll{at, strings.Clone(owner), user, token, now, now, 1}
	if len(list) < mostPollsOfKey {
		p.add(w)
		return
	}
	oldest := slices.MinFunc(list, func(a, b *poll) int { return int(a.last - b.last) })
	*oldest = *w
}

// add puts a new one into the ring, where the oldest gives way.
func (p *polls) add(w *poll) {
	if len(p.ring) < mostPolls {
		p.ring = append(p.ring, w)
	} else {
		old := p.ring[p.next]
		rest := slices.DeleteFunc(p.of[old.key], func(o *poll) bool { return o == old })
		if p.of[old.key] = rest; len(rest) == 0 {
			delete(p.of, old.key)
		}
		p.ring[p.next] = w
		p.next = (p.next + 1) % mostPolls
	}
	p.of[w.key] = append(p.of[w.key], w)
}

func (p *polls) hash(key string) uint64 { return maphash.String(p.seed, key) }

// each calls fn for the owners that still ask for the lock with a token, in the order in which they began, until fn returns false.
func (p *polls) each(db int, key string, token uint64, fn func(store.Waiter) bool) {
	if len(p.of) == 0 {
		return
	}
	now := p.now()
	for _, w := range p.of[pollKey{db, p.hash(key)}] {
		if w.token == token && w.asks(now) && !fn(store.Waiter{Owner: w.owner, User: w.user, Age: (now - w.since).Milliseconds()}) {
			return
		}
	}
}

// asks reports whether an owner still asks. One that has asked once may not mean to wait.
func (w *poll) asks(now time.Duration) bool {
	if w.times < 2 {
		return false
	}
	pause := (w.last - w.since) / time.Duration(w.times-1)
	return now-w.last <= min(max(pollFresh, pollPauses*pause), pollLongest)
}

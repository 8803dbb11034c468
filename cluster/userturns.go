package cluster

import (
	"maps"
	"math"
	"slices"
	"time"

	"lockstep/store"
)

// Users take turns. Whoever sends work of some time each by many connections would have all others wait for all of it,
// though none of it is long enough to be stopped. So the requests of a user whose work has taken much time lately go
// behind those of others. The requests of one user keep their order, by whatever connections they come: a client that gives
// up a release, and takes the lock again by another connection, counts on it.

const (
	// turnShare is how much time a user's work may have taken lately for its requests to keep their place.
	turnShare = 50 * time.Millisecond
	// turnMemory is after how long half of it is forgotten.
	turnMemory = time.Second
	// turnUsers is from how many users on those are looked for that may be forgotten.
	turnUsers = 1000
)

// userTurns is who has worked how much, and who waits for that.
type userTurns struct {
	used    map[string]use
	waiting []*request // of those who have used much, in order
	tried   int        // how many of them the present batch has …
	front   int        // … behind others
	passed  bool       // the last one has run others, and none of them
}

// use is how much time a user's work took, as it counts at some time.
type use struct {
	took time.Duration
	at   time.Duration // monotonic
}

func (u use) now(now time.Duration) time.Duration {
	return time.Duration(float64(u.took) * math.Exp2(-float64(now-u.at)/float64(turnMemory)))
}

// note counts work of a user.
func (t *userTurns) note(user string, cost, now time.Duration) {
	if t.used == nil {
		t.used = map[string]use{}
	}
	if len(t.used) >= turnUsers {
		maps.DeleteFunc(t.used, func(_ string, u use) bool { return u.now(now) < time.Millisecond })
	}
	if u, known := t.used[user]; known || len(t.used) < turnUsers {
		t.used[user] = use{u.now(now) + cost, now}
	}
}

// usesMuch reports whether a user's requests go behind those of others.
func (t *userTurns) usesMuch(user string, now time.Duration) bool {
	u, known := t.used[user]
	return known && u.now(now) > turnShare
}

// order puts the requests of those who have used much behind those of others.
func (t *userTurns) order(q []*request, now time.Duration) []*request {
	t.tried = 0
	if len(t.used) == 0 && len(t.waiting) == 0 {
		return q
	}
	if len(t.waiting) > 0 {
		q = slices.Concat(t.waiting, q) // they came before
		t.waiting = nil
	}
	last, is := store.SystemUser, false // many requests of one user follow one another
	behind := func(r *request) bool {
		user, any := r.user()
		if any && user != last {
			last, is = user, t.usesMuch(user, now)
		}
		return any && is
	}
	count := 0
	for _, r := range q {
		if behind(r) {
			count++
		}
	}
	if count == 0 || count == len(q) {
		t.tried, t.front = count, 0
		return q
	}
	front, back := make([]*request, 0, len(q)), make([]*request, 0, count)
	for _, r := range q {
		if behind(r) {
			back = append(back, r)
		} else {
			front = append(front, r)
		}
	}
	t.tried, t.front = len(back), len(front)
	if t.passed && len(front) > 0 {
		return slices.Concat(back[:1], front, back[1:])
	}
	return append(front, back...)
}

// leftOver takes what a batch has left over of what order returned, if these are only requests that go behind others: some may have come meanwhile.
func (t *userTurns) leftOver(rest []*request, now time.Duration) []*request {
	if t.tried == 0 {
		return rest
	}
	left := 0
	for _, r := range rest {
		if user, any := r.user(); any && t.usesMuch(user, now) {
			left++
		}
	}
	t.passed = left >= t.tried && len(rest)-left < t.front
	if left < len(rest) {
		return rest
	}
	t.waiting = rest
	return nil
}

// user is whose request it is; none for what nodes ask one another.
func (r *request) user() (name string, any bool) {
	if len(r.calls) == 0 || r.calls[0].User == store.SystemUser {
		return "", false
	}
	if name = r.calls[0].User; name == store.Anonymous {
		name = "" // its clients are the default user's, when the node knows them
	}
	return name, true
}

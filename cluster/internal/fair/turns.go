// Package fair decides in which order the leader runs what users have sent, and for how long their work may run.
package fair

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/store"
)

// Work is a request that waits for its turn.
type Work interface {
	// User returns the user's name. any is false for work of the cluster itself; if logins wait for it, the name is store.SystemUser.
	User() (name string, any bool)
	// Kind tells what is run.
	Kind() call.Kind
	// KeepsPlace reports whether clients build locks from such work. Only its kind can make such work heavy; else it overtakes its
	// user's heavy work.
	KeepsPlace() bool
	// Calls is how many commands it has.
	Calls() int
	// IsGone reports whether the node of its client has cut the client off.
	IsGone() bool
	// End ends the work without running it.
	End()
}

// Users take turns. Here a piece of work is *coarse* if it takes CoarsePiece or more, *heavy* if it takes HeavyPiece or more, and
// *light* if it is not heavy.
//
// Order. The requests of a user with much recent coarse work go behind those of others. The requests of one user keep their order over
// all its connections: a client may take a lock again by another connection before the reply to its release. There are two exceptions.
// Requests from which clients build locks overtake the user's heavy work. And if the user has much coarse work, its requests that are
// not coarse overtake those from which no locks are built.
//
// Heavy work. The leader predicts whether a request is heavy from recent work of the same kind and, unless clients build locks from it,
// of the same user. A batch runs at most one heavy request, and runs it first. Then the leader serves others for as long as that request
// took, turnRest at most. The time of a large write includes the time that its entry takes to reach the disks.
//
// Coarse work. A batch runs a few milliseconds of coarse pieces. Then the leader serves only other users for as long as the pieces and
// their entry took, turnRest at most.

const (
	// turnShare is how much recent coarse work a user may have before its requests go behind others. Users with much of it share
	// turnShare.
	turnShare = 50 * time.Millisecond
	// CoarsePiece is the time from which on a piece of work is coarse. A request of a lock takes a tenth of it.
	CoarsePiece = 100 * time.Microsecond
	// weighs predicts nothing before knownPieces commands of a kind, and never predicts that more than fewCalls commands are light.
	knownPieces = 2
	fewCalls    = 4
	// NoteCommit adds the time of a long commit to coarse work, but at most applyTimes the time of that work's evaluation.
	applyTimes = 20
	// HeavyPiece is the mean time of a piece above which the work of a user or of a kind is heavy.
	HeavyPiece = 20 * time.Millisecond
	// turnRest is for how long others are served between two pieces of heavy work, at most.
	turnRest = 2 * time.Second
	// If a user with much coarse work has run none for turnWait, its requests go before those of most other such users (byUse).
	turnWait = 50 * time.Millisecond
	// restFor is how long others may send no request before heavy work stops waiting for them.
	restFor = 100 * time.Millisecond
	// heavyMemory is a time after heavy work in which light work is noted, too (Counts).
	heavyMemory = 6 * turnMemory
)

// Turns knows how much time the work of each user and kind has taken lately, and holds the requests that wait for that reason.
type Turns[W Work] struct {
	used    uses[string]    // by users
	coarse  uses[string]    // by users, coarse pieces only
	kinds   uses[call.Kind] // by kinds of work that have been heavy
	weights uses[call.Kind] // by kinds of work, only work of users with much coarse work; a piece is one command
	waiting []W             // requests that go behind others, in order
	tried   int             // how many requests of the present batch went behind others
	front   int             // how many requests of the present batch come before those that tried counts
	passed  bool            // the last batch has run no request that went behind others
	ready   int             // how many requests in the field waiting are not heavy

	overtaken bool // heavy work has waited for a batch of other requests

	small time.Duration // mean time in which entries without large writes or coarse work are committed

	rough int           // the number of users with coarse work of more than HeavyTime
	ran   []piece       // coarse work of the present batch
	spent time.Duration // how long the coarse work of the present batch took
	pause time.Duration // until when users with much coarse work wait while other users send requests, monotonic
	calm  time.Duration // when a user with little coarse work last sent a request, monotonic

	rest   time.Duration // until when heavy work waits while others send requests, monotonic
	others [2]lightUse   // the last two users that sent light requests, the latest first
	heavy  time.Duration // until when light work is noted, too (Counts), monotonic
}

// lightUse is when a user last had a request that was not heavy.
type lightUse struct {
	user string
	at   time.Duration
}

// sees notes the users that have sent the requests q, which are not heavy.
func (t *Turns[W]) sees(q []W, now time.Duration) {
	for _, r := range q {
		user, any := r.User()
		if !any && user != store.SystemUser {
			continue
		}
		if user != t.others[0].user {
			t.others[1] = t.others[0]
		}
		t.others[0] = lightUse{user, now}
	}
}

// piece is coarse work of a user.
type piece struct {
	user string
	took time.Duration
}

// Note charges the user of a request with the time that the request took.
func (t *Turns[W]) Note(r W, cost, now time.Duration) {
	if user, any := r.User(); any {
		t.noteWork(user, r.Kind(), r.Calls(), cost, now)
	}
}

// noteWork charges a user, and a kind of work, with the time that work took.
func (t *Turns[W]) noteWork(user string, kind call.Kind, calls int, cost, now time.Duration) {
	if cost <= 0 {
		return
	}
	if t.used == nil {
		t.used, t.coarse, t.kinds, t.weights = uses[string]{}, uses[string]{}, uses[call.Kind]{}, uses[call.Kind]{}
	}
	t.used.note(user, 1, cost, now)
	if cost >= CoarsePiece {
		t.coarse.note(user, 1, cost, now)
		t.ran = append(t.ran, piece{user, cost})
		t.spent += cost
	}
	if cost >= HeavyPiece || t.kinds[kind].pieces > 0 {
		t.kinds.note(kind, 1, cost, now)
	}
	if t.usesMuch(user, now) {
		t.weights.note(kind, calls, cost, now)
	}
	if cost >= HeavyPiece {
		t.rest = max(t.rest, now+min(cost, turnRest))
		t.heavy = now + heavyMemory
	}
}

// LargeWrite is a request that has written much.
type LargeWrite struct {
	User  string
	Kind  call.Kind
	Bytes int
	Used  time.Duration // how long its evaluation took
}

// NoteCommit charges each large write with its evaluation and a share of the time by which the commit took longer than that of light
// work. If there are none, it charges coarse work with that time.
func (t *Turns[W]) NoteCommit(large []LargeWrite, entry int, took, now time.Duration) {
	more := max(took-t.small, 0)
	switch {
	case len(large) > 0:
	case t.spent > 0:
		t.noteApplied(min(more, applyTimes*t.spent), now)
	case t.small == 0:
		t.small = took
	default:
		t.small += (took - t.small) / 8
	}
	for _, w := range large {
		share := float64(w.Bytes) / float64(max(entry, w.Bytes))
		t.noteWork(w.User, w.Kind, 1, w.Used+time.Duration(float64(more)*share), now)
	}
}

// noteApplied adds the extra time of a commit to the coarse work of the batch, in proportion to each piece's time.
func (t *Turns[W]) noteApplied(took, now time.Duration) {
	for _, p := range t.ran {
		t.coarse.note(p.user, 1, time.Duration(float64(took)*float64(p.took)/float64(t.spent)), now)
	}
	t.spent += took
}

// Ended ends a batch. After long coarse work, users with much of it wait for as long, while others send requests.
func (t *Turns[W]) Ended(now time.Duration) {
	spent := t.spent
	t.ran, t.spent = t.ran[:0], 0
	if spent < HeavyTime {
		return
	}
	t.pause = now + min(spent, turnRest)
	t.rough = 0
	for _, u := range t.coarse {
		if u.now(now).took > HeavyTime {
			t.rough++
		}
	}
}

// Pressed reports whether users with little coarse work send requests.
func (t *Turns[W]) Pressed(now time.Duration) bool { return t.calm > 0 && now < t.calm+restFor }

// Pauses reports whether users with much coarse work have to wait.
func (t *Turns[W]) Pauses(now time.Duration) bool { return now < t.pause && t.Pressed(now) }

// Counts reports whether light work is to be noted, too: after heavy work, it lowers the mean of a user or a kind.
func (t *Turns[W]) Counts(now time.Duration) bool { return now < t.heavy }

// usesMuch reports whether a user's requests go behind those of others, because the user has had much coarse work lately.
func (t *Turns[W]) usesMuch(user string, now time.Duration) bool {
	return t.coarse[user].now(now).took > turnShare/time.Duration(max(t.rough, 1))
}

// isHeavy predicts whether a request is heavy, from the recent work of its user and of its kind.
func (t *Turns[W]) isHeavy(r W, user string, now time.Duration) bool {
	return t.Counts(now) && (!r.KeepsPlace() && t.used[user].now(now).isHeavy() || t.kinds[r.Kind()].now(now).isHeavy())
}

// weighs predicts whether a request is light (not coarse), or long (HeavyTime or more, so that it cannot be the release of a lock).
func (t *Turns[W]) weighs(r W, now time.Duration) (light, long bool) {
	u := t.weights[r.Kind()].now(now)
	if u.pieces < knownPieces {
		return false, false
	}
	mean := time.Duration(float64(u.took) / u.pieces)
	return mean < CoarsePiece && r.Calls() <= fewCalls, mean >= HeavyTime
}

// AnyLight reports whether q has a request of a kind not known to be heavy. Work of the cluster counts only if clients wait.
func (t *Turns[W]) AnyLight(q []W, now time.Duration) bool {
	return slices.ContainsFunc(q, func(r W) bool {
		user, any := r.User()
		return user == store.SystemUser || any && !t.kinds[r.Kind()].now(now).isHeavy()
	})
}

// Due reports whether any of the waiting requests may run now.
func (t *Turns[W]) Due(now time.Duration) bool {
	return !t.Pauses(now) && (t.ready > 0 || len(t.waiting) > 0 && t.holdsOf(t.waiting[0], now) <= 0)
}

// holdsOf returns for how long a heavy request is held back for the requests of other users.
func (t *Turns[W]) holdsOf(r W, now time.Duration) time.Duration {
	last := &t.others[0]
	if user, _ := r.User(); last.at == 0 || last.user == user {
		last = &t.others[1]
	}
	if last.at == 0 {
		return 0
	}
	return min(t.rest, last.at+restFor) - now
}

// Order returns the requests that are to run next: those of users with little coarse work, then the others, in the order of byUse. If
// the last batch ran none of the others, one of them goes first now. Heavy work waits while holdsOf says so, and for one batch of other
// requests. Then one heavy request goes before all. While Pauses is true, only users with little coarse work are served.
func (t *Turns[W]) Order(q []W, now time.Duration) []W {
	t.tried = 0
	if len(t.used) == 0 && len(t.waiting) == 0 {
		return q
	}
	if len(t.waiting) > 0 {
		q = slices.Concat(slices.DeleteFunc(t.waiting, EndIfGone[W]), q) // they came before
		t.waiting, t.ready = nil, 0
	}
	if t.allLight(q, now) {
		t.isCalm(q, now)
		return q
	}
	front, back, heavy, behind := t.part(q, now)
	t.isCalm(front, now)
	others := len(front)+len(back) > 0
	t.sees(front, now)
	t.sees(back, now)
	switch {
	case t.Pauses(now):
		t.waiting, t.ready = slices.Concat(back, heavy), len(back)
		back, heavy = nil, nil
	case len(heavy) == 0:
	case t.holdsOf(heavy[0], now) > 0 || others && !t.overtaken:
		t.waiting, heavy, t.overtaken = heavy, nil, true
	case others:
		t.waiting, heavy = heavy, nil
		if i := firstAlone(t.waiting, behind); i >= 0 {
			heavy, t.overtaken = t.waiting[i:i+1:i+1], false
			t.waiting = slices.Concat(t.waiting[:i], t.waiting[i+1:])
		}
	}
	t.tried, t.front = len(back), len(front)
	if t.passed && len(front) > 0 && len(back) > 0 {
		return slices.Concat(heavy, back[:1], front, back[1:])
	}
	return slices.Concat(heavy, front, back)
}

// isCalm notes when users with little coarse work sent requests. Work of the cluster counts only if clients wait for it.
func (t *Turns[W]) isCalm(q []W, now time.Duration) {
	if slices.ContainsFunc(q, func(r W) bool { user, any := r.User(); return any || user == store.SystemUser }) {
		t.calm = now
	}
}

// EndIfGone ends work whose client was cut off, and reports whether it did.
func EndIfGone[W Work](r W) bool {
	gone := r.IsGone()
	if gone {
		r.End()
	}
	return gone
}

// allLight reports whether all requests keep their places.
func (t *Turns[W]) allLight(q []W, now time.Duration) bool {
	if t.Counts(now) {
		return false
	}
	last := store.SystemUser // many requests of one user follow one another
	for _, r := range q {
		if user, any := r.User(); any && user != last {
			if last = user; t.usesMuch(user, now) {
				return false
			}
		}
	}
	return true
}

// part splits q into the requests that keep their places (front), those that go behind (back), and heavy ones. Within a user, requests
// that may be of a lock overtake heavy ones, and light ones overtake those in back that cannot be of a lock. behind has the users with a
// request in front or back before their first heavy one.
func (t *Turns[W]) part(q []W, now time.Duration) (front, back, heavy []W, behind map[string]bool) {
	front = make([]W, 0, len(q))
	var hogs map[string]bool              // users that have heavy work waiting
	var held map[string]bool              // users with a request in the slice back that may be of a lock
	last, much := store.SystemUser, false // many requests of one user follow one another
	for _, r := range q {
		user, any := r.User()
		if !any {
			front = append(front, r)
			continue
		}
		if user != last {
			last, much = user, t.usesMuch(user, now)
		}
		switch {
		case hogs[user] && !r.KeepsPlace():
			heavy = append(heavy, r)
		case t.isHeavy(r, user, now):
			if hogs == nil {
				hogs, behind = map[string]bool{}, map[string]bool{}
			}
			of := func(r W) bool { u, any := r.User(); return any && u == user }
			if !hogs[user] && (slices.ContainsFunc(front, of) || slices.ContainsFunc(back, of)) {
				behind[user] = true
			}
			hogs[user] = true
			heavy = append(heavy, r)
		case much:
			light, long := t.weighs(r, now)
			if light && !held[user] {
				front = append(front, r)
				continue
			}
			if r.KeepsPlace() && !long {
				if held == nil {
					held = map[string]bool{}
				}
				held[user] = true
			}
			back = append(back, r)
		default:
			front = append(front, r)
		}
	}
	return front, t.byUse(back, now, turnWait), t.byUse(heavy, now, math.MaxInt64), behind
}

// byUse orders the users of q, and keeps the order of each user's requests. Users with less than half of the mean coarse work go first,
// so that they need not wait for all others. Next go users who have run none for the time wait, so that newcomers cannot keep them
// waiting. The others follow by their coarse work.
func (t *Turns[W]) byUse(q []W, now, wait time.Duration) []W {
	of := map[string][]W{}
	for _, r := range q {
		user, _ := r.User()
		of[user] = append(of[user], r)
	}
	if len(of) < 2 {
		return q
	}
	type place struct {
		user         string
		took, waited time.Duration
		group        int
	}
	places, sum := make([]place, 0, len(of)), time.Duration(0)
	for user := range of {
		u := t.coarse[user]
		p := place{user: user, took: u.now(now).took}
		if w := now - u.at; w >= wait {
			p.waited = w
		}
		sum += p.took
		places = append(places, p)
	}
	for i := range places {
		if p := &places[i]; p.took >= sum/time.Duration(2*len(of)) {
			p.group = 1
		} else {
			p.waited = 0
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(b.waited, a.waited), cmp.Compare(a.took, b.took), cmp.Compare(a.user, b.user))
	})
	sorted := q[:0]
	for _, p := range places {
		sorted = append(sorted, of[p.user]...)
	}
	return sorted
}

// Idle reports whether LeftOver would return all that it gets, because nothing goes behind others.
func (t *Turns[W]) Idle(now time.Duration) bool {
	return t.tried == 0 && len(t.waiting) == 0 && !t.Counts(now)
}

// Waiting returns how many requests go behind others.
func (t *Turns[W]) Waiting() int { return len(t.waiting) }

// List returns the requests that go behind others. The caller must not change the slice.
func (t *Turns[W]) List() []W { return t.waiting }

// Drain takes out all requests that wait behind others, and returns them.
func (t *Turns[W]) Drain() []W {
	waiting := t.waiting
	t.waiting, t.ready = nil, 0
	return waiting
}

// LeftOver gets the requests that a batch has not run, and returns those for the next one. If all go behind others, they wait.
func (t *Turns[W]) LeftOver(rest []W, now time.Duration) []W {
	if t.Idle(now) {
		return rest
	}
	front, back, heavy, _ := t.part(rest, now)
	if t.tried > 0 {
		t.passed = len(back) >= t.tried && len(front) < t.front
	}
	if len(front) > 0 {
		// The requests that are left over stay before the waiting ones, because the same user may have sent them earlier.
		front = slices.Concat(front, back, heavy, t.waiting)
		t.waiting, t.ready = nil, 0
		return front
	}
	t.waiting, t.ready = slices.Concat(back, heavy, t.waiting), len(back)
	return nil
}

// firstAlone returns the index of the first heavy request whose user is not in the map behind (a result of part); -1: there is none.
func firstAlone[W Work](heavy []W, behind map[string]bool) int {
	return slices.IndexFunc(heavy, func(r W) bool {
		user, _ := r.User()
		return !behind[user]
	})
}

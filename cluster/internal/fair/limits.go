package fair

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

const (
	// LeastTime is the smallest time limit of a user whose work has been stopped many times, with one exception (rushTime).
	LeastTime = 50 * time.Millisecond
	// rushTime is the smallest limit while work that has to be stopped arrives without a break. Scripts that do little are exempt
	// (luavm).
	rushTime = time.Millisecond
	// RushMemory is the time after which a limit below LeastTime doubles again.
	RushMemory = time.Second
	// OverrunMemory is the time after which any other halved limit doubles again.
	OverrunMemory = time.Minute
	// GraceTime is how long work may take without shortening its user's limit (Spend). Spend shortens no limit to less than
	// GraceTime.
	GraceTime = 500 * time.Millisecond
	// GraceMemory is the time after which a limit that Spend has used up is whole again.
	GraceMemory = 5 * time.Minute
	// If Limits holds overrunUsers users or more, the method forget deletes those that have the full limit again.
	overrunUsers = 1000

	// ToldUsers is how many limits a node reports to others (Limits.Tell).
	ToldUsers = 16
	toldName  = 256
)

// everyone is the name in Limits for all users together. Their spending above one full limit shortens the limits of all users, down to
// GraceTime.
const everyone = store.SystemUser + "all"

// Limits holds the users whose work was stopped, or kept others waiting, lately. The zero value holds nobody.
type Limits struct {
	mu    sync.Mutex
	users map[string]overrun
}

// Overrun is what a node reports to the other nodes about a user in Limits, because one of them may be the next leader.
type Overrun struct {
	User     string
	Halvings int
	Rush     int
	Spent    time.Duration
}

type overrun struct {
	halvings int
	rush     int           // halvings below LeastTime
	last     time.Duration // monotonic time of the last halving

	spent  spending // by how much the user's limit is shorter
	shared spending // what the user has added to the spending of everyone
}

// spending is time that has been used up. It is given back evenly, a full limit in GraceMemory.
type spending struct {
	took time.Duration
	at   time.Duration // monotonic
}

func (s spending) left(full, now time.Duration) time.Duration {
	back := time.Duration(float64(full) * float64(now-s.at) / float64(GraceMemory))
	return max(s.took-back, 0)
}

// add increases the spending by a time, up to the value of the parameter most, and returns the increase.
func (s *spending) add(by, most, full, now time.Duration) (added time.Duration) {
	left := s.left(full, now)
	*s = spending{min(left+by, max(most, left)), now}
	return s.took - left
}

// halvings returns the number of halvings of a user's time limit that are in force now.
func (l *Limits) halvings(user string, now time.Duration) int {
	u := l.users[user]
	return max(u.halvings-int((now-u.last)/OverrunMemory), 0)
}

// rush returns how often the time limit of a user is halved below LeastTime now.
func (l *Limits) rush(user string, now time.Duration) int {
	u := l.users[user]
	return max(u.rush-int((now-u.last)/RushMemory), 0)
}

// Limit returns the part of the full time limit that a user has now.
func (l *Limits) Limit(user string, full, now time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit(user, full, now)
}

func (l *Limits) limit(user string, full, now time.Duration) time.Duration {
	left := full >> l.halvings(user, now)
	if left > LeastTime {
		together := max(l.users[everyone].spent.left(full, now)-full, 0)
		return min(left, max(full-max(l.users[user].spent.left(full, now), together), GraceTime))
	}
	return min(full, max(LeastTime>>l.rush(user, now), rushTime))
}

// Note halves the limit of a user whose work was stopped; below LeastTime, only if such work takes a quarter of all time. first: no
// earlier halving was in force.
func (l *Limits) Note(user string, took, full, now time.Duration) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(full, now)
	l.share(user, took, full, now)
	u := l.users[user]
	u.halvings, u.rush, u.last = l.halvings(user, now), l.rush(user, now), now
	first = u.halvings == 0
	switch left := l.limit(user, full, now); {
	case full>>u.halvings > LeastTime:
		u.halvings++
	case left > rushTime && now-l.users[user].last < 4*left:
		u.rush++
	}
	l.users[user] = u
	return first
}

// Spend shortens the time limit of a user whose work kept others waiting for the time in the parameter took, which must be more
// than GraceTime.
func (l *Limits) Spend(user string, took, full, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(full, now)
	u := l.users[user]
	u.spent.add(took-GraceTime, full, full, now)
	l.users[user] = u
	l.share(user, took, full, now)
}

// share adds work of more than GraceTime to everyone's spending. Each user adds a full limit at most, so one alone shortens no other.
func (l *Limits) share(user string, took, full, now time.Duration) {
	if took <= GraceTime {
		return
	}
	u, all := l.users[user], l.users[everyone]
	all.spent.add(u.shared.add(took, full, full, now), 2*full, full, now)
	l.users[user], l.users[everyone] = u, all
}

// Tell returns the entry for all users together (everyone) and then those of the users with the most halvings, and among equals with
// the most spent time. It returns ToldUsers entries at most, and none with a name longer than toldName.
func (l *Limits) Tell(full, now time.Duration) (list []Overrun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for user := range l.users {
		o := Overrun{user, l.halvings(user, now), l.rush(user, now), l.users[user].spent.left(full, now)}
		if o.Halvings+o.Rush > 0 || o.Spent > 0 {
			list = append(list, o)
		}
	}
	list = slices.DeleteFunc(list, func(o Overrun) bool { return len(o.User) > toldName })
	slices.SortFunc(list, func(a, b Overrun) int {
		switch everyone {
		case a.User:
			return -1
		case b.User:
			return 1
		}
		return cmp.Or(cmp.Compare(b.Halvings+b.Rush, a.Halvings+a.Rush), cmp.Compare(b.Spent, a.Spent), cmp.Compare(a.User, b.User))
	})
	return list[:min(len(list), ToldUsers)]
}

// Learn takes over another node's list, about age old, where its halvings or its spent time exceed what this node knows.
func (l *Limits) Learn(list []Overrun, age, full, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range list {
		l.forget(full, now)
		u := l.users[o.User]
		halvings, rush := max(o.Halvings-int(age/OverrunMemory), 0), max(o.Rush-int(age/RushMemory), 0)
		if cmp.Or(halvings-l.halvings(o.User, now), rush-l.rush(o.User, now)) > 0 {
			u.halvings, u.rush, u.last = halvings, rush, now
		}
		if spent := o.Spent - time.Duration(float64(full)*float64(age)/float64(GraceMemory)); spent > u.spent.left(full, now) {
			most := full
			if o.User == everyone {
				most = 2 * full
			}
			u.spent = spending{min(spent, most), now}
		}
		l.users[o.User] = u
	}
}

// forget deletes the users that have the full limit again, if there are many. It also makes the map of a zero Limits.
func (l *Limits) forget(full, now time.Duration) {
	if l.users == nil {
		l.users = map[string]overrun{}
	}
	if len(l.users) >= overrunUsers {
		maps.DeleteFunc(l.users, func(user string, u overrun) bool {
			return l.halvings(user, now) == 0 && u.spent.left(full, now)+u.shared.left(full, now) == 0
		})
	}
}

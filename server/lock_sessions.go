package server

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// Locks that live as long as a connection (LOCK.ACQUIRE … SESSION).
//
// The node of the client renews these locks while the connection lives, and releases them when it ends. If the node itself ends, nobody
// renews them, so they end with their leases. Each renewal and release names the lock's token, so it never touches the lock of a later owner
// of the same name.

const (
	// renewEvery is the pause between two rounds of renewals. A lock is renewed when a third of its lease is over.
	renewEvery = time.Second
	// renewAtOnce is the largest number of renewals in one submission, so that other clients need not wait long.
	renewAtOnce = 500
	// sessionLockCost is about how many bytes a session lock takes, without its names.
	sessionLockCost = 400
)

// lockName names a lock and its owner.
type lockName struct {
	db         int
	key, owner string
}

// sessionLock is a lock that a session holds.
type sessionLock struct {
	token string
	px    int64 // its lease in ms
	third time.Duration
	holds int64     // how often the session has taken it with SESSION, less how often it has released it
	due   time.Time // when it has to be renewed
	user  string    // who has taken it
	users uint64    // see session.caller
	bytes int64
}

// lockSessions has the locks of all sessions of the server.
type lockSessions struct {
	mu   sync.Mutex
	of   map[*session]map[lockName]*sessionLock
	busy bool // a goroutine renews them
}

// noteLock keeps account of a session's locks by the replies to LOCK.ACQUIRE and LOCK.RELEASE.
func (s *session) noteLock(cmd *store.Command, args [][]byte, db int, r store.Reply) {
	switch cmd {
	case s.srv.acquireCmd:
		if px, ok := store.SessionLease(args); ok && r.Kind == store.Array && len(r.Elems) == 3 {
			s.srv.locks.add(s, lockName{db, string(args[1]), string(args[2])}, r.Elems[0].Int, px)
		}
	case s.srv.releaseCmd:
		name := lockName{db, string(args[1]), string(args[2])}
		if r.Kind == store.Integer {
			s.srv.locks.released(s, name, r.Int)
		}
		if !r.IsError() && len(args) == 3 {
			s.srv.tickets.giveUp(s, name)
		}
	}
}

// add notes that a session has taken a lock, and renews it from now on.
func (l *lockSessions) add(s *session, name lockName, token, px int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[*session]map[lockName]*sessionLock{}
	}
	if l.of[s] == nil {
		l.of[s] = map[lockName]*sessionLock{}
	}
	lock, text := l.of[s][name], strconv.FormatInt(token, 10)
	third := time.Duration(min(px, maxSessionLease)) * time.Millisecond / 3
	if lock == nil || lock.token != text {
		fresh := &sessionLock{token: text, px: px, third: third, bytes: sessionLockCost + int64(len(name.key)+len(name.owner))}
		if lock == nil {
			s.holds(fresh.bytes)
		}
		lock = fresh // the former lock has ended
		l.of[s][name] = lock
	}
	lock.px, lock.third = max(lock.px, px), min(lock.third, third)
	lock.holds++
	lock.due = s.srv.cfg.Clock().Add(lock.third)
	lock.user, lock.users = s.caller()
	if !l.busy {
		l.busy = true
		go l.renew(s.srv)
	}
}

// maxSessionLease is a lease in ms: longer ones are renewed as often as this one.
const maxSessionLease = 24 * 3_600_000

// released notes that a session has released a lock, and how often its owner still holds the lock.
func (l *lockSessions) released(s *session, name lockName, left int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lock := l.of[s][name]; lock != nil {
		if lock.holds = min(lock.holds, left); lock.holds == 0 {
			l.drop(s, name)
		}
	}
}

// drop forgets a lock. The caller holds mu.
func (l *lockSessions) drop(s *session, name lockName) {
	locks := l.of[s]
	s.holds(-locks[name].bytes)
	if delete(locks, name); len(locks) == 0 {
		delete(l.of, s)
	}
}

// end releases the locks of a session that has ended.
func (l *lockSessions) end(s *session) {
	l.mu.Lock()
	locks := l.of[s]
	delete(l.of, s)
	l.mu.Unlock()
	if len(locks) == 0 {
		return
	}
	var calls []cluster.Call
	for name, lock := range locks {
		calls = append(calls, cluster.Call{Cmd: s.srv.releaseCmd, DB: name.db, RESP: 2, User: lock.user, Users: lock.users, Args: [][]byte{
			[]byte("LOCK.RELEASE"), []byte(name.key), []byte(name.owner), []byte("TOKEN"), []byte(lock.token), []byte("HOLDS"), strconv.AppendInt(nil, lock.holds, 10), []byte("LAPSE")}})
	}
	go func() {
		// If the leader cannot be reached in time, the locks end with their leases.
		for part := range slices.Chunk(calls, renewAtOnce) {
			s.srv.backend.Submit(part, nil)
		}
	}()
}

// renewal is a lock that is due.
type renewal struct {
	s    *session
	name lockName
	lock *sessionLock
}

// renew renews the locks of all sessions until there are none, or the server stops.
func (l *lockSessions) renew(srv *Server) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-srv.stop:
			return
		case <-tick.C:
		}
		if !l.round(srv) {
			return
		}
	}
}

// round renews the locks that are due. It returns false if there are none, due or not: then the next lock begins the rounds again.
func (l *lockSessions) round(srv *Server) (any bool) {
	l.mu.Lock()
	if len(l.of) == 0 {
		l.busy = false
		l.mu.Unlock()
		return false
	}
	list, calls := l.due(srv)
	l.mu.Unlock()
	for len(list) > 0 {
		n := min(len(list), renewAtOnce)
		sent := srv.cfg.Clock()
		l.renewed(list[:n], srv.backend.Submit(calls[:n:n], nil), sent)
		list, calls = list[n:], calls[n:]
	}
	return true
}

// due returns the locks that have to be renewed, and the calls that renew them. The caller holds mu.
func (l *lockSessions) due(srv *Server) (list []renewal, calls []cluster.Call) {
	now := srv.cfg.Clock()
	for s, locks := range l.of {
		for name, lock := range locks {
			if now.Before(lock.due) {
				continue
			}
			list = append(list, renewal{s, name, lock})
			calls = append(calls, cluster.Call{Cmd: srv.renewCmd, DB: name.db, RESP: 2, User: lock.user, Users: lock.users, Args: [][]byte{
				[]byte("LOCK.RENEW"), []byte(name.key), []byte(name.owner), []byte("PX"), strconv.AppendInt(nil, lock.px, 10), []byte("TOKEN"), []byte(lock.token), []byte("ATLEAST")}})
		}
	}
	return list, calls
}

// renewed notes the replies to renewals that were sent at the time sent. A lock that is not its session's any more is forgotten, and one that
// the user may not renew. After another error the lock is renewed in the next round.
func (l *lockSessions) renewed(list []renewal, replies []store.Reply, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, x := range list {
		if l.of[x.s][x.name] != x.lock || i >= len(replies) {
			continue // it has been released, and perhaps taken again, meanwhile
		}
		r := replies[i]
		if r.Kind == store.Noted {
			r = r.Elems[0]
		}
		switch {
		case r.Kind == store.Integer && r.Int > 0:
			x.lock.due = sent.Add(x.lock.third)
		case r.Kind == store.Integer, strings.HasPrefix(r.Str, "NOPERM"), strings.HasPrefix(r.Str, "WRONGTYPE"):
			l.drop(x.s, x.name)
		}
	}
}

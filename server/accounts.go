package server

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lockstep-io/lockstep/store"
)

// accounts holds the users as this node knows them from the log. Sessions point to accounts, so new rules apply at once.
//
// Lock order: the state machine's lock, then accounts.mu, then Server.mu, Hub.mu and session.mu.
type accounts struct {
	open    atomic.Bool // the default user is on and needs no password
	current atomic.Bool // since its start, this node has caught up with the leader's users at least once
	version atomic.Uint64
	heard   atomic.Uint64 // the latest version of the users that the leader has announced to this node
	def     *account
	cluster *accounts // for a Sentinel without Config.AnyClient: the accounts of the server for data, whose users the Sentinel admits

	mu     sync.Mutex
	latest store.Accounts // the users in the Raft log
	srv    *Server        // nil until bind
	env    store.ACLEnv   // what this node's configuration adds to latest
	init   *store.User    // the default user according to env, in use until the log sets one
	byName map[string]*account
	moved  chan struct{} // closed, and replaced by a new channel, at the end of every update
	warned bool          // comparePassword has logged its warning
}

// account is a user, or a deleted user.
type account struct {
	name string
	user atomic.Pointer[store.User]
	gone atomic.Bool // the user has been deleted; the field user then has no rights

	memory userMemory
}

func newAccounts() *accounts {
	def := &account{name: store.DefaultUser}
	return &accounts{def: def, byName: map[string]*account{def.name: def}, moved: make(chan struct{})}
}

// AccountsChanged implements store.AccountSink.
func (h *Hub) AccountsChanged(now store.Accounts) {
	a := h.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	a.latest = now
	if a.srv != nil {
		a.update()
	}
}

// UsersVersion returns the version of the users that this node has applied.
func (h *Hub) UsersVersion() uint64 { return h.accounts.version.Load() }

// bind gives the accounts their server, whose command table and sessions they need.
func (a *accounts) bind(srv *Server) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.srv, a.env = srv, srv.hub.ACL(srv.cfg.RequirePass, srv.cfg.ACLUsers)
	a.update()
}

// ACL returns what this node's configuration adds to the users in the log: its requirepass and the users of its ACL file.
func (h *Hub) ACL(password string, users []*store.User) store.ACLEnv {
	env := store.ACLEnv{PasswordHash: passwordHash(password)}
	for _, u := range users {
		env.Users = append(env.Users, store.PackedUser{Name: u.Name, Rules: u.Packed()})
	}
	return env
}

// passwordHash returns the hash of a password for store.ACLEnv; "" if there is no password.
func passwordHash(password string) string {
	if password == "" {
		return ""
	}
	return store.HashPassword([]byte(password))
}

// update brings the accounts to the state a.latest. It closes the connections that have lost their rights (dropAnonymous,
// expel). The caller holds mu.
func (a *accounts) update() {
	if a.init == nil || a.version.Load() == 0 {
		a.init = a.env.Initial(a.srv.table, a.latest.Version)
	}
	named := map[string]*store.User{store.DefaultUser: a.init}
	for _, acc := range a.latest.List {
		named[acc.Name] = acc.User(a.srv.table)
	}
	lost := losses{}
	remove := func(acc *account) {
		delete(a.byName, acc.name)
		acc.gone.Store(true)
		acc.user.Store(store.NewUser(a.srv.table, acc.name, false))
		lost[acc] = nil
	}
	if had := a.version.Load(); a.latest.Version != had {
		for _, name := range a.latest.Gone {
			if acc := a.byName[name]; acc != nil && acc != a.def {
				remove(acc) // if the map named has a user of this name, that user is a new one
			}
		}
		if had < a.latest.Forgotten {
			// A user with changed rules in a snapshot may be a new user with an old name, so the old account counts as deleted.
			for name, acc := range a.byName {
				if u := named[name]; acc != a.def && u != nil && u.Packed() != acc.user.Load().Packed() {
					remove(acc)
				}
			}
		}
	}
	for name, u := range named {
		acc := a.byName[name]
		if acc == nil {
			acc = &account{name: name}
			a.byName[name] = acc
		}
		if old := acc.user.Swap(u); old != nil && old != u && old.LosesChannels(u) {
			lost[acc] = u
		}
	}
	a.comparePassword()
	a.open.Store(a.def.user.Load().Open())
	if !a.open.Load() {
		a.dropAnonymous()
	}
	for name, acc := range a.byName {
		if named[name] == nil {
			remove(acc)
		}
	}
	a.expel(lost)
	a.version.Store(a.latest.Version)
	close(a.moved)
	a.moved = make(chan struct{})
}

// ruling returns the accounts that decide who may log in. A Sentinel that asks for passwords has those of the server for data.
func (a *accounts) ruling() *accounts {
	if a.cluster != nil {
		return a.cluster
	}
	return a
}

// protected reports whether protected mode refuses clients on other machines. It needs the result of ruling, because a Sentinel's own
// accounts never change.
func (a *accounts) protected() bool {
	return a.srv.params.protected.Load() && a.def.user.Load().NoPass
}

// admits reports whether the hash of a password is right for a user. The leader does not check again. So until this node has caught up,
// admits refuses the node's own default user and users without a password.
func (a *accounts) admits(acc *account, hashed string) bool {
	if a.cluster != nil {
		acc = a.cluster.get(acc.name)
		return acc != nil && a.cluster.admits(acc, hashed)
	}
	u := acc.user.Load()
	if !a.current.Load() && (u.NoPass || a.isInitial(u)) {
		return false
	}
	return u.HasPassword(hashed)
}

// admitted returns the account of a user for whom the password with this hash is right; nil if there is none.
func (a *accounts) admitted(name, hashed string) *account {
	if acc := a.get(name); acc != nil && a.admits(acc, hashed) {
		return acc
	}
	return nil
}

// userIn returns the named user of a list, or nil. This node's configuration supplies a default user that the list lacks.
func (a *accounts) userIn(users store.Accounts, name string) *store.User {
	for _, acc := range users.List {
		if acc.Name == name {
			return acc.User(a.srv.table)
		}
	}
	if name == store.DefaultUser {
		return a.env.Initial(a.srv.table, users.Version)
	}
	return nil
}

// isInitial reports whether a user is the default user of this node's configuration. That user is in use until the log sets a
// default user.
func (a *accounts) isInitial(u *store.User) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return u == a.init
}

// comparePassword logs a warning if this node's requirepass is not the password of the default user. The caller holds mu.
func (a *accounts) comparePassword() {
	if !a.current.Load() {
		return
	}
	pass, def := a.srv.cfg.RequirePass, a.def.user.Load()
	other := pass != "" && (def.NoPass || !def.Authenticate([]byte(pass)))
	if other && !a.warned {
		a.srv.cfg.Log.Warn("--requirepass is not the password of the default user: the cluster has another one, by the flag of its first node or by CONFIG SET requirepass or ACL SETUSER, and that counts; start the nodes with the present one from now on")
	}
	a.warned = other
}

// dropAnonymous closes unauthenticated connections with subscriptions, MONITOR or CLIENT TRACKING: their clients
// began these before this node knew that a password is necessary.
func (a *accounts) dropAnonymous() {
	var lost []*session
	a.eachOf(a.def, func(s *session) {
		if !s.authed.Load() && (s.subscriber() || s.monitoring.Load() || s.tracking.Load() != nil) {
			lost = append(lost, s)
		}
	})
	a.close(lost)
}

// setCurrent notes that this node has caught up with the leader. Connections of a default user without a password then count as
// authenticated.
func (a *accounts) setCurrent() {
	if a.current.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.current.Store(true)
	a.comparePassword()
	if a.open.Load() {
		a.eachOf(a.def, (*session).known)
	}
}

func (a *accounts) eachOf(acc *account, do func(*session)) {
	for _, s := range a.srv.each() {
		if s.account.Load() == acc {
			do(s)
		}
	}
}

// losses has the accounts that may have lost the right to a channel, each with its new rules, or nil for a deleted account.
type losses map[*account]*store.User

// expel closes the connections of deleted users, and those with a subscription that the user's new rules do not permit.
func (a *accounts) expel(lost losses) {
	if len(lost) == 0 {
		return
	}
	var ends, others []*session
	for _, s := range a.srv.each() {
		switch now, is := lost[s.account.Load()]; {
		case !is:
		case now == nil:
			ends = append(ends, s)
		default:
			others = append(others, s)
		}
	}
	a.close(append(ends, a.srv.hub.listenElsewhere(others, lost)...))
}

// close closes connections that have lost their rights. A goroutine ends many subscriptions: the caller may hold the state machine's
// lock.
func (a *accounts) close(lost []*session) {
	names, idle := 0, lost[:0]
	for _, s := range lost {
		if s.expel() {
			names, idle = names+int(s.subbed.Load()), append(idle, s)
		}
	}
	if names > fewNames {
		go a.srv.hub.drop(idle)
	} else {
		a.srv.hub.drop(idle)
	}
}

// lookSteps bounds the search for forbidden subscriptions under the state machine's lock. Each costs stepsOfSubscription, plus the
// steps of matching its name.
const (
	lookSteps           = 1 << 20
	stepsOfSubscription = 16
)

// listenElsewhere returns the sessions for which listensElsewhere is true. They share lookSteps, those with few subscriptions first.
func (h *Hub) listenElsewhere(sessions []*session, lost losses) (ends []*session) {
	if len(sessions) == 0 {
		return nil // without locking h.mu, for which the state machine would have to wait
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	has := func(s *session) (n int) {
		for kind := range s.subs {
			n += s.subs[kind].len()
		}
		return n
	}
	sessions = slices.DeleteFunc(sessions, func(s *session) bool { return has(s) == 0 })
	slices.SortFunc(sessions, func(a, b *session) int { return has(a) - has(b) })
	left := lookSteps
	for i, s := range sessions {
		part := left / (len(sessions) - i)
		left -= part
		// The session may have logged in as another user in the meantime.
		if u, is := lost[s.account.Load()]; is && s.listensElsewhere(u, &part) {
			ends = append(ends, s)
		}
		left += max(part, 0)
	}
	return ends
}

// listensElsewhere reports whether u does not permit a subscription of the session, or *left does not suffice to tell. The caller holds
// Hub.mu.
func (s *session) listensElsewhere(u *store.User, left *int) bool {
	for kind := range s.subs {
		for name := range s.subs[kind].all() {
			*left -= stepsOfSubscription
			if *left < 0 || u == nil || !u.MayListenWithin(name, subKind(kind) == subPattern, left) {
				return true
			}
		}
	}
	return false
}

// expel closes the connection of a session that has lost its rights, at once or after its submitted commands. If expel returns true,
// the caller must end the session's subscriptions.
func (s *session) expel() (now bool) {
	s.mu.Lock()
	running := s.running
	s.closing = true
	s.mu.Unlock()
	if !running || s.parked.Load() {
		s.out.abort()
		return true
	}
	s.out.closeToMessages()
	if s.blocked.Load() != nil {
		// unblock runs on a new goroutine, because this goroutine may hold the state machine's lock.
		go s.unblock()
	}
	return false
}

// get returns the account with a name; nil if there is none.
func (a *accounts) get(name string) *account {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byName[name]
}

// behind reports whether the leader has told this node of a version of the users that the node does not have yet.
func (a *accounts) behind() bool { return a.version.Load() < a.heard.Load() }

// hears notes the version of the users that the leader has announced to this node.
func (a *accounts) hears(version uint64) {
	for {
		heard := a.heard.Load()
		if heard >= version || a.heard.CompareAndSwap(heard, version) {
			return
		}
	}
}

// present returns the version of the users, and a channel that is closed at the next update of the accounts.
func (a *accounts) present() (uint64, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.version.Load(), a.moved
}

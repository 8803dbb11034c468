package server

import (
	"sync"
	"sync/atomic"

	"lockstep/store"
)

// accounts are the users as this node knows them: what the log has said up to
// now. Sessions hold the accounts of their users and see new rules at once.
//
// Lock order: the state machine's before accounts.mu before Server.mu, Hub.mu
// and session.mu.
type accounts struct {
	open    atomic.Bool // the default user is on and needs no password
	current atomic.Bool // since the start this has been as good as the leader's
	version atomic.Uint64
	def     *account

	mu     sync.Mutex
	latest store.Accounts // what the log has said
	srv    *Server        // nil until bind
	init   *store.User    // the default user until the log says something of it
	byName map[string]*account
	moved  chan struct{} // closed when version changes
	warned bool          // that requirepass is not what counts
}

// account is a user, or what used to be one.
type account struct {
	name string
	user atomic.Pointer[store.User]
	gone atomic.Bool // deleted; user may do nothing
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

// bind gives the accounts the table that their rules speak of, and the sessions
// that are to be closed.
func (a *accounts) bind(srv *Server) {
	a.mu.Lock()
	defer a.mu.Unlock()
	env := srv.hub.ACL(srv.cfg.RequirePass, srv.cfg.ACLUsers)
	a.srv, a.init = srv, env.Initial(srv.table)
	a.update()
}

// ACL is what this node adds to the users of the state. password is
// requirepass, users are of the ACL file.
func (h *Hub) ACL(password string, users []*store.User) store.ACLEnv {
	env := store.ACLEnv{PasswordHash: passwordHash(password)}
	for _, u := range users {
		env.Users = append(env.Users, store.PackedUser{Name: u.Name, Rules: u.Packed()})
	}
	return env
}

// passwordHash returns the form in which the password of the default user is
// kept; "" for none.
func passwordHash(password string) string {
	if password == "" {
		return ""
	}
	return store.HashPassword([]byte(password))
}

// update brings the accounts up to latest. mu is held.
func (a *accounts) update() {
	named := map[string]*store.User{store.DefaultUser: a.init}
	for _, acc := range a.latest.List {
		named[acc.Name] = acc.User(a.srv.table)
	}
	for name, u := range named {
		acc := a.byName[name]
		if acc == nil {
			acc = &account{name: name}
			a.byName[name] = acc
		}
		if old := acc.user.Swap(u); old != nil && old != u {
			a.dropListeners(acc, old, u)
		}
	}
	a.comparePassword()
	a.open.Store(a.def.user.Load().Open())
	if !a.open.Load() {
		a.dropAnonymous()
	}
	for name, acc := range a.byName {
		if named[name] == nil {
			delete(a.byName, name)
			acc.gone.Store(true)
			acc.user.Store(store.NewUser(a.srv.table, name, false))
			a.eachOf(acc, (*session).expel)
		}
	}
	a.version.Store(a.latest.Version)
	close(a.moved)
	a.moved = make(chan struct{})
}

// admits reports whether a password is a user's. As long as this node has not caught up with the leader, what
// it was started with is no user's, and nobody gets in without a password: what the leader
// knows of the user may say otherwise, and the leader believes this node.
func (a *accounts) admits(acc *account, password []byte) bool {
	u := acc.user.Load()
	if !a.current.Load() && (u.NoPass || a.isInitial(u)) {
		return false
	}
	return u.Authenticate(password)
}

// isInitial reports whether a user is the default user of a log that says nothing of it.
func (a *accounts) isInitial(u *store.User) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return u == a.init
}

// comparePassword says that requirepass is not the password of the default user, if the log
// has given it another or none. mu is held.
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

// dropAnonymous closes the connections of those who have begun to listen when
// this node did not know yet that they have to say who they are.
func (a *accounts) dropAnonymous() {
	a.eachOf(a.def, func(s *session) {
		if !s.authed.Load() && (s.subscriber() || s.monitoring.Load() || s.tracking.Load() != nil) {
			s.expel()
		}
	})
}

// setCurrent notes that this node has caught up with the leader. From now on
// who comes while the default user is open has been let in for good, as in
// Redis; and so has who is here now.
func (a *accounts) setCurrent() {
	if a.current.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.current.Store(true)
	a.comparePassword()
	if a.open.Load() {
		a.eachOf(a.def, func(s *session) { s.authed.Store(true) })
	}
}

func (a *accounts) eachOf(acc *account, do func(*session)) {
	for _, s := range a.srv.each() {
		if s.account.Load() == acc {
			do(s)
		}
	}
}

// dropListeners closes the connections of subscribers that may not listen any
// more.
func (a *accounts) dropListeners(acc *account, old, now *store.User) {
	keeps, lost := old.LostChannels(now)
	if !lost {
		return
	}
	a.eachOf(acc, func(s *session) {
		if a.srv.hub.listensElsewhere(s, keeps) {
			s.expel()
		}
	})
}

// listensElsewhere reports whether a session has a subscription that keeps
// does not cover.
func (h *Hub) listensElsewhere(s *session, keeps func(channel string, pattern bool) bool) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for kind, names := range s.subs {
		for name := range names {
			if !keeps(name, subKind(kind) == subPattern) {
				return true
			}
		}
	}
	return false
}

// expel closes a connection whose rights have gone: now, or when the commands
// that have been submitted are answered.
func (s *session) expel() {
	s.mu.Lock()
	running := s.running
	s.closing = true
	s.mu.Unlock()
	if !running {
		s.dropSubscriptions()
		s.out.abort()
		return
	}
	if s.blocked.Load() != nil {
		// Not from here: the state machine is locked.
		go s.unblock()
	}
}

// get returns an account; nil if there is none.
func (a *accounts) get(name string) *account {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byName[name]
}

// present returns the version and a channel that is closed when it changes.
func (a *accounts) present() (uint64, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.version.Load(), a.moved
}

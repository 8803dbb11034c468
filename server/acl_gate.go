package server

import (
	"cmp"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// mayRun returns why the session's user may not run a command; "" if it may.
func (s *session) mayRun(cmd *store.Command, args [][]byte) (refusal store.Error) {
	u := s.account.Load().user.Load()
	if u.Unrestricted() {
		return ""
	}
	why, _, steps := u.CheckSteps(cmd, args)
	s.checked += steps
	if why == store.Allowed {
		return ""
	}
	return why.Refusal(cmd)
}

// noteRefusal records a refusal in the ACL log. mayRun does not, because a loop may call mayRun several times for one command.
func (s *session) noteRefusal(cmd *store.Command, args [][]byte, refusal store.Error) {
	if cmd == nil || !strings.HasPrefix(string(refusal), "NOPERM ") {
		return
	}
	u := s.account.Load().user.Load()
	why, arg, steps := u.CheckSteps(cmd, args)
	s.checked += steps
	if why != store.Allowed {
		s.denied(store.Denial{Reason: why, Context: s.context(), Object: store.DeniedObject(cmd, args, why, arg), User: u.Name})
	}
}

// context returns whether the session is in a transaction.
func (s *session) context() store.DenyContext {
	if s.multi != nil || s.executing != nil {
		return store.InMulti
	}
	return store.AtTopLevel
}

// mayRunAtExec does what mayRun does for a queued command that this node runs, and records refusals. queued.may decides on SELECT.
func (s *session) mayRunAtExec(q *queued) (refusal store.Error) {
	u := s.account.Load().user.Load()
	why, arg, steps := u.CheckSteps(q.cmd, q.args)
	s.checked += steps
	if q.may != nil {
		why = *q.may
	}
	if why == store.Allowed {
		return ""
	}
	s.denied(store.Denial{Reason: why, Context: store.InMulti, Object: store.DeniedObject(q.cmd, q.args, why, arg), User: u.Name})
	return why.RefusalAtExec()
}

// mayAs returns why a caller may not run a queued command that this node runs at EXEC; store.Allowed if the caller may.
func (s *session) mayAs(caller string, q *queued) store.DenyReason {
	acc := s.srv.hub.accounts.get(store.UserOf(caller))
	if acc == nil {
		return store.DeniedCommand
	}
	why, _, steps := acc.user.Load().CheckSteps(q.cmd, q.args)
	s.checked += steps
	return why
}

// callerAfter returns what a queued AUTH or HELLO will change, without running it: the leader runs the later commands of the
// transaction first.
func (s *session) callerAfter(caller string, q *queued, known func() knowledge) (after string, resp int) {
	after = caller
	login := func(user, password []byte) store.Error {
		if known() != knowsAll {
			return errWrongPass
		}
		acc := s.srv.hub.accounts.admitted(string(user), store.HashPassword(password))
		switch {
		case acc == nil:
			return errWrongPass
		case acc == s.srv.hub.accounts.def:
			after = ""
		default:
			after = store.CallName(acc.name)
		}
		return ""
	}
	if q.cmd.FullName() == "auth" {
		s.readAuth(q.args, login)
	} else {
		resp, _ = readHello(q.args, login, func(string) {})
	}
	return after, resp
}

// stillMayListen ends the connection if the user lost a right meanwhile: the update of the accounts may not have seen the subscription.
func (s *session) stillMayListen(kind subKind, names [][]byte) {
	u := s.account.Load().user.Load()
	if u.Unrestricted() {
		return
	}
	if !u.MayListenToAll(names, kind == subPattern) {
		s.expel()
	}
}

// caller returns the user name for a call to the leader. By the version, the leader tells a deleted user from a namesake.
func (s *session) caller() (name string, users uint64) {
	users = s.srv.hub.accounts.version.Load() // read before the account: the version must not be newer than the account
	return s.callerAs(s.account.Load(), s.authed.Load(), users)
}

// callerAs is caller for an account that the session has had. If it is that of the default user, authed says whether the session had logged
// in. version is that of the users, read before.
func (s *session) callerAs(acc *account, authed bool, version uint64) (name string, users uint64) {
	users = version
	switch {
	case acc == s.srv.hub.accounts.def && authed:
		return "", users
	case acc == s.srv.hub.accounts.def:
		return store.Anonymous, users
	case acc.gone.Load():
		return store.CallName(acc.name), 1 // an old version, which tells the leader that the user has been deleted
	}
	return store.CallName(acc.name), users
}

// call returns a command of the session as a call for the leader.
func (s *session) call(cmd *store.Command, args [][]byte) cluster.Call {
	c := cluster.Call{Cmd: cmd, Args: args, DB: int(s.db.Load()), RESP: s.protocol(), Client: s.srv.numbers + uint64(s.id)*cluster.ClientStep}
	c.User, c.Users = s.caller()
	return c
}

// checkOperator returns why this node must not run a command for operators; "" if it may. Without a leader, asksNodeAlone and
// changesCluster decide.
func (s *session) checkOperator(cmd *store.Command, args [][]byte) (refusal store.Error) {
	a := s.srv.hub.accounts.ruling()
	srv := a.srv // for a Sentinel that asks for passwords: the server for data
	switch {
	case !cmd.Is(store.Admin) || ofSentinel(cmd) && !changesCluster(cmd):
		return ""
	case !s.authed.Load() && !a.current.Load() && (!asksNodeAlone(cmd) || cmd.FullName() == "lockstep|snapshot"):
		// This node may not have applied yet all log entries that set users.
		srv.catchUp()
		if !a.current.Load() {
			return cluster.ErrClusterDown
		}
	case asksNodeAlone(cmd) && !readsAll(cmd) && !srv.backend.Reaches() && !srv.pulse.stopped(srv.cfg.Clock()):
	default:
		search, patience := srv.patience(), srv.patience()
		switch {
		case changesCluster(cmd):
			search, patience = clusterTimes*search, clusterTimes*patience
		case readsOn(cmd, args):
			search = 0
		}
		switch k := srv.upToDate(search, patience); {
		case k != knowsAll && changesCluster(cmd):
			return errNoAnswer
		case k == knowsPast:
			return errRightsUnknown
		}
	}
	if s.needsAuth() {
		return store.ErrNoAuth
	}
	return s.mayAtSentinel(cmd)
}

// mayAtSentinel checks an operator's command by the user's present rules in the cluster. A command that only Sentinels have needs the
// right to FAILOVER.
func (s *session) mayAtSentinel(cmd *store.Command) (refusal store.Error) {
	a := s.srv.hub.accounts
	if a.cluster == nil {
		return ""
	}
	acc := a.cluster.get(s.account.Load().name)
	if acc == nil || s.proof != "" && !acc.user.Load().HasPassword(s.proof) {
		s.leave()
		return store.ErrNoAuth
	}
	words := []string{"failover"}
	if !ofSentinel(cmd) {
		words = strings.Split(cmd.FullName(), "|")
	}
	args := make([][]byte, len(words))
	for i, w := range words {
		args[i] = []byte(w)
	}
	same, ok := a.cluster.srv.table.Resolve(args)
	if !ok {
		return errBadCommand
	}
	if why, _, _ := acc.user.Load().CheckSteps(same, args); why != store.Allowed {
		return why.Refusal(cmd)
	}
	return ""
}

// ofSentinel reports whether a command is one that Sentinels alone have.
func ofSentinel(cmd *store.Command) bool { return strings.HasPrefix(cmd.FullName(), "sentinel|") }

// asksNodeAlone reports whether a node that has reached no leader runs a command for operators, by the users in its log.
func asksNodeAlone(cmd *store.Command) bool {
	switch cmd.FullName() {
	case "lockstep|status", "lockstep|members", "lockstep|backup", "lockstep|snapshot":
		return true
	}
	return false
}

// readsAll reports whether a command shows all of the data.
func readsAll(cmd *store.Command) bool { return cmd.FullName() == "lockstep|backup" }

// readsOn reports whether a command asks for a piece of a backup. Such a command need not wait: LOCKSTEP BACKUP BEGIN has looked for a
// leader.
func readsOn(cmd *store.Command, args [][]byte) bool {
	return readsAll(cmd) && len(args) > 2 && strings.EqualFold(string(args[2]), "read")
}

// changesCluster reports whether a command changes the members or the leader. A node runs it only with the rights that the leader
// knows.
func changesCluster(cmd *store.Command) bool {
	switch cmd.FullName() {
	case "lockstep|add", "lockstep|remove", "lockstep|transfer", "failover", "cluster|failover", "sentinel|failover", "replicaof", "slaveof":
		return true
	}
	return false
}

// userName returns the name of the session's user.
func (s *session) userName() string {
	if acc := s.account.Load(); acc != nil {
		return acc.name
	}
	return store.DefaultUser
}

// denied counts a refusal and records it in the ACL log of this node. It ignores a refusal whose reason is
// store.Undecided.
func (s *session) denied(d store.Denial) {
	if d.Reason == store.Undecided {
		return
	}
	s.srv.stats.denied(d.Reason)
	s.srv.aclLog.add(s.srv.cfg.Clock(), int(s.srv.params.aclLogMax.Load()), aclLogEntry{
		reason: d.Reason, context: d.Context, object: d.Object, user: d.User,
	}, s)
}

// settle records in the ACL log the refusals that the leader has attached to a reply, and returns the reply without them.
func (s *session) settle(r store.Reply) store.Reply {
	r, denials := store.DetachDenials(r)
	for _, d := range denials {
		s.denied(d)
	}
	return r
}

// login authenticates the connection, or returns why not. While known waits for the leader, a client with the right password is not cut
// off.
func (s *session) login(known func() knowledge, command, name, password []byte) (refusal store.Error) {
	hashed := store.HashPassword(password)
	if s.srv.hub.accounts.admitted(string(name), hashed) != nil {
		s.srv.trusts(s)
	}
	recent := known()
	if s.enter(string(name), hashed) {
		s.unsure = ""
		if recent != knowsAll {
			s.unsure = hashed
		}
		return ""
	}
	switch a := s.srv.hub.accounts.ruling(); {
	case !a.current.Load():
		return cluster.ErrClusterDown
	case a.behind():
		return errBehind // the password may be a new one
	}
	s.denied(store.Denial{Reason: store.DeniedAuth, Context: s.context(), Object: string(command), User: string(name)})
	return errWrongPass
}

func (s *session) enter(name, hashed string) bool {
	acc := s.srv.hub.accounts.admitted(name, hashed)
	if acc == nil {
		return false
	}
	before := s.account.Swap(acc)
	// accounts.update expels the sessions of a deleted account. If it deleted acc before the Swap, it has not found this
	// session.
	if acc.gone.Load() {
		s.account.Store(before)
		return false
	}
	if s.srv.hub.accounts.cluster != nil {
		s.proof = hashed
	}
	s.known()
	return true
}

// known marks the session as authenticated. The operating system then keeps more of its input, and Server.meets notes its address.
func (s *session) known() {
	if !s.authed.Swap(true) {
		widenInput(s.conn.Conn, s.srv.inputOf(true))
		s.srv.meets(s.from)
	}
}

// sure checks the login's password again if this node had accepted the password before it knew all that the leader knows (s.unsure).
// Commands that MULTI queues need no check, because sure checks EXEC.
func (s *session) sure(cmd *store.Command, args [][]byte) (refusal store.Error) {
	if s.unsure == "" || greets(cmd) || cmd.Is(store.AllowBusy) && s.srv.backend.Busy() {
		return ""
	}
	patience := clusterTimes * s.srv.patience()
	search := cmp.Or(s.srv.cfg.FailoverWait, patience)
	if readsOn(cmd, args) {
		search, patience = 0, s.srv.patience()
	}
	if s.srv.upToDate(search, patience) != knowsAll {
		switch {
		case asksNodeAlone(cmd):
			return ""
		case s.srv.backend.Removed():
			return cluster.ErrRemoved
		}
		return cluster.ErrClusterDown
	}
	right := s.account.Load().user.Load().HasPassword(s.unsure)
	s.unsure = ""
	if !right {
		s.leave()
		return store.ErrNoAuth
	}
	return ""
}

// greets reports whether a command may come before a sure login. Refusing MULTI, SELECT or CLIENT CACHING would change what the next
// commands mean.
func greets(cmd *store.Command) bool {
	switch cmd.FullName() {
	case "multi", "discard", "unwatch",
		"ping", "echo", "select", "info", "client|setname", "client|getname", "client|setinfo", "client|id", "client|reply", "client|caching":
		return true
	}
	return cmd.Is(store.NoAuth) || cmd.Name == "command" || asksNodeAlone(cmd) && !readsAll(cmd)
}

// leave makes the session one of the default user, authenticated only if that user needs no password and this node has caught up.
func (s *session) leave() {
	s.unsure, s.proof = "", ""
	s.account.Store(s.srv.hub.accounts.def)
	a := s.srv.hub.accounts.ruling()
	s.authed.Store(a.current.Load() && a.open.Load())
}

// catchUpTimeout bounds how long catchUp waits for the users in the leader's answer. It is Server.patience's default.
const catchUpTimeout = time.Second

// catchUp waits until this node knows the leader's present users, or until it fails. It reports whether this node's users have changed.
func (srv *Server) catchUp() (learned bool) {
	learned, _ = srv.catchUpOr()
	return learned
}

// catchUpOr does what catchUp does, and also returns why it failed.
func (srv *Server) catchUpOr() (learned bool, refusal store.Error) {
	a := srv.hub.accounts
	before, _ := a.present()
	r := srv.usersVersion()
	if r.Kind != store.Integer {
		return false, store.Error(r.Str)
	}
	a.hears(uint64(r.Int))
	timer := time.NewTimer(catchUpTimeout)
	defer timer.Stop()
	for {
		version, moved := a.present()
		if version >= uint64(r.Int) {
			a.setCurrent()
			return version != before, ""
		}
		select {
		case <-moved:
		case <-timer.C:
			return version != before, cluster.ErrClusterDown
		}
	}
}

// learnPause is the pause of learnUsers and upToDate between two attempts to reach a leader.
const learnPause = 50 * time.Millisecond

// learnUsers asks the leader for the users until this node has caught up with them (accounts.current), or until the
// server stops.
func (srv *Server) learnUsers() {
	tick := time.NewTicker(learnPause)
	defer tick.Stop()
	defer srv.compareACLFile()
	for said := false; !srv.hub.accounts.current.Load(); {
		if srv.backend.Reaches() {
			learned, refusal := srv.catchUpOr()
			if learned {
				continue
			}
			if said = said || refusal == "" || refusal == cluster.ErrClusterDown; !said {
				said = true
				srv.cfg.Log.Error("the leader does not tell of the users: nobody is let in here", "error", refusal)
			}
		}
		select {
		case <-tick.C:
		case <-srv.stop:
			return
		}
	}
}

// needsNoPassword reports whether the default user accepts any password. It asks the leader before it
// answers yes, because this node may be behind.
func (srv *Server) needsNoPassword() bool {
	a := srv.hub.accounts.ruling()
	if !a.def.user.Load().NoPass {
		return false
	}
	a.srv.upToDate(0, a.srv.patience())
	return a.current.Load() && a.def.user.Load().NoPass
}

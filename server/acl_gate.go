package server

import (
	"cmp"
	"strings"
	"time"

	"lockstep/cluster"
	"lockstep/store"
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

// noteRefusal records a command in the ACL log if it was refused because rights were missing. mayRun itself does not record
// refusals, because a loop may call it several times for one command.
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

// mayRunAtExec does what mayRun does, for a queued command that this node, not the leader, runs at EXEC. It also
// records a refusal in the ACL log. For SELECT, it returns what askExec has decided before the call to the leader
// (queued.may).
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

// callerAfter works out what a queued AUTH or HELLO will change, without running it. The leader needs to know this,
// because it runs the later commands of the transaction before this node runs AUTH or HELLO. callerAfter returns the
// caller of these later commands, and the protocol that HELLO asks for; 0 if it asks for none. The function known asks
// the leader for the users. If this node does not learn all that the leader knows, the caller stays the same.
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

// stillMayListen ends the connection if the user lost the right to a channel while the session subscribed to it. The update
// of the accounts that took the right away may not have seen the subscription yet.
func (s *session) stillMayListen(kind subKind, names [][]byte) {
	u := s.account.Load().user.Load()
	if u.Unrestricted() {
		return
	}
	if !u.MayListenToAll(names, kind == subPattern) {
		s.expel()
	}
}

// caller returns the user name for a call to the leader, and the version of the users that this node has. With the version,
// the leader can tell a deleted user from a new user of the same name.
func (s *session) caller() (name string, users uint64) {
	users = s.srv.hub.accounts.version.Load() // read before the account: the version must not be newer than the account
	acc := s.account.Load()
	switch {
	case acc == s.srv.hub.accounts.def && s.authed.Load():
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
	c := cluster.Call{Cmd: cmd, Args: args, DB: int(s.db.Load()), RESP: s.protocol()}
	c.User, c.Users = s.caller()
	return c
}

// checkOperator returns why this node must not run a command for operators. It returns "" if the node may run it, or if the
// command is for everybody. First, checkOperator brings this node's users up to date with the leader, because a client of
// another node may have changed them. If no leader answers, asksNodeAlone and changesCluster say what the node may still
// run. The leader itself checks the commands that the leader runs.
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

// mayAtSentinel returns why a client of a Sentinel may not run a command for operators; "" if it may. It checks the user's
// present rules in the cluster, because after the login the user may have been deleted, or may have got another password. The
// user needs the right to the cluster's command of the same name. For a command that only Sentinels have, the user needs the
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

// asksNodeAlone reports whether a node runs an operator's command even if it has reached no leader since its start. For
// such a command, the node decides by the log entries about users that it has applied. If the first node of the cluster
// was started with a password, an early log entry has set the password. So even a node that has reached no leader asks
// for it.
func asksNodeAlone(cmd *store.Command) bool {
	switch cmd.FullName() {
	case "lockstep|status", "lockstep|members", "lockstep|backup", "lockstep|snapshot":
		return true
	}
	return false
}

// readsAll reports whether a command shows all of the data.
func readsAll(cmd *store.Command) bool { return cmd.FullName() == "lockstep|backup" }

// readsOn reports whether a command asks for a piece of a backup. There are many such commands, and LOCKSTEP BACKUP BEGIN has
// already looked for a leader. So none of them waits for a leader. If there is a leader, this node asks it for the users
// again at each piece.
func readsOn(cmd *store.Command, args [][]byte) bool {
	return readsAll(cmd) && len(args) > 2 && strings.EqualFold(string(args[2]), "read")
}

// changesCluster reports whether a command asks for a change of the members or of the leader. A node
// runs it only if the node knows the rights that the leader knows.
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

// login checks a user name and a password, and authenticates the connection or returns why not. The argument command is
// the name of the command as the client wrote it. The function known says how recent the users and passwords of this
// node are; it may wait for the leader. If the password is right by the users that this node has, the server does not
// cut the client off during that wait to make room for others (Server.trusts).
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

// known marks the session as authenticated, and lets the operating system keep more of its input. It also notes that a
// client at the session's address has authenticated (Server.meets).
func (s *session) known() {
	if !s.authed.Swap(true) {
		widenInput(s.conn.Conn, s.srv.inputOf(true))
		s.srv.meets(s.from)
	}
}

// sure returns why the session may not run a command; "" if it may. This node may have accepted the password of the session's
// login before it knew all that the leader knows (s.unsure). In that case sure checks the password again.
//
// Three kinds of commands need no second check: those for which the function greets returns true; those with the flag
// AllowBusy, while this node is the leader and busy with a script; and those that MULTI queues, because sure checks EXEC. If
// the leader does not answer, sure also permits the commands for which asksNodeAlone returns true.
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

// greets reports whether a command is one that clients and operators begin with. The reply to such a command shows no
// key, no value and nothing secret. MULTI, SELECT and CLIENT CACHING must be among these commands, because they change
// what the next commands mean. If the node refused one of them and a leader came right after, the next commands in a
// pipeline would run with another meaning.
func greets(cmd *store.Command) bool {
	switch cmd.FullName() {
	case "multi", "discard", "unwatch",
		"ping", "echo", "select", "info", "client|setname", "client|getname", "client|setinfo", "client|id", "client|reply", "client|caching":
		return true
	}
	return cmd.Is(store.NoAuth) || cmd.Name == "command" || asksNodeAlone(cmd) && !readsAll(cmd)
}

// leave undoes the session's login. The session then belongs to the default user, like a new session. It counts as
// authenticated only if the default user needs no password and this node has caught up with the leader.
func (s *session) leave() {
	s.unsure, s.proof = "", ""
	s.account.Store(s.srv.hub.accounts.def)
	a := s.srv.hub.accounts.ruling()
	s.authed.Store(a.current.Load() && a.open.Load())
}

// catchUpTimeout bounds how long catchUp waits, after the leader's answer, until this node has applied the users that
// the leader knows. It is also the default of Server.patience.
const catchUpTimeout = time.Second

// catchUp waits until this node knows the users that the leader knows now, or until it fails (catchUpOr). It reports
// whether the users that this node knows have changed.
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

// learnPause is the pause between two attempts to reach a leader. A node that has just started makes this pause before it
// asks for the users again (learnUsers). The method upToDate makes it before it looks for a leader again.
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

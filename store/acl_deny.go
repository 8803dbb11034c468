package store

// Denial is a command that was refused during evaluation. The node that the client is connected to
// puts it into its ACL log.
type Denial struct {
	Reason  DenyReason
	Context DenyContext
	Object  string
	User    string
}

// DenyContext says where a command was refused.
type DenyContext uint8

const (
	// AtTopLevel means a command that is in neither a transaction nor a script.
	AtTopLevel DenyContext = iota
	// InMulti means a command that a client queues after MULTI, or that EXEC runs.
	InMulti
	// InLua means a command that a script called.
	InLua
)

// String returns the context as ACL LOG writes it.
func (c DenyContext) String() string { return [...]string{"toplevel", "multi", "lua"}[c] }

// Authorize checks again what the client's node has checked, perhaps with an outdated user table (of version users, 0 if unknown). It sets
// c.User, and c.Caller to the user's name. If c.User is nil, the user may do everything. The argument user is "", Anonymous, SystemUser or a result of CallName.
func (c *Ctx) Authorize(user string, users uint64) (refusal Reply, ok bool) {
	if c.User = nil; user == SystemUser {
		return Reply{}, true
	}
	if c.Caller = UserOf(user); user == "" && !c.guarded() {
		return Reply{}, true
	}
	return c.authorize(user, users)
}

func (c *Ctx) authorize(user string, users uint64) (refusal Reply, ok bool) {
	anonymous := user == Anonymous
	user = UserOf(user)
	u := c.Txn.User(c.Cmd.table, user)
	if anonymous && !u.Open() {
		return Err(ErrNoAuth), false
	}
	if same, forgotten := true, false; users > 0 && u != nil && user != DefaultUser {
		if same, forgotten = c.Txn.sameUser(user, users); forgotten {
			return Err(ErrUsersChanged), false
		} else if !same {
			u = nil // the account belongs to another user: the name was deleted and created again
		}
	}
	if u == nil {
		// The client's user was deleted in the meantime, so the client has no rights.
		u = NewUser(c.Cmd.table, user, false)
	}
	if u.free {
		return Reply{}, true
	}
	c.User = u
	why, arg, steps := u.CheckSteps(c.Cmd, c.Args)
	c.steps += CheckedSteps(steps) // not c.work, which may call Watch: Watch may panic, and only the callers of Run expect that
	if why == Allowed {
		return Reply{}, true
	}
	c.Deny(u, c.Cmd, c.Args, why, arg)
	if c.InMulti {
		return Err(why.RefusalAtExec()), false
	}
	return Err(why.Refusal(c.Cmd)), false
}

// maxDenied limits the refusals of one call in the ACL log; maxObject limits the bytes of a refused key or channel.
const (
	maxDenied = 128
	maxObject = 64 << 10
)

// Deny records a refusal for the ACL log.
func (c *Ctx) Deny(u *User, cmd *Command, args [][]byte, why DenyReason, arg int) {
	if len(c.denied) >= maxDenied || why == Undecided {
		return
	}
	context := AtTopLevel
	switch {
	case c.InScript:
		context = InLua
	case c.InMulti:
		context = InMulti
	}
	c.denied = append(c.denied, Denial{Reason: why, Context: context, Object: DeniedObject(cmd, args, why, arg), User: u.Name})
}

// DeniedObject returns the object of a refusal as ACL LOG names it.
func DeniedObject(cmd *Command, args [][]byte, why DenyReason, arg int) string {
	if why == DeniedCommand {
		return cmd.FullName()
	}
	return string(args[arg][:min(len(args[arg]), maxObject)])
}

// Refusal returns the error reply to a command that is not allowed.
func (r DenyReason) Refusal(cmd *Command) Error {
	switch r {
	case DeniedKey:
		return ErrNoPermKey
	case DeniedChannel:
		return ErrNoPermChannel
	case Undecided:
		return ErrUndecided
	}
	return ErrNoPermCommand(cmd.FullName())
}

// RefusalAtExec returns the error reply to a queued command that is no longer allowed when EXEC
// runs.
func (r DenyReason) RefusalAtExec() Error {
	switch r {
	case DeniedKey:
		return ErrExecPerm("no permission to touch the specified keys")
	case DeniedChannel:
		return ErrExecPerm("no permission to access one of the channels used as arguments")
	case Undecided:
		return ErrUndecided
	}
	return ErrExecPerm("no permission to execute the command or subcommand")
}

// AttachDenials returns the reply together with the denials since the last call of AttachDenials, so that
// they reach the client's node.
func (t *Txn) AttachDenials(r Reply) Reply {
	if len(t.denied) == 0 {
		return r
	}
	r = Reply{Kind: Noted, Elems: []Reply{r}}
	for _, d := range t.denied {
		r.Elems = append(r.Elems, List(Int(int64(d.Reason)), Int(int64(d.Context)), Str(d.Object), Str(d.User)))
	}
	t.denied = nil
	return r
}

// DetachDenials separates a reply from its attached denials.
func DetachDenials(r Reply) (Reply, []Denial) {
	if r.Kind != Noted || len(r.Elems) == 0 {
		return r, nil
	}
	var list []Denial
	for _, e := range r.Elems[1:] {
		if len(e.Elems) != 4 {
			continue
		}
		if reason, context := uint64(e.Elems[0].Int), uint64(e.Elems[1].Int); reason <= uint64(DeniedChannel) && context <= uint64(InLua) {
			list = append(list, Denial{Reason: DenyReason(reason), Context: DenyContext(context), Object: e.Elems[2].Str, User: e.Elems[3].Str})
		}
	}
	return r.Elems[0], list
}

package server

import (
	"strings"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

func connectionRows() []row {
	const noAuth = store.NoScript | store.Loading | store.Stale | store.Fast | store.NoAuth | store.AllowBusy | store.Connection
	return []row{
		{Command: store.Command{
			Name: "ping", Arity: -1, Flags: store.Fast | store.Connection, Group: "connection", Since: "1.0.0",
			Summary: "Answers PONG, or the message.", Usage: "[message]", Run: runPing,
			Tips: []string{"request_policy:all_shards", "response_policy:all_succeeded"},
		}, do: doPing},
		{Command: store.Command{
			Name: "echo", Arity: 2, Flags: store.Loading | store.Stale | store.Fast | store.Connection, Group: "connection", Since: "1.0.0",
			Summary: "Answers the message.", Usage: "message", Run: runEcho,
		}, do: doEcho},
		{Command: store.Command{
			Name: "hello", Arity: -1, Flags: noAuth, Group: "connection", Since: "6.0.0",
			Summary: "Greets the server: chooses the protocol version, authenticates and names the connection.",
			Usage:   "[protover [AUTH username password] [SETNAME clientname]]",
		}, do: doHello},
		{Command: store.Command{
			Name: "auth", Arity: -2, Flags: noAuth, Group: "connection", Since: "1.0.0",
			Summary: "Authenticates the connection.", Usage: "[username] password",
		}, do: doAuth},
		{Command: store.Command{
			Name: "quit", Arity: -1, Flags: noAuth, Group: "connection", Since: "1.0.0",
			Summary: "Closes the connection.",
		}, do: doQuit},
		{Command: store.Command{
			Name: "reset", Arity: 1, Flags: noAuth, Group: "connection", Since: "6.2.0",
			Summary: "Returns the connection to the state of a new one.",
		}, do: doReset},
	}
}

// runPing runs PING in a script.
func runPing(c *store.Ctx) store.Reply { return ping(c.Args) }

func ping(args [][]byte) store.Reply {
	switch len(args) {
	case 1:
		return store.Status("PONG")
	case 2:
		return store.Str(string(args[1]))
	}
	return store.Err(store.ErrWrongArgs("ping"))
}

// doPing answers a RESP2 client that has subscriptions with an array, like a message; it gives other clients a plain reply.
func doPing(s *session, args [][]byte) store.Reply {
	if len(args) > 2 || s.protocol() != 2 || !s.subscriber() {
		return ping(args)
	}
	text := ""
	if len(args) == 2 {
		text = string(args[1])
	}
	return store.Strs("pong", text)
}

func runEcho(c *store.Ctx) store.Reply { return store.Str(c.Arg(1)) }

func doEcho(_ *session, args [][]byte) store.Reply { return store.Str(string(args[1])) }

func doAuth(s *session, args [][]byte) store.Reply {
	login := func(user, password []byte) store.Error { return s.login(s.asksOnce(), args[0], user, password) }
	if refusal := s.readAuth(args, login); refusal != "" {
		return store.Err(refusal)
	}
	return store.OK
}

// readAuth reads an AUTH, and calls login. It returns the error of the command, or "".
func (s *session) readAuth(args [][]byte, login func(user, password []byte) store.Error) store.Error {
	switch {
	case len(args) > 3:
		return store.ErrSyntax
	case len(args) == 3:
		return login(args[1], args[2])
	case s.srv.needsNoPassword():
		return errNoPassword
	}
	return login([]byte(store.DefaultUser), args[1])
}

// maxHelloLogins bounds the AUTH options in one HELLO, because a login compares the given password with all passwords of the user.
const maxHelloLogins = 8

// doHello executes its options one by one: options before an error keep their effect. It asks the leader at most once for changed
// passwords.
func doHello(s *session, args [][]byte) store.Reply {
	known := s.asksOnce()
	resp, refusal := readHello(args, func(user, password []byte) store.Error { return s.login(known, args[0], user, password) }, s.setName)
	switch {
	case refusal != "":
		return store.Err(refusal)
	case s.needsAuth():
		return store.Err(errHelloNoAuth)
	case resp == 0:
		resp = s.protocol()
	}
	r := store.MapOf(
		store.Str("server"), store.Str("redis"),
		store.Str("version"), store.Str(store.RedisVersion),
		store.Str("proto"), store.Int(int64(resp)),
		store.Str("id"), store.Int(s.id),
		store.Str("mode"), store.Str(s.mode()),
	)
	if s.srv.watch == nil {
		role := "replica"
		if s.srv.leads() {
			role = "master"
		}
		r.Elems = append(r.Elems, store.Str("role"), store.Str(role))
	}
	r.Elems = append(r.Elems, store.Str("modules"), store.List())
	return s.speak(resp, r)
}

// readHello calls login and setName for the options of a HELLO, up to the first error. resp is the requested protocol, or 0.
func readHello(args [][]byte, login func(user, password []byte) store.Error, setName func(string)) (resp int, refusal store.Error) {
	if len(args) > 1 {
		n, ok := redistext.ParseInt(args[1])
		switch {
		case !ok:
			return 0, errProtoInteger
		case n != 2 && n != 3:
			return 0, errNoProto
		}
		resp = int(n)
	}
	logins := 0
	for i := 2; i < len(args); {
		switch opt := strings.ToLower(string(args[i])); {
		case opt == "auth" && i+2 < len(args) && logins < maxHelloLogins:
			logins++
			if refusal := login(args[i+1], args[i+2]); refusal != "" {
				return 0, refusal
			}
			i += 3
		case opt == "setname" && i+1 < len(args):
			if !validName(args[i+1]) {
				return 0, errClientName
			}
			setName(string(args[i+1]))
			i += 2
		default:
			return 0, errHelloOption(args[i])
		}
	}
	return resp, ""
}

// leads reports whether this node is the leader, as far as it knows.
func (srv *Server) leads() bool {
	id, _ := srv.backend.LeaderClient()
	return id == srv.cfg.NodeID
}

func doQuit(s *session, _ [][]byte) store.Reply {
	s.closeAfterReply()
	return store.OK
}

func doReset(s *session, _ [][]byte) store.Reply {
	s.reset()
	return s.speak(2, store.Status("RESET"))
}

func doSelect(s *session, args [][]byte) store.Reply {
	n, refusal := parseDB(args[1])
	if refusal != "" {
		return store.Err(refusal)
	}
	s.db.Store(int32(n))
	return store.OK
}

// parseDB parses the number of a database.
func parseDB(arg []byte) (int, store.Error) {
	n, ok := redistext.ParseInt(arg)
	switch {
	case !ok:
		return 0, store.ErrNotInteger
	case n < -1<<31 || n > 1<<31-1:
		return 0, store.ErrIntRange(-1<<31, 1<<31-1)
	case n < 0 || n >= store.Databases:
		return 0, store.ErrDBIndex
	}
	return int(n), ""
}

func doScriptKill(s *session, args [][]byte) store.Reply {
	return s.askScript(args, s.srv.backend.KillScript)
}

// askScript checks the user's right again, and asks the leader. The leader must not get a newer version of the users than the check
// used.
func (s *session) askScript(args [][]byte, ask func(users uint64) store.Reply) store.Reply {
	_, users := s.caller()
	cmd, _ := s.srv.table.Resolve(args)
	if refusal := s.mayRun(cmd, args); refusal != "" {
		return store.Err(refusal)
	}
	defer s.idle()()
	return ask(users)
}

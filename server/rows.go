package server

import (
	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// handler runs a command on the node that the client is connected to, or for a script on the leader (RunInScript).
type handler func(s *session, args [][]byte) store.Reply

// row is a command with its handler and the rows of its subcommands. The method row.command adds the flag store.Local to the command.
type row struct {
	store.Command
	do  handler
	sub []row
}

// rows returns every command of this package.
func rows() []row {
	var all []row
	for _, group := range [][]row{
		connectionRows(), aclRows(), clientRows(), commandRows(), configRows(), pubsubRows(), multiRows(),
		serverRows(), clusterRows(), observeRows(), historyRows(), lockstepRows(),
		memoryRows(), replicationRows(), curiousRows(),
	} {
		all = append(all, group...)
	}
	return all
}

// Commands returns the commands of this package, for the command table.
func Commands() []store.Command {
	var list []store.Command
	for _, r := range rows() {
		list = append(list, r.command())
	}
	return list
}

func (r *row) command() store.Command {
	c := r.Command
	c.Flags |= store.Local
	for i := range r.sub {
		sub := r.sub[i].command()
		if sub.Group == "" {
			sub.Group = c.Group
		}
		c.Sub = append(c.Sub, sub)
	}
	return c
}

// bindHandlers returns the handlers of this package, and those for a few other commands: SELECT, because the database belongs to the
// session, and some that must not wait for a script.
func bindHandlers(table *store.Table) map[*store.Command]handler {
	byName := map[string]handler{
		"select":         doSelect,
		"script|kill":    doScriptKill,
		"function|kill":  doFunctionKill,
		"function|stats": doFunctionStats,
	}
	for _, r := range rows() {
		if r.do != nil {
			byName[r.Name] = r.do
		}
		for _, sub := range r.sub {
			byName[r.Name+"|"+sub.Name] = sub.do
		}
	}
	bound := map[*store.Command]handler{}
	bind := func(cmd *store.Command) {
		if do := byName[cmd.FullName()]; do != nil {
			bound[cmd] = do
		}
	}
	for _, cmd := range table.All() {
		bind(cmd)
		for i := range cmd.Sub {
			bind(&cmd.Sub[i])
		}
	}
	return bound
}

// findInPlace returns the commands that an event loop may run itself, because their handlers do not wait (exceptions: loop.mayWait).
func findInPlace(handlers map[*store.Command]handler) map[*store.Command]bool {
	found := map[*store.Command]bool{}
	for cmd := range handlers {
		switch cmd.FullName() {
		case "multi", "exec", "discard", "watch", "unwatch", // EXEC: see session.execWaits
			"ping", "echo", "select", "time", "quit", "reset", "client|tracking", "client|caching",
			"subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe":
			found[cmd] = true
		}
	}
	return found
}

// findGrants returns the commands, except scripts and transactions, that may grant a lease: they give a key a deadline relative to
// the present time.
func findGrants(table *store.Table) map[*store.Command]bool {
	found := map[*store.Command]bool{}
	for _, name := range []string{"set", "setex", "psetex", "getex", "expire", "pexpire", "restore", "lock.acquire", "lock.renew"} {
		found[table.Lookup([]byte(name))] = true
	}
	return found
}

// findKills returns the commands that end a script.
func findKills(handlers map[*store.Command]handler) map[*store.Command]bool {
	found := map[*store.Command]bool{}
	for cmd := range handlers {
		if name := cmd.FullName(); name == "script|kill" || name == "function|kill" {
			found[cmd] = true
		}
	}
	return found
}

// RunInScript runs a command of this package that a script has called. The handler must ask the backend for nothing that waits for the
// script's end.
func (srv *Server) RunInScript(c *store.Ctx) store.Reply {
	do := srv.handlers[c.Cmd]
	if do == nil || c.Cmd.Is(store.NoScript) && !srv.AllowsInScript(c.Cmd) {
		return store.Err(errBadCommand)
	}
	s := &session{srv: srv, script: c}
	s.resp.Store(int32(c.RESP))
	return s.run(do, c.Args)
}

// AllowsInScript reports whether scripts may call a command that is normally forbidden to them: DEBUG, after DEBUG
// SET-DISABLE-DENY-SCRIPTS 1.
func (srv *Server) AllowsInScript(cmd *store.Command) bool {
	return srv.debugInScripts.Load() && cmd == srv.debugCmd && srv.cfg.EnableDebugCommand == "yes"
}

// status returns the node's status for INFO. For a script, it has only the fields that can be filled without the backend.
func (s *session) status() cluster.Status {
	if s.script == nil {
		return s.srv.backend.Status()
	}
	st := cluster.Status{ID: s.srv.cfg.NodeID, Role: cluster.Leader, LeaderID: s.srv.cfg.NodeID}
	for db := range st.Keys {
		st.Keys[db] = s.script.Size(db)
	}
	st.Libraries, st.Functions = s.script.CountLibraries()
	return st
}

const helpSummary = "Lists the subcommands."

// helpRow returns the HELP subcommand of a command with subcommands, such as CLIENT HELP.
func helpRow(container, since string, flags store.Flags) row {
	return row{
		Command: store.Command{
			Name: "help", Arity: 2, Flags: store.Loading | store.Stale | flags, Since: since,
			Summary: helpSummary,
		},
		do: func(s *session, _ [][]byte) store.Reply {
			return help(s.srv.table.Lookup([]byte(container)))
		},
	}
}

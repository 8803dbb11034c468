package server

import (
	"crypto/rand"
	"encoding/hex"
	"strings"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// aclRows are the ACL commands. The leader runs those about the users, which are replicated. This node runs ACL SAVE and the others.
func aclRows() []row {
	const (
		plain = store.NoScript | store.Loading | store.Stale
		admin = plain | store.Admin
	)
	sub := func(name string, arity int, flags store.Flags, usage, summary string) store.Command {
		return store.Command{Name: name, Arity: arity, Flags: flags, Since: "6.0.0", Usage: usage, Summary: summary}
	}
	local := func(c store.Command, do handler) row { return row{Command: c, do: do} }
	evaluated := func(c store.Command, run store.Handler) row {
		c.Run = run
		return row{Command: c}
	}
	changing := func(c store.Command, run store.Handler) row {
		c.Run = run
		return row{Command: c, do: doChangeUsers}
	}
	dryrun := sub("dryrun", -4, admin, "username command [arg [arg ...]]", "Tells whether a user may run a command, without running it.")
	dryrun.Since = "7.0.0"
	load := evaluated(sub("load", 2, admin, "", "Makes the users of this node's ACL file (--aclfile) those of the cluster."), runACLLoad)
	load.do = doACLLoad
	save := local(sub("save", 2, admin, "", "Writes the users of the cluster into this node's ACL file (--aclfile)."), doACLSave)
	return []row{{
		Command: store.Command{Name: "acl", Arity: -2, Group: "server", Since: "6.0.0", Summary: "Commands about users and what they may do."},
		sub: []row{
			local(sub("cat", -2, plain, "[category]", "Lists the categories, or the commands in one."), doACLCat),
			changing(sub("deluser", -3, admin, "username [username ...]", "Deletes users and closes their connections."), runDelUser),
			evaluated(dryrun, runDryRun),
			local(sub("genpass", -2, plain, "[bits]", "Makes up a password."), doGenPass),
			evaluated(sub("getuser", 3, admin, "username", "Shows the rules of a user."), runGetUser),
			helpRow("acl", "6.0.0", 0),
			evaluated(sub("list", 2, admin, "", "Shows the rules of all users, as they can be given to ACL SETUSER."), runACLList),
			load,
			local(sub("log", -2, admin, "[count|RESET]", "Shows what this node has refused of late."), doACLLog),
			save,
			changing(sub("setuser", -3, admin, "username [rule [rule ...]]", "Adds a user or changes its rules, on every node."), runSetUser),
			evaluated(sub("users", 2, admin, "", "Lists the names of all users."), runUsers),
			local(sub("whoami", 2, plain, "", "Tells the name of the connection's user."), doWhoAmI),
		},
	}}
}

func doWhoAmI(s *session, _ [][]byte) store.Reply { return store.Str(s.userName()) }

func doACLCat(s *session, args [][]byte) store.Reply {
	switch len(args) {
	case 2:
		return store.Strs(store.ACLCategories()...)
	case 3:
		names, ok := s.srv.table.InCategory(string(args[2]))
		if !ok {
			return store.Err(errUnknownCategory(args[2]))
		}
		return store.Strs(names...)
	}
	return store.Err(errSubcommandArgs("acl", args[1]))
}

// genPassBits is the default length of a password from ACL GENPASS in bits, and maxGenPassBits is the maximum.
const (
	genPassBits    = 256
	maxGenPassBits = 4096
)

func doGenPass(_ *session, args [][]byte) store.Reply {
	bits := int64(genPassBits)
	if len(args) > 3 {
		return store.Err(errSubcommandArgs("acl", args[1]))
	}
	if len(args) == 3 {
		n, ok := redistext.ParseInt(args[2])
		switch {
		case !ok:
			return store.Err(store.ErrNotInteger)
		case n <= 0 || n > maxGenPassBits:
			return store.Err(errGenPassBits)
		}
		bits = n
	}
	digits := (bits + 3) / 4
	b := make([]byte, (digits+1)/2)
	// crypto/rand does not return errors: it ends the process instead.
	_, _ = rand.Read(b)
	return store.Str(hex.EncodeToString(b)[:digits])
}

func doACLLog(s *session, args [][]byte) store.Reply {
	count := int64(aclLogShown)
	switch {
	case len(args) > 3:
		return store.Err(errSubcommandArgs("acl", args[1]))
	case len(args) == 3 && strings.EqualFold(string(args[2]), "reset"):
		s.srv.aclLog.reset()
		return store.OK
	case len(args) == 3:
		n, ok := redistext.ParseInt(args[2])
		if !ok {
			return store.Err(store.ErrNotInteger)
		}
		count = max(n, 0)
	}
	return s.srv.aclLog.show(s.build(), s.srv.cfg.Clock(), count)
}

// doChangeUsers has the leader change users, and then calls catchUp, so that a new user can usually log in here at once.
func doChangeUsers(s *session, args [][]byte) store.Reply {
	cmd, _ := s.srv.table.Resolve(args)
	r := s.askLeader(s.call(cmd, args))
	if !r.IsError() && r.Kind != store.Noted {
		defer s.idle()()
		s.srv.catchUp()
	}
	return s.settle(r)
}

// changesUsers reports whether doChangeUsers runs a command. In a transaction, EXEC does not wait until this node knows the change.
func changesUsers(cmd *store.Command) bool {
	switch cmd.FullName() {
	case "acl|setuser", "acl|deluser":
		return true
	}
	return false
}

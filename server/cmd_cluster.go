package server

import (
	"strings"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// lockstepRows are the server's own administration commands.
func lockstepRows() []row {
	const flags = store.NoScript | store.Loading | store.Stale | store.Admin
	sub := func(name string, arity int, usage, summary string, do handler) row {
		return row{Command: store.Command{Name: name, Arity: arity, Flags: flags, Since: "1.0.0", Usage: usage, Summary: summary}, do: do}
	}
	return []row{{
		Command: store.Command{Name: "lockstep", Arity: -2, Group: "server", Since: "1.0.0", Summary: "Administration of the lockstep cluster."},
		sub: []row{
			sub("add", 4, "member-id peer-address", "Takes a node into the cluster, or gives a member another peer address.", doAdd),
			sub("backup", -3, "<BEGIN | READ backup>", "Reads a backup of the state in pieces.", doBackup),
			helpRow("lockstep", "1.0.0", 0),
			sub("members", 2, "", "Lists the members of the cluster.", doMembers),
			sub("remove", 3, "member-id", "Takes a member out of the cluster.", doRemove),
			sub("snapshot", 2, "", "Writes a snapshot of this node's state and waits for it.", doSave),
			sub("status", 2, "", "Describes this node, with the hash of its state.", doStatus),
			sub("transfer", -2, "[member-id]", "Hands leadership to a member, or to any.", doTransfer),
		},
	}}
}

func doStatus(s *session, _ [][]byte) store.Reply {
	begun := s.srv.cfg.Clock()
	index, hash, err := s.srv.backend.StateHash(s.client)
	s.own.paid += s.srv.cfg.Clock().Sub(begun)
	if err != nil {
		return store.Err(errf("ERR %v", err))
	}
	st := s.srv.backend.Status() // after StateHash, which may take long: the status must not be older than the hash
	keys, deadlines := 0, 0
	for db := range st.Keys {
		keys += st.Keys[db]
		deadlines += st.Deadlines[db]
	}
	leader, addr := s.srv.backend.LeaderClient()
	text := func(k, v string) []store.Reply { return []store.Reply{store.Str(k), store.Str(v)} }
	num := func(k string, n uint64) []store.Reply { return []store.Reply{store.Str(k), store.Int(int64(n))} }
	r := store.MapOf()
	for _, pair := range [][]store.Reply{
		text("id", s.srv.cfg.NodeID),
		text("role", string(st.Role)),
		text("membership", string(st.Membership)),
		text("leader", leader),
		text("leader-client", addr),
		num("leader-for", uint64(seconds(st.LeaderFor))),
		num("term", st.Term),
		num("commit", st.Commit),
		num("applied", st.Applied),
		num("sequence", st.Sequence),
		num("state-index", index), // the log entry that state-hash belongs to; the node may have applied more since
		text("state-hash", hash),
		num("keys", uint64(keys)),
		num("deadlines", uint64(deadlines)),
		num("scripts", uint64(st.Scripts)),
		num("expired", st.Expired),
		num("clients", uint64(s.srv.clients())),
		num("uptime", uint64(seconds(s.srv.cfg.Clock().Sub(s.srv.started)))),
	} {
		r.Elems = append(r.Elems, pair...)
	}
	return r
}

func doMembers(s *session, _ [][]byte) store.Reply {
	if s.srv.backend.Removed() {
		return store.Err(cluster.ErrRemoved) // this node knows only the members from before its removal
	}
	members, err := s.srv.backend.Members()
	if err != nil {
		return store.Err(errf("ERR %v", err))
	}
	r := store.List()
	for _, m := range members {
		r.Elems = append(r.Elems, describeMember(m))
	}
	return r
}

func describeMember(m cluster.Member) store.Reply {
	return store.MapOf(
		store.Str("id"), store.Str(m.ID),
		store.Str("peer"), store.Str(m.PeerAddr),
		store.Str("client"), store.Str(m.Client),
		store.Str("leader"), store.Flag(m.Leader),
		store.Str("voter"), store.Flag(m.Voter),
		store.Str("up"), store.Flag(m.Up),
		store.Str("state"), store.Str(memberState(m)),
		store.Str("behind"), store.Int(int64(m.Behind)),
		store.Str("version"), store.Str(m.Version),
		store.Str("priority"), store.Int(int64(m.Wish.Priority)),
		store.Str("never-lead"), store.Flag(m.Wish.Never),
	)
}

// memberState returns the state of a member in one word, for an operator who adds or replaces a member.
func memberState(m cluster.Member) string {
	switch {
	case m.Leader:
		return "leader"
	case !m.Up:
		return "down"
	case !m.Voter && m.Wish.Learner:
		return "learner"
	case !m.Voter:
		return "catching-up"
	}
	return "voter"
}

// doAdd and doRemove reply when the change of the membership is committed. An added member may still have to catch up then.
func doAdd(s *session, args [][]byte) store.Reply {
	return administered(s.srv.backend.Add(string(args[2]), string(args[3])))
}

func doRemove(s *session, args [][]byte) store.Reply {
	return administered(s.srv.backend.Remove(string(args[2])))
}

func administered(err error) store.Reply {
	if err != nil {
		// An error from a peer may already begin with the code ERR.
		return store.Err(errf("ERR %s", strings.TrimPrefix(err.Error(), "ERR ")))
	}
	return store.OK
}

func doTransfer(s *session, args [][]byte) store.Reply {
	if len(args) > 3 {
		return store.Err(store.ErrWrongArgs("lockstep|transfer"))
	}
	id := ""
	if len(args) == 3 {
		if id = string(args[2]); id == "" {
			return store.Err(errNoMember)
		}
	}
	return administered(s.srv.backend.Transfer(id))
}

package server

import (
	"strings"

	"lockstep/cluster"
	"lockstep/store"
)

// lockstepRows are our own administration.
func lockstepRows() []row {
	const flags = store.NoScript | store.Loading | store.Stale | store.Admin
	sub := func(name string, arity int, usage, summary string, do handler) row {
		return row{Command: store.Command{Name: name, Arity: arity, Flags: flags, Since: "1.0.0", Usage: usage, Summary: summary}, do: do}
	}
	return []row{{
		Command: store.Command{Name: "lockstep", Arity: -2, Group: "server", Since: "1.0.0", Summary: "Administration of the lockstep cluster."},
		sub: []row{
			helpRow("lockstep", "1.0.0", 0),
			sub("members", 2, "", "Lists the members of the cluster.", doMembers),
			sub("snapshot", 2, "", "Writes a snapshot of this node's state and waits for it.", doSave),
			sub("status", 2, "", "Describes this node, with the hash of its state.", doStatus),
			sub("transfer", -2, "[member-id]", "Hands leadership to a member, or to any.", doTransfer),
		},
	}}
}

func doStatus(s *session, _ [][]byte) store.Reply {
	st := s.srv.backend.Status()
	index, hash, err := s.srv.backend.StateHash()
	if err != nil {
		return store.Err(errf("ERR %v", err))
	}
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
		text("leader", leader),
		text("leader-client", addr),
		num("term", st.Term),
		num("commit", st.Commit),
		num("applied", st.Applied),
		num("sequence", st.Sequence),
		num("state-index", index),
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
	)
}

func doTransfer(s *session, args [][]byte) store.Reply {
	if len(args) > 3 {
		return store.Err(store.ErrWrongArgs("lockstep|transfer"))
	}
	id := ""
	if len(args) == 3 {
		id = string(args[2])
	}
	if err := s.srv.backend.Transfer(id); err != nil {
		// The error may carry a code of its own when it comes from a peer.
		return store.Err(errf("ERR %s", strings.TrimPrefix(err.Error(), "ERR ")))
	}
	return store.OK
}

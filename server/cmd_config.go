package server

import (
	"strings"

	"lockstep/store"
)

func configRows() []row {
	const admin = store.Admin | store.NoScript | store.Loading | store.Stale
	return []row{{
		Command: store.Command{
			Name: "config", Arity: -2, Group: "server", Since: "2.0.0",
			Summary: "Commands about the configuration.",
		},
		sub: []row{
			{Command: store.Command{
				Name: "get", Arity: -3, Flags: admin, Since: "2.0.0", Usage: "parameter [parameter ...]",
				Summary: "Returns the parameters that match the patterns.",
			}, do: doConfigGet},
			helpRow("config", "5.0.0", 0),
			{Command: store.Command{
				Name: "resetstat", Arity: 2, Flags: admin, Since: "2.0.0",
				Summary: "Sets the counters that INFO shows to zero.",
			}, do: doConfigResetStat},
			{Command: store.Command{
				Name: "rewrite", Arity: 2, Flags: admin, Since: "2.8.0",
				Summary: "Writes the configuration to its file; this server has none.",
			}, do: doConfigRewrite},
			{Command: store.Command{
				Name: "set", Arity: -4, Flags: admin, Since: "2.0.0", Usage: "parameter value [parameter value ...]",
				Summary: "Changes parameters of this node, all or none.",
				Tips:    []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
			}, do: doConfigSet},
		},
	}}
}

func doConfigGet(s *session, args [][]byte) store.Reply {
	return store.MapOf(s.srv.params.get(args[2:])...)
}

func doConfigSet(s *session, args [][]byte) store.Reply {
	if len(args)%2 != 0 {
		return store.Err(store.ErrSyntax)
	}
	if refusal := s.setSharedParams(args[2:]); refusal != "" {
		return store.Err(refusal)
	}
	if refusal := s.srv.params.set(args[2:]); refusal != "" {
		return store.Err(refusal)
	}
	return store.OK
}

// setSharedParams sets what all nodes have in common, if every pair is right:
// requirepass is the password of the default user, who is the same everywhere.
func (s *session) setSharedParams(pairs [][]byte) store.Error {
	for i := 0; i < len(pairs); i += 2 {
		if !strings.EqualFold(string(pairs[i]), "requirepass") {
			continue
		}
		if refusal := s.srv.params.check(pairs); refusal != "" {
			return refusal
		}
		return s.srv.setPassword(string(pairs[i+1]))
	}
	return ""
}

func doConfigResetStat(s *session, _ [][]byte) store.Reply {
	s.srv.stats.reset()
	return store.OK
}

func doConfigRewrite(*session, [][]byte) store.Reply { return store.Err(errNoConfigFile) }

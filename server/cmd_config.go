package server

import (
	"time"

	"github.com/lockstep-io/lockstep/store"
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
				Run:     runConfigGet,
			}, do: doConfigGet},
			helpRow("config", "5.0.0", 0),
			{Command: store.Command{
				Name: "resetstat", Arity: 2, Flags: admin, Since: "2.0.0",
				Summary: "Sets the counters that INFO shows to zero.",
			}, do: doConfigResetStat},
			{Command: store.Command{
				Name: "rewrite", Arity: 2, Flags: admin, Since: "2.8.0",
				Summary: "Writes the parameters of this node that CONFIG SET has changed into its configuration file.",
			}, do: doConfigRewrite},
			{Command: store.Command{
				Name: "set", Arity: -4, Flags: admin, Since: "2.0.0", Usage: "parameter value [parameter value ...]",
				Summary: "Changes parameters of this node, and those that the cluster shares, all or none.",
				Run:     runConfigSet,
				Tips:    []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
			}, do: doConfigSet},
		},
	}}
}

func doConfigGet(s *session, args [][]byte) store.Reply {
	list, ok := s.srv.params.get(args[2:], s.paramsElsewhere)
	if !ok {
		return store.Err(errManyPatterns)
	}
	return store.MapOf(list...)
}

func doConfigSet(s *session, args [][]byte) store.Reply {
	if len(args)%2 != 0 {
		return store.Err(store.ErrSyntax)
	}
	leave, refusal := s.beginSetting()
	if refusal != "" {
		return store.Err(refusal)
	}
	defer leave()
	change, refusal := s.srv.params.check(args[2:])
	if refusal != "" {
		return store.Err(refusal)
	}
	useTLS, refusal := s.srv.prepareTLS(change)
	if refusal != "" {
		return store.Err(refusal)
	}
	if r := s.shareParams(change); r.IsError() {
		return r
	}
	useTLS()
	s.srv.params.commit(change)
	for i, def := range change.defs {
		if def.name == store.ParamMaxMemory {
			s.srv.WarnOfMaxMemory(number(change.values[i]))
		}
	}
	return store.OK
}

// beginSetting waits for another CONFIG SET, but for settingWait at most. Otherwise, clients that give up and ask again would lengthen
// the queue.
func (s *session) beginSetting() (leave func(), refusal store.Error) {
	defer s.idle()()
	setting := s.srv.params.setting
	late := time.NewTimer(settingWait)
	defer late.Stop()
	select {
	case setting <- struct{}{}:
		return func() { <-setting }, ""
	case <-late.C:
	case <-s.srv.stop:
	}
	return nil, errSetting
}

const settingWait = 5 * time.Second

// WarnOfMaxMemory writes a warning to the log if the argument limit, a value of maxmemory, is more than the memory of
// the machine or container.
func (srv *Server) WarnOfMaxMemory(limit int64) {
	if has := srv.cfg.Memory; has > 0 && limit > has {
		srv.cfg.Log.Warn("maxmemory is more than the memory of the machine or the container: the kernel may end the node before the limit is reached",
			"maxmemory", limit, "memory", has)
	}
}

// ProtectedMode reports whether the parameter protected-mode is yes now.
func (srv *Server) ProtectedMode() bool { return srv.params.protected.Load() }

// MaxMemory returns the cluster's maxmemory, as far as this node knows, or else that of the node's own configuration; 0 means no limit.
func (srv *Server) MaxMemory() int64 { return maxMemory(srv.backend, &srv.cfg) }

func maxMemory(backend Backend, cfg *Config) int64 {
	if value, known := backend.Config(store.ParamMaxMemory); known {
		if n, ok := store.ParseMemory(value); ok {
			return n
		}
	}
	return cfg.Limits.Memory
}

func doConfigResetStat(s *session, _ [][]byte) store.Reply {
	st := s.srv.stats
	st.reset()
	st.expired.Store(s.srv.backend.Status().Expired)
	st.evicted.Store(s.srv.clientMemory.cut.Load())
	return store.OK
}

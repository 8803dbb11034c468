package server

import (
	"lockstep/cluster"
	"lockstep/store"
)

// Some parameters hold for the whole cluster: the leader acts on them, whichever
// node a client talks to and whoever leads next. They go through the log. The
// node that the client talks to checks a value and submits the same command for
// the shared parameters alone; the leader runs the rows' Run. Values travel as
// the client wrote them: of notify-keyspace-events CONFIG GET shows less than
// was asked for.

// runConfigSet sets shared parameters, on the leader.
func runConfigSet(c *store.Ctx) store.Reply {
	for i := 2; i+1 < len(c.Args); i += 2 {
		c.SetConfig(c.Arg(i), c.Arg(i+1))
	}
	return store.OK
}

// runConfigGet returns the values of shared parameters, null for one that has
// never been set.
func runConfigGet(c *store.Ctx) store.Reply {
	values := store.List()
	for i := 2; i < len(c.Args); i++ {
		if value, ok := c.Config(c.Arg(i)); ok {
			values.Elems = append(values.Elems, store.Str(value))
		} else {
			values.Elems = append(values.Elems, store.Nil)
		}
	}
	return values
}

// onLeader runs a command of this package where the shared parameters are.
func (s *session) onLeader(args ...string) store.Reply {
	// Whether the client may call CONFIG has been asked.
	call := cluster.Call{DB: int(s.db.Load()), RESP: s.protocol(), User: store.SystemUser}
	for _, arg := range args {
		call.Args = append(call.Args, []byte(arg))
	}
	call.Cmd, _ = s.srv.table.Resolve(call.Args)
	if s.script != nil {
		// This already is the leader, in the middle of an evaluation.
		c := *s.script
		c.Cmd, c.Args = call.Cmd, call.Args
		return call.Cmd.Run(&c)
	}
	return s.srv.backend.Submit([]cluster.Call{call}, nil)[0]
}

// shareParams has the cluster take over those parameters of a change that it
// shares.
func (s *session) shareParams(c change) store.Reply {
	args := []string{"config", "set"}
	for i, def := range c.defs {
		if def.shared {
			args = append(args, def.name, c.given[i])
		}
	}
	if len(args) == 2 {
		return store.OK
	}
	return s.onLeader(args...)
}

// paramElsewhere returns a parameter that is not simply one of this node.
func (s *session) paramElsewhere(def *paramDef) string {
	if def.faced {
		return yesNo(s.face == FaceCluster)
	}
	return s.sharedParam(def)
}

// sharedParam returns a shared parameter in the form of CONFIG GET. The leader
// is asked, so that what another node has just set shows here; without one it
// is what this node knows.
func (s *session) sharedParam(def *paramDef) string {
	value, known := "", false
	switch r := s.onLeader("config", "get", def.name); {
	case r.Kind == store.Array && len(r.Elems) == 1:
		value, known = r.Elems[0].Str, r.Elems[0].Kind != store.Null
	case s.script == nil:
		value, known = s.srv.backend.Config(def.name)
	}
	if !known {
		return def.value
	}
	canonical, fault := def.parse(value, "")
	if fault != "" {
		return value // from a newer version, perhaps
	}
	return canonical
}

// sharePassword has requirepass become the password of the default user, who is
// the same on every node.
func (s *session) sharePassword(c change) store.Error {
	for i, def := range c.defs {
		if def.name == "requirepass" {
			return s.srv.setPassword(c.given[i])
		}
	}
	return ""
}

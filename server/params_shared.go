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
//
// They are replicated state (write op 26, a section of the snapshot, part of the state hash), because
// notify-keyspace-events decides what a command writes and so must be one value for all. CONFIG SET
// checks all its parameters on the client's node, sends the shared ones to the leader, and changes
// those of the node only if that succeeded. CONFIG GET asks the leader; without one it answers what
// the node knows.

// runConfigSet sets shared parameters, on the leader.
func runConfigSet(c *store.Ctx) store.Reply {
	for i := 2; i+1 < len(c.Args); i += 2 {
		if store.FormParam(c.Arg(i)) && c.Txn.Older() {
			return store.Err(errParam(c.Arg(i), faultOlder))
		}
	}
	for i := 2; i+1 < len(c.Args); i += 2 {
		if c.Arg(i) != "requirepass" {
			c.SetConfig(c.Arg(i), c.Arg(i+1))
			continue
		}
		u, refusal := c.Txn.User(c.Cmd.Table(), store.DefaultUser).WithRules([]string{"resetpass", c.Arg(i + 1)}, true)
		if refusal != "" {
			return store.Err(refusal)
		}
		c.SetUser(u)
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

// onLeader runs a command of this package on the leader, which looks at the client's rights to it, too: it
// runs nothing in the name of a node.
func (s *session) onLeader(args ...string) store.Reply {
	var words [][]byte
	for _, arg := range args {
		words = append(words, []byte(arg))
	}
	cmd, _ := s.srv.table.Resolve(words)
	if s.script != nil {
		// This already is the leader, in the middle of an evaluation.
		c := *s.script
		c.Cmd, c.Args = cmd, words
		return cmd.Run(&c)
	}
	return s.settle(s.srv.backend.Submit([]cluster.Call{s.call(cmd, words)}, nil)[0])
}

// shareParams has the cluster take over those parameters of a change that it
// shares. requirepass becomes the password of the default user, who is the same on every node; its
// hash is what travels.
func (s *session) shareParams(c change) store.Reply {
	args, rule := []string{"config", "set"}, ""
	for i, def := range c.defs {
		switch {
		case def.shared:
			value := c.given[i]
			if def.kind == memoryParam {
				value = c.values[i] // the store reads fewer forms
			}
			args = append(args, def.name, value)
		case def.name == "requirepass":
			rule = "nopass"
			if c.given[i] != "" {
				rule = "#" + passwordHash(c.given[i])
			}
			args = append(args, def.name, rule)
		}
	}
	if len(args) == 2 {
		return store.OK
	}
	r := s.onLeader(args...)
	if rule != "" && !r.IsError() {
		s.srv.catchUp()
	}
	return r
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

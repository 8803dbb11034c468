package server

import (
	"lockstep/cluster"
	"lockstep/store"
)

// Some parameters hold for the whole cluster: the leader acts on them, for clients of every node and
// also after a change of leader. They go through the log. The client's node checks a value and submits
// a CONFIG SET with only the shared parameters; the leader runs runConfigSet. Values go to the
// leader as the client wrote them (but memory sizes in bytes), because CONFIG GET shows less of
// notify-keyspace-events than the client asked for.
//
// Shared parameters are replicated state (write op 26, a section of the snapshot, part of the state
// hash): notify-keyspace-events decides what a command writes, and so must be the same on all nodes. CONFIG
// SET checks all its parameters on the client's node, sends the shared ones to the leader, and changes
// the node's own only if that succeeded. CONFIG GET asks the leader; without a leader it returns what
// the node knows.

// runConfigSet sets shared parameters on the leader.
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

// runConfigGet returns the values of shared parameters, and null for a parameter that has never been
// set.
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

// onLeader runs a command of this package on the leader with the client's rights; the leader checks
// them, too.
func (s *session) onLeader(args ...string) store.Reply {
	var words [][]byte
	for _, arg := range args {
		words = append(words, []byte(arg))
	}
	cmd, _ := s.srv.table.Resolve(words)
	if s.script != nil {
		// A script runs on the leader, during an evaluation: the command needs no submission.
		c := *s.script
		c.Cmd, c.Args = cmd, words
		return cmd.Run(&c)
	}
	return s.settle(s.srv.backend.Submit([]cluster.Call{s.call(cmd, words)}, nil)[0])
}

// shareParams sends the shared parameters of a change to the leader. requirepass becomes the password
// of the default user, which is the same on every node; only the hash of the password is sent.
func (s *session) shareParams(c change) store.Reply {
	args, rule := []string{"config", "set"}, ""
	for i, def := range c.defs {
		switch {
		case def.shared:
			value := c.given[i]
			if def.kind == memoryParam {
				value = c.values[i] // the store accepts fewer forms
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

// paramElsewhere returns the value of a parameter that depends on the client's listener or belongs to
// the cluster.
func (s *session) paramElsewhere(def *paramDef) string {
	if def.faced {
		return yesNo(s.face == FaceCluster)
	}
	return s.sharedParam(def)
}

// sharedParam returns a shared parameter as CONFIG GET shows it. It asks the leader, so that it shows
// what another node has just set; without a leader it returns what this node knows.
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
		return value // perhaps from a newer version
	}
	return canonical
}

package server

import (
	"github.com/lockstep-io/lockstep/store"
)

// Shared parameters hold for the whole cluster, because the leader follows them when it runs a command. They are replicated state: write
// op 26 sets them, and the snapshot and the state hash contain them.
//
// For CONFIG SET, the client's node checks all parameters, and submits the shared ones and requirepass to the leader (runConfigSet). Then
// the node sets the others, which concern this node alone.
//
// The leader gets each value as the client wrote it (only memory sizes in bytes), because the form that CONFIG GET shows may say less.
//
// CONFIG GET asks the leader for the values; without a leader, it returns those that this node has applied.

// runConfigSet is the leader's part of CONFIG SET: it sets shared parameters, and for requirepass the password of the default user.
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

// runConfigGet is the leader's part of CONFIG GET: it returns the values of shared parameters, and null for each that was never set.
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

// onLeader makes the leader run a command of this package for the session's client or script. For a client, the leader checks the
// client's rights again.
func (s *session) onLeader(args ...string) store.Reply {
	var words [][]byte
	for _, arg := range args {
		words = append(words, []byte(arg))
	}
	cmd, _ := s.srv.table.Resolve(words)
	if s.script != nil {
		// The session belongs to a script that the leader is running: the leader runs the command as part of the script.
		c := *s.script
		c.Cmd, c.Args = cmd, words
		return cmd.Run(&c)
	}
	return s.settle(s.askLeader(s.call(cmd, words)))
}

// shareParams sends shared parameters, and requirepass as an ACL rule, to the leader. It refuses some while there may be nodes of version
// 0.1.0, which would ignore them.
func (s *session) shareParams(c change) store.Reply {
	args, rule := []string{"config", "set"}, ""
	for i, def := range c.defs {
		switch {
		case def.shared:
			if store.FormParam(def.name) && s.srv.backend.MayBeOlder() {
				return store.Err(errParam(def.name, faultOlder))
			}
			value := c.given[i]
			if def.kind == memoryParam {
				value = c.values[i] // in canonical form, because the store's ParseMemory accepts fewer forms than memoryOf
			}
			args = append(args, def.name, value)
		case def.name == "requirepass":
			if s.srv.backend.Older() {
				return store.Err(errPasswordOlder)
			}
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

// paramsElsewhere returns the values of faced and shared parameters. It asks the leader for shared ones, because this node may not have
// applied a recent change.
func (s *session) paramsElsewhere(defs []*paramDef) []string {
	ask := []string{"config", "get"}
	for _, def := range defs {
		if def.shared {
			ask = append(ask, def.name)
		}
	}
	var told []store.Reply
	if shared := len(ask) - 2; shared > 0 {
		if r := s.onLeader(ask...); r.Kind == store.Array && len(r.Elems) == shared {
			told = r.Elems
		}
	}
	values := make([]string, len(defs))
	for i, def := range defs {
		switch {
		case def.faced:
			values[i] = yesNo(s.face == FaceCluster)
		case told != nil:
			values[i] = def.shownShared(told[0].Str, told[0].Kind != store.Null)
			told = told[1:]
		case s.script == nil:
			values[i] = def.shownShared(s.srv.backend.Config(def.name))
		default:
			values[i] = def.value
		}
	}
	return values
}

// shownShared returns the value of a shared parameter as CONFIG GET shows it. known is false for one that was never set.
func (def *paramDef) shownShared(value string, known bool) string {
	if !known {
		return def.value
	}
	canonical, fault := def.parse(value, "")
	if fault != "" {
		return value // this version does not know the value: perhaps a newer one has set it
	}
	return canonical
}

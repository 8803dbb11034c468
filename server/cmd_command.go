package server

import (
	"slices"
	"strings"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

func commandRows() []row {
	const flags = store.Loading | store.Stale | store.Connection
	unordered := []string{"nondeterministic_output_order"}
	sub := func(name string, arity int, since, usage, summary string, tips []string, do handler) row {
		return row{Command: store.Command{Name: name, Arity: arity, Flags: flags, Since: since, Usage: usage, Summary: summary, Tips: tips}, do: do}
	}
	return []row{{
		Command: store.Command{
			Name: "command", Arity: -1, Flags: flags, Group: "server", Since: "2.8.13",
			Summary: "Describes all commands.", Tips: unordered,
		},
		do: doCommand,
		sub: []row{
			sub("count", 2, "2.8.13", "", "Counts the commands.", nil, doCommandCount),
			sub("docs", -2, "7.0.0", "[command-name [command-name ...]]", "Documents commands.", unordered, doCommandDocs),
			sub("getkeys", -4, "2.8.13", "command [arg [arg ...]]", "Returns the keys of a command line.", nil, doGetKeys),
			sub("getkeysandflags", -4, "7.0.0", "command [arg [arg ...]]", "Returns the keys of a command line and what happens to them.", nil, doGetKeysAndFlags),
			helpRow("command", "5.0.0", store.Connection),
			sub("info", -2, "2.8.13", "[command-name [command-name ...]]", "Describes commands.", unordered, doCommandInfo),
			sub("list", -2, "7.0.0", "[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]", "Lists the names of commands.", unordered, doCommandList),
		},
	}}
}

func doCommand(s *session, _ [][]byte) store.Reply {
	r := store.List()
	for _, cmd := range s.srv.table.All() {
		r.Elems = append(r.Elems, commandInfo(cmd))
	}
	return r
}

func doCommandCount(s *session, _ [][]byte) store.Reply {
	return store.Int(int64(len(s.srv.table.All())))
}

// named finds a command by its full name ("get", "config|get"); nil if there is none.
func named(t *store.Table, name []byte) *store.Command {
	top, sub, isSub := strings.Cut(string(name), "|")
	cmd := t.Lookup([]byte(top))
	if cmd == nil || !isSub {
		return cmd
	}
	for i := range cmd.Sub {
		if strings.EqualFold(cmd.Sub[i].Name, sub) {
			return &cmd.Sub[i]
		}
	}
	return nil
}

func doCommandInfo(s *session, args [][]byte) store.Reply {
	if len(args) == 2 {
		return doCommand(s, args)
	}
	b := s.build()
	for _, name := range args[2:] {
		info := store.Nil
		if cmd := named(s.srv.table, name); cmd != nil {
			info = commandInfo(cmd)
		}
		if !b.add(info) {
			break
		}
	}
	return b.reply(store.Array)
}

// commandInfo returns the ten elements by which COMMAND INFO describes a command.
func commandInfo(c *store.Command) store.Reply {
	first, last, step := legacyRange(c.Keys)
	return store.List(
		store.Str(c.FullName()),
		store.Int(int64(c.Arity)),
		statusSet("", namesOfFlags(c.Flags, commandFlagNames)),
		store.Int(first), store.Int(last), store.Int(step),
		statusSet("@", c.ACLCategories()),
		bulkSet(c.Tips),
		keySpecs(c.Keys),
		subcommandInfos(c),
	)
}

func subcommandInfos(c *store.Command) store.Reply {
	if len(c.Sub) == 0 {
		return store.Reply{Kind: store.Set}
	}
	r := store.List()
	for i := range c.Sub {
		r.Elems = append(r.Elems, commandInfo(&c.Sub[i]))
	}
	return r
}

func statusSet(prefix string, words []string) store.Reply {
	r := store.Reply{Kind: store.Set}
	for _, w := range words {
		r.Elems = append(r.Elems, store.Status(prefix+w))
	}
	return r
}

func bulkSet(words []string) store.Reply {
	r := store.Strs(words...)
	r.Kind = store.Set
	return r
}

func doCommandList(s *session, args [][]byte) store.Reply {
	keep := func(*store.Command) bool { return true }
	switch {
	case len(args) == 2:
	case len(args) == 5 && strings.EqualFold(string(args[2]), "filterby"):
		want := string(args[4])
		switch strings.ToLower(string(args[3])) {
		case "pattern":
			keep = func(c *store.Command) bool { return redistext.MatchFold(want, c.FullName()) }
		case "aclcat":
			keep = func(c *store.Command) bool {
				return slices.ContainsFunc(c.ACLCategories(), func(category string) bool { return strings.EqualFold(category, want) })
			}
		case "module":
			keep = func(*store.Command) bool { return false }
		default:
			return store.Err(store.ErrSyntax)
		}
	default:
		return store.Err(store.ErrSyntax)
	}
	r := store.List()
	add := func(c *store.Command) {
		if keep(c) {
			r.Elems = append(r.Elems, store.Str(c.FullName()))
		}
	}
	for _, cmd := range s.srv.table.All() {
		add(cmd)
		for i := range cmd.Sub {
			add(&cmd.Sub[i])
		}
	}
	return r
}

// keyUse is a key of a command line and how the command uses the key.
type keyUse struct {
	key   []byte
	flags store.KeyFlags
}

// keysOfLine finds the keys of a command line, for COMMAND GETKEYS and COMMAND GETKEYSANDFLAGS.
func (srv *Server) keysOfLine(args [][]byte) ([]keyUse, store.Error) {
	cmd, ok := srv.table.Resolve(args)
	if !ok {
		return nil, errBadCommand
	}
	real := slices.ContainsFunc(cmd.Keys, func(k store.KeySpec) bool { return k.Flags&store.KeyNotKey == 0 })
	if !real {
		return nil, errNoKeys
	}
	if !cmd.ArityOK(len(args)) {
		return nil, errBadCommandLen
	}
	var uses []keyUse
	for _, spec := range cmd.Keys {
		if spec.Flags&store.KeyNotKey != 0 {
			continue
		}
		one := store.Command{Keys: []store.KeySpec{spec}}
		keys, ok := one.KeysOf(args)
		if !ok || spec.NumKeys > 0 && len(keys) == 0 {
			if cmd.Is(store.NoMandatoryKeys) {
				continue
			}
			return nil, errBadCommandArgs
		}
		uses = slices.Grow(uses, len(keys))
		for _, k := range keys {
			uses = append(uses, keyUse{k, cmd.KeyFlags(spec, args) &^ store.KeyIncomplete})
		}
	}
	if len(uses) == 0 && !cmd.Is(store.NoMandatoryKeys) {
		return nil, errBadCommandArgs
	}
	return uses, ""
}

func doGetKeys(s *session, args [][]byte) store.Reply {
	uses, refusal := s.srv.keysOfLine(args[2:])
	if refusal != "" {
		return store.Err(refusal)
	}
	b := s.build()
	for _, u := range uses {
		if !b.add(store.Str(string(u.key))) {
			break
		}
	}
	return b.reply(store.Array)
}

func doGetKeysAndFlags(s *session, args [][]byte) store.Reply {
	uses, refusal := s.srv.keysOfLine(args[2:])
	if refusal != "" {
		return store.Err(refusal)
	}
	b := s.build()
	for _, u := range uses {
		if !b.add(store.List(store.Str(string(u.key)), statusSet("", namesOfFlags(u.flags, keyFlagNames)))) {
			break
		}
	}
	return b.reply(store.Array)
}

package server

import (
	"strings"

	"github.com/lockstep-io/lockstep/store"
)

// commandDocs holds the reply of COMMAND DOCS for each command.
type commandDocs struct {
	of map[*store.Command]store.Reply
}

// newCommandDocs prepares the documentation of all commands, without arguments if a usage cannot be parsed.
func newCommandDocs(table *store.Table) *commandDocs {
	d := &commandDocs{of: map[*store.Command]store.Reply{}}
	for _, cmd := range table.All() {
		for i := range cmd.Sub {
			d.of[&cmd.Sub[i]] = describeCommand(&cmd.Sub[i])
		}
		doc := describeCommand(cmd)
		if len(cmd.Sub) > 0 {
			subs := store.MapOf()
			for i := range cmd.Sub {
				subs.Elems = append(subs.Elems, store.Str(cmd.Sub[i].FullName()), d.of[&cmd.Sub[i]])
			}
			doc.Elems = append(doc.Elems, store.Str("subcommands"), subs)
		}
		d.of[cmd] = doc
	}
	return d
}

func doCommandDocs(s *session, args [][]byte) store.Reply {
	b := s.build()
	add := func(cmd *store.Command) bool {
		return b.add(store.Str(cmd.FullName()), s.srv.docs.of[cmd])
	}
	if len(args) == 2 {
		for _, cmd := range s.srv.table.All() {
			add(cmd)
		}
	}
	for _, name := range args[2:] {
		if cmd := named(s.srv.table, name); cmd != nil && !add(cmd) {
			break
		}
	}
	return b.reply(store.Map)
}

// describeCommand returns the documentation of one command, without its subcommands.
func describeCommand(c *store.Command) store.Reply {
	doc := store.MapOf()
	text := func(key, value string) {
		if value != "" {
			doc.Elems = append(doc.Elems, store.Str(key), store.Str(value))
		}
	}
	text("summary", c.Summary)
	text("since", c.Since)
	text("group", c.Group)
	if c.Deprecated != "" {
		doc.Elems = append(doc.Elems, store.Str("doc_flags"), statusSet("", []string{"deprecated"}))
	}
	text("deprecated_since", c.Deprecated)
	text("replaced_by", c.ReplacedBy)
	if args, err := parseUsage(c.Usage); err == nil && len(args) > 0 {
		keys := 0
		floats := strings.Contains(c.Name, "float")
		doc.Elems = append(doc.Elems, store.Str("arguments"), describeArguments(args, len(c.Keys), &keys, floats))
	}
	return doc
}

// describeArguments returns the element "arguments" of COMMAND DOCS. specs is how many key specs the command has, and *keys how many
// key arguments came before.
func describeArguments(args []argument, specs int, keys *int, floats bool) store.Reply {
	r := store.List()
	for _, a := range args {
		kind := a.kind
		if a.name == "increment" && floats {
			kind = "double"
		}
		m := store.MapOf(store.Str("name"), store.Str(a.name), store.Str("type"), store.Str(kind))
		if kind == "key" && specs > 0 {
			m.Elems = append(m.Elems, store.Str("key_spec_index"), store.Int(int64(min(*keys, specs-1))))
			*keys++
		}
		if a.token != "" {
			m.Elems = append(m.Elems, store.Str("token"), store.Str(a.token))
		}
		var flags []string
		if a.optional {
			flags = append(flags, "optional")
		}
		if a.multiple {
			flags = append(flags, "multiple")
		}
		if flags != nil {
			m.Elems = append(m.Elems, store.Str("flags"), statusSet("", flags))
		}
		if len(a.args) > 0 {
			m.Elems = append(m.Elems, store.Str("arguments"), describeArguments(a.args, specs, keys, floats))
		}
		r.Elems = append(r.Elems, m)
	}
	return r
}

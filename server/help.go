package server

import (
	_ "embed"
	"strings"

	"lockstep/store"
)

// helpTexts are recorded HELP replies of redis-server 7.0.15. Before each is a line "= NAME", where NAME is the container: a
// command that has subcommands. This server changes nothing in the replies, because tools compare them with those of Redis.
// So they list even subcommands that this server refuses.
//
//go:embed help.txt
var helpTexts string

// help returns the reply to the HELP of a container. If there is no recorded reply for the container, help builds one from
// the container's entry in the command table.
func help(container *store.Command) store.Reply {
	if _, text, ok := strings.Cut(helpTexts, "= "+container.Name+"\n"); ok {
		text, _, _ = strings.Cut(text, "\n= ")
		r := store.List()
		for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
			r.Elems = append(r.Elems, store.Status(line))
		}
		return r
	}
	r := store.List(store.Status(strings.ToUpper(container.Name) + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"))
	for i := range container.Sub {
		sub := &container.Sub[i]
		if sub.Name == "help" {
			continue
		}
		line := strings.TrimSpace(strings.ToUpper(sub.Name) + " " + sub.Usage)
		r.Elems = append(r.Elems, store.Status(line), store.Status("    "+sub.Summary))
	}
	r.Elems = append(r.Elems, store.Status("HELP"), store.Status("    "+helpSummary))
	return r
}

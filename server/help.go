package server

import (
	_ "embed"
	"strings"

	"lockstep/store"
)

// helpTexts are recorded HELP replies of redis-server 7.0.15; each begins with a line "= container".
// Tools compare the replies, so they are exactly the same, even for subcommands that this server
// refuses.
//
//go:embed help.txt
var helpTexts string

// help returns the recorded text of a container; for a container that Redis does not have, it builds
// the text from the command table.
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

package server

import (
	_ "embed"
	"strings"

	"github.com/lockstep-io/lockstep/store"
)

// helpTexts are the HELP replies of redis-server 7.0.15, unchanged because tools compare them with Redis's. A line "= NAME" precedes the
// reply of each command.
//
//go:embed help.txt
var helpTexts string

// help returns the recorded HELP reply of a container, or else builds one from the command table.
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

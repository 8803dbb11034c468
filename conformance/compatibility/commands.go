package compatibility

import (
	_ "embed"
	"strings"

	"github.com/lockstep-io/lockstep/luavm"
	"github.com/lockstep-io/lockstep/server"
	"github.com/lockstep-io/lockstep/store"
)

// These are the states of a command.
const (
	Done     = "done"
	NoEffect = "accepted, no effect"
	Refused  = "refused"
	NotHere  = "not here"
)

// Command is a command of Redis with its state in lockstep.
type Command struct {
	Group, Name string // "config|get" is a subcommand
	State       string
	Why         string // the reason for the state; empty for Done
}

// redisCommands has the group and name of each command of redis-server 7.0.15. A test compares it with the server.
//
//go:embed redis-7.0.15.txt
var redisCommands string

// Table is the command table of a node.
func Table() *store.Table {
	engine := luavm.New(luavm.Options{})
	return store.NewTable(store.Commands(), engine.Commands(), server.Commands())
}

// Commands returns every command of Redis 7.0.15 with its state, in Redis's groups.
func Commands(table *store.Table) []Command {
	var list []Command
	for line := range strings.Lines(redisCommands) {
		group, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		c := Command{Group: group, Name: name, State: Done}
		switch {
		case !has(table, name):
			c.State, c.Why = NotHere, reason(group, name)
		case noEffect[name] != "":
			c.State, c.Why = NoEffect, noEffect[name]
		case refused[name] != "":
			c.State, c.Why = Refused, refused[name]
		}
		list = append(list, c)
	}
	return list
}

// has reports whether the table contains a command; name may be "container|subcommand".
func has(table *store.Table, name string) bool {
	container, sub, nested := strings.Cut(name, "|")
	args := [][]byte{[]byte(container)}
	if nested {
		args = append(args, []byte(sub))
	}
	_, ok := table.Resolve(args)
	return ok
}

// reason returns why lockstep does not have a command; "" if no reason is recorded.
func reason(group, name string) string {
	container, _, _ := strings.Cut(name, "|")
	for _, key := range []string{name, container} {
		if why, ok := absent[key]; ok {
			return why
		}
	}
	return absentGroups[group]
}

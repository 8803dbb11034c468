package store

import (
	_ "embed"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"sync"
)

// aclCategories are the ACL categories, in Redis's order, with lockstep's own at the end. The index of a category is its bit in
// Command.categories.
var aclCategories = []string{
	"keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap",
	"hyperloglog", "geo", "stream", "pubsub", "admin", "fast", "slow", "blocking",
	"dangerous", "connection", "transaction", "scripting", "lock",
}

// ACLCategories returns the names of all categories, in Redis's order, with lockstep's own at the end.
func ACLCategories() []string { return slices.Clone(aclCategories) }

// groupCategories are the ACL categories that follow from a command's group.
var groupCategories = map[string]string{
	"string": "string", "hash": "hash", "list": "list", "set": "set",
	"sorted-set": "sortedset", "stream": "stream", "bitmap": "bitmap",
	"hyperloglog": "hyperloglog", "geo": "geo",
}

// ACLCategories derives a command's ACL categories, in the order of COMMAND INFO.
func (c *Command) ACLCategories() []string {
	callable := len(c.Sub) == 0 || c.Is(Connection)
	own := func(name string) bool { return slices.Contains(c.Categories, name) }
	facts := []struct {
		is   bool
		name string
	}{
		{callable && (c.Is(Keyspace) || c.Group == "generic" && c.Categories == nil && !c.Is(Connection)), "keyspace"},
		{c.Is(ReadOnly) && !c.Is(Scripting), "read"},
		{c.Is(Write), "write"},
		{callable && groupCategories[c.Group] != "", groupCategories[c.Group]},
		{own("set"), "set"},
		{own("sortedset"), "sortedset"},
		{own("list"), "list"},
		{c.Is(PubSub), "pubsub"},
		{c.Is(Admin) || own("admin"), "admin"},
		{c.Is(Fast), "fast"},
		{!c.Is(Fast), "slow"},
		{c.Is(Blocking), "blocking"},
		{c.Is(Admin) || c.Is(Dangerous), "dangerous"},
		{callable && (c.Is(Connection) || c.Group == "connection"), "connection"},
		{c.Group == "transactions", "transaction"},
		{c.Is(Scripting), "scripting"},
		{c.Group == "lock", "lock"},
	}
	list := []string{}
	for _, f := range facts {
		if f.is {
			list = append(list, f.name)
		}
	}
	return list
}

// redisCommands lists every command of Redis 7.0.15 with its categories, as
// recorded from COMMAND INFO.
//
//go:embed redis-commands.txt
var redisCommands string

// redisCategories maps the full names in redisCommands to their categories.
var redisCategories = sync.OnceValue(func() map[string][]string {
	all := map[string][]string{}
	for _, line := range strings.Split(strings.TrimSpace(redisCommands), "\n") {
		words := strings.Fields(line)
		all[words[0]] = words[1:]
	}
	return all
})

// aclTable holds all commands of this server and of Redis. Rules about commands that lockstep lacks must hold when it gets them.
type aclTable struct {
	bits []*Command // every command and subcommand, sorted by full name; the index is Command.bit
	top  []*Command // the commands that are not subcommands
	subs map[*Command][]*Command
	name map[string]*Command // all commands by full name

	members []bitmap // the commands of each category
	reach   []bitmap // the commands that a rule for a category changes: those of the category and their subcommands
}

func newACLTable(t *Table) *aclTable {
	a := &aclTable{subs: map[*Command][]*Command{}, name: map[string]*Command{}}
	add := func(c *Command, categories []string) {
		for _, name := range categories {
			c.categories |= categoryBit(name)
		}
		a.name[c.FullName()] = c
	}
	for _, cmd := range t.sorted {
		add(cmd, cmd.ACLCategories())
		for i := range cmd.Sub {
			add(&cmd.Sub[i], cmd.Sub[i].ACLCategories())
		}
	}
	// A container comes before its subcommands: "acl" < "acl|cat".
	for _, name := range RedisCommands() {
		if a.name[name] == nil {
			top, sub, isSub := strings.Cut(name, "|")
			foreign := &Command{Name: name}
			if isSub {
				foreign = &Command{Name: sub, parent: a.name[top]}
			}
			add(foreign, redisCategories()[name])
		}
	}
	for _, c := range a.name {
		a.bits = append(a.bits, c)
	}
	slices.SortFunc(a.bits, func(x, y *Command) int { return strings.Compare(x.FullName(), y.FullName()) })
	for i, c := range a.bits {
		c.bit = i
		if c.parent != nil {
			a.subs[c.parent] = append(a.subs[c.parent], c)
		} else {
			a.top = append(a.top, c)
		}
	}
	for i := range aclCategories {
		members, reach := newBitmap(len(a.bits)), newBitmap(len(a.bits))
		for _, c := range a.bits {
			if c.categories&(1<<i) == 0 {
				continue
			}
			members.set(c.bit, true)
			reach.set(c.bit, true)
			for _, sub := range a.subs[c] {
				reach.set(sub.bit, true)
			}
		}
		a.members, a.reach = append(a.members, members), append(a.reach, reach)
	}
	return a
}

// lookup finds a command by its full name, in any case, or returns nil.
func (a *aclTable) lookup(fullName string) *Command { return a.name[lowerASCII(fullName)] }

// categoryBit returns the bit of a category, or 0 if it does not exist.
func categoryBit(name string) uint32 {
	i := categoryPlace(name)
	if i < 0 {
		return 0
	}
	return 1 << i
}

// categoryPlace returns the index of a category, or -1 if it does not exist.
func categoryPlace(name string) int {
	return slices.IndexFunc(aclCategories, func(c string) bool { return equalFold([]byte(name), c) })
}

// InCategory returns the full names of the table's commands in a category; ok is false if the
// category does not exist.
func (t *Table) InCategory(category string) (names []string, ok bool) {
	bit := categoryBit(category)
	names = []string{}
	for _, cmd := range t.sorted {
		if cmd.categories&bit != 0 {
			names = append(names, cmd.FullName())
		}
		for i := range cmd.Sub {
			if cmd.Sub[i].categories&bit != 0 {
				names = append(names, cmd.Sub[i].FullName())
			}
		}
	}
	return names, bit != 0
}

// bitmap is a set of commands; the index of a bit is Command.bit.
type bitmap []uint64

func newBitmap(n int) bitmap { return make(bitmap, n/64+1) }

// common counts the commands that are in both sets.
func (b bitmap) common(other bitmap) (n int) {
	for i, word := range b {
		n += bits.OnesCount64(word & other[i])
	}
	return n
}

func (b bitmap) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }

func (b bitmap) set(i int, on bool) {
	if on {
		b[i/64] |= 1 << (i % 64)
	} else {
		b[i/64] &^= 1 << (i % 64)
	}
}

func (b bitmap) fill(n int, on bool) {
	for i := range n {
		b.set(i, on)
	}
}

// RedisCategories returns the ACL categories of a command in Redis 7.0.15; ok is false if Redis
// does not have the command.
func RedisCategories(fullName string) (categories []string, ok bool) {
	categories, ok = redisCategories()[fullName]
	return categories, ok
}

// RedisCommands returns the full names of the commands of Redis 7.0.15.
func RedisCommands() []string { return slices.Sorted(maps.Keys(redisCategories())) }

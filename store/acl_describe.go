package store

import (
	"slices"
	"strings"
)

// sectionSelector is a separator in a list of rules: the rules of a further selector follow it.
const sectionSelector = "("

// ruleEveryKey is the rule for the key pattern *, which Redis shows as ~*. The rule ~* means allkeys, which is more.
const ruleEveryKey = "%RW~*"

// shown replaces ruleEveryKey by ~*, as Redis shows it.
func shown(rules []string) []string {
	for i, rule := range rules {
		if rule == ruleEveryKey {
			rules[i] = "~*"
		}
	}
	return rules
}

// Rules returns the rules that create this user. The log and snapshots contain rules, which do not depend on a node's command table.
func (u *User) Rules() []string {
	list := []string{"off"}
	if u.Enabled {
		list[0] = "on"
	}
	if u.NoPass {
		list = append(list, "nopass")
	}
	switch u.sanitize {
	case sanitizeSkip:
		list = append(list, "skip-sanitize-payload")
	case sanitizeDo:
		list = append(list, "sanitize-payload")
	}
	for _, p := range u.Passwords {
		list = append(list, "#"+p)
	}
	for i, s := range u.selectors {
		if i > 0 {
			list = append(list, sectionSelector)
		}
		list = append(list, s.rules(u.table.acl)...)
	}
	return list
}

// userOf is the inverse of Rules. It ignores rules that this node does not know, because a node of another
// version may have written them.
func userOf(t *Table, name string, rules []string) *User {
	u := NewUser(t, name, false)
	s := u.selectors[0]
	for _, rule := range rules {
		switch {
		case rule == sectionSelector:
			s = newSelector(t, false)
			u.selectors = append(u.selectors, s)
		case len(u.selectors) == 1 && isUserRule(rule):
			u.apply(rule, false)
		default:
			s.apply(t.acl, rule)
		}
	}
	return u.seal()
}

func isUserRule(rule string) bool {
	switch rule {
	case "on", "off", "nopass", "sanitize-payload", "skip-sanitize-payload":
		return true
	}
	return strings.HasPrefix(rule, "#")
}

// String describes the user in the format of ACL LIST.
func (u *User) String() string { return lineOf(shown(u.Rules())) }

// lineOf writes rules in one line.
func lineOf(rules []string) string {
	var b strings.Builder
	between, inside := "", false
	for _, rule := range rules {
		if rule == sectionSelector {
			if inside {
				b.WriteByte(')')
			}
			b.WriteString(" (")
			between, inside = "", true
			continue
		}
		b.WriteString(between + rule)
		between = " "
	}
	if inside {
		b.WriteByte(')')
	}
	return b.String()
}

// Describe returns the reply of ACL GETUSER.
func (u *User) Describe() Reply {
	flags := Reply{Kind: Set, Elems: []Reply{}}
	for _, rule := range u.Rules() {
		if isUserRule(rule) && rule[0] != '#' {
			flags.Elems = append(flags.Elems, Str(rule))
		}
	}
	r := MapOf(Str("flags"), flags, Str("passwords"), Strs(u.Passwords...))
	r.Elems = append(r.Elems, u.selectors[0].describe(u.table.acl)...)
	others := List()
	for _, s := range u.selectors[1:] {
		others.Elems = append(others.Elems, MapOf(s.describe(u.table.acl)...))
	}
	r.Elems = append(r.Elems, Str("selectors"), others)
	return r
}

func (s *selector) describe(a *aclTable) []Reply {
	return []Reply{
		Str("commands"), Str(strings.Join(s.commandRules(a), " ")),
		Str("keys"), Str(strings.Join(shown(s.keyRules()), " ")),
		Str("channels"), Str(strings.Join(s.channelRules(), " ")),
	}
}

func (s *selector) rules(a *aclTable) []string {
	list := s.keyRules()
	if !s.allChannels {
		list = append(list, "resetchannels")
	}
	list = append(list, s.channelRules()...)
	return append(list, s.commandRules(a)...)
}

func (s *selector) keyRules() []string {
	if s.allKeys {
		return []string{"~*"}
	}
	list := []string{}
	for _, k := range s.keys {
		prefix := map[keyAccess]string{keyReads | keyWrites: "~", keyReads: "%R~", keyWrites: "%W~"}[k.access]
		if k.pattern == "*" && prefix == "~" {
			prefix = "%RW~"
		}
		list = append(list, prefix+k.pattern)
	}
	return list
}

func (s *selector) channelRules() []string {
	if s.allChannels {
		return []string{"&*"}
	}
	list := []string{}
	for _, c := range s.channels {
		list = append(list, "&"+c.pattern)
	}
	return list
}

// commandRules finds a short list of rules for the selector's commands, as Redis does.
func (s *selector) commandRules(a *aclTable) []string {
	n := len(a.bits)
	rest := &selector{commands: slices.Clone(s.commands)}      // s.commands, but in the chosen categories as list[0] sets them
	told := &selector{commands: make(bitmap, len(s.commands))} // the commands that the rules in list allow
	told.commands.fill(n, s.future)
	list, sign := []string{"-@all"}, "+@"
	if s.future {
		list, sign = []string{"+@all"}, "-@"
	}
	done := uint32(0)
	for {
		best := rest.bestCategory(a, !s.future, done)
		if best < 0 {
			break
		}
		done |= 1 << best
		list = append(list, sign+aclCategories[best])
		told.applyCategory(a, aclCategories[best], !s.future)
		rest.applyCategory(a, aclCategories[best], s.future)
	}
	if len(s.firstArgs) == 0 && slices.Equal(told.commands, s.commands) {
		return list
	}
	for _, c := range a.top {
		list = s.commandRule(list, a, told, c)
		for _, sub := range a.subs[c] {
			list = s.commandRule(list, a, told, sub)
		}
	}
	return list
}

// bestCategory returns the category, not in done, whose rule is wrong about the fewest commands, then right about the most; -1 if no rule
// is more often right than wrong.
func (s *selector) bestCategory(a *aclTable, add bool, done uint32) int {
	best, fewest, most := -1, len(a.bits)+1, 0
	for i := range aclCategories {
		if done&(1<<i) != 0 {
			continue
		}
		same, diff := a.members[i].common(s.commands), 0
		if diff = a.members[i].common(a.members[i]) - same; !add {
			same, diff = diff, same
		}
		if same > diff && (diff < fewest || diff == fewest && same > most) {
			best, fewest, most = i, diff, same
		}
	}
	return best
}

// commandRule appends the rules for the command c that the list lacks; told has the effect of the list so far.
func (s *selector) commandRule(list []string, a *aclTable, told *selector, c *Command) []string {
	on := s.commands.has(c.bit)
	if on != told.commands.has(c.bit) {
		sign := "-"
		if on {
			sign = "+"
		}
		list = append(list, sign+c.FullName())
		told.allow(a, c, on)
	}
	if !on {
		for _, arg := range s.firstArgs[c.bit] {
			list = append(list, "+"+c.FullName()+"|"+arg)
		}
	}
	return list
}

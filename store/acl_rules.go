package store

import (
	"math/bits"
	"strings"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// Errors in a rule of ACL SETUSER.
const (
	faultUnknown     = "Unknown command or category name in ACL"
	faultSyntax      = "Syntax error"
	faultKeyPattern  = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
	faultChannel     = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels"
	faultNoPassword  = "The password you are trying to remove from the user does not exist"
	faultHash        = "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
	faultSubFirstArg = "Allowing first-arg of a subcommand is not supported"
)

// MergeSelectors joins the arguments of ACL SETUSER from "(…" to "…)". open is the start of a selector without an end, or "".
func MergeSelectors(args []string) (rules []string, open string) {
	var pending []string
	for _, arg := range args {
		ends := strings.HasSuffix(arg, ")")
		switch {
		case strings.HasPrefix(arg, "(") && !ends:
			// As in Redis, a selector that is already open is dropped.
			pending, open = []string{arg}, arg
		case pending != nil:
			pending = append(pending, arg)
		default:
			rules = append(rules, arg)
		}
		if pending != nil && ends {
			rules, pending = append(rules, strings.Join(pending, " ")), nil
		}
	}
	if pending == nil {
		open = ""
	}
	return rules, open
}

// WithRules returns a copy of the user with all rules applied, or an error. allChannels says whether the
// parameter acl-pubsub-default is "allchannels".
func (u *User) WithRules(rules []string, allChannels bool) (*User, Error) {
	return u.withRules(rules, allChannels, nil)
}

// WithRules is User.WithRules for a command: it counts its steps as work, so Ctx.Watch may end it.
func (c *Ctx) WithRules(u *User, rules []string, allChannels bool) (*User, Error) {
	return u.withRules(rules, allChannels, c.work)
}

func (u *User) withRules(rules []string, allChannels bool, work func(int)) (*User, Error) {
	c := u.clone()
	c.work = work
	for _, rule := range rules {
		c.worked(stepsOf(rule))
		if fault := c.apply(rule, allChannels); fault != "" {
			return nil, ErrACLModifier(rule, fault)
		}
	}
	return c.seal(), ""
}

func (u *User) worked(steps int) {
	if u.work != nil {
		u.work(steps)
	}
}

// apply applies one rule and returns its error, or "".
func (u *User) apply(rule string, allChannels bool) (fault string) {
	switch lowerASCII(rule) {
	case "":
	case "on", "off":
		u.Enabled = lowerASCII(rule) == "on"
	case "nopass", "resetpass":
		u.NoPass = lowerASCII(rule) == "nopass"
		u.Passwords, u.passwordAt = nil, nil
	case "skip-sanitize-payload":
		u.sanitize = sanitizeSkip
	case "sanitize-payload":
		u.sanitize = sanitizeDo
	case "clearselectors":
		u.selectors = u.selectors[:1]
	case "reset":
		u.Enabled, u.NoPass, u.sanitize = false, false, sanitizeDo
		u.Passwords, u.passwordAt = nil, nil
		u.selectors = []*selector{newSelector(u.table, allChannels)}
	default:
		return u.applyOther(rule, allChannels)
	}
	return ""
}

func (u *User) applyOther(rule string, allChannels bool) (fault string) {
	switch {
	case strings.IndexByte("><#!", rule[0]) >= 0:
		return u.applyPassword(rule[0], rule[1:])
	case rule[0] == '(' && strings.HasSuffix(rule, ")"):
		s := newSelector(u.table, allChannels)
		// As in Redis, unbalanced quotes give an empty selector, and the text after a NUL is
		// ignored.
		words := []byte(cString(rule[1 : len(rule)-1]))
		if !redistext.CheckArgs(words) {
			words = nil
		}
		// Cut off one word at a time: a list of all words could take much more memory than the rule.
		for raw, rest, more, _ := redistext.CutArg(words); more; raw, rest, more, _ = redistext.CutArg(rest) {
			u.worked(1)
			if fault := s.apply(u.table.acl, string(redistext.Unquote(raw))); fault != "" {
				return fault
			}
		}
		u.selectors = append(u.selectors, s)
		return ""
	}
	return u.selectors[0].apply(u.table.acl, rule)
}

// applyPassword adds ('>', '#') or removes ('<', '!') a password, given as clear text ('>', '<') or as a hash.
func (u *User) applyPassword(how byte, text string) (fault string) {
	hash := text
	if how == '>' || how == '<' {
		hash = HashPassword([]byte(text))
	} else if !isPasswordHash(text) {
		return faultHash
	}
	at, known := u.passwordAt.find(hash, len(u.Passwords), func(i int) string { return u.Passwords[i] })
	if how == '>' || how == '#' {
		if !known {
			u.passwordAt[hash] = len(u.Passwords)
			u.Passwords = append(u.Passwords, hash)
		}
		u.NoPass = false
		return ""
	}
	if !known {
		return faultNoPassword
	}
	delete(u.passwordAt, hash)
	u.Passwords[at] = "" // seal removes the empty text
	return ""
}

func isPasswordHash(s string) bool {
	return len(s) == 64 && !strings.ContainsFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') })
}

// apply applies a rule about commands, keys or channels.
func (s *selector) apply(a *aclTable, rule string) (fault string) {
	switch lowerASCII(rule) {
	case "allkeys", "~*":
		s.allKeys, s.keys, s.keyAt = true, nil, nil
		return ""
	case "resetkeys":
		s.allKeys, s.keys, s.keyAt = false, nil, nil
		return ""
	case "allchannels", "&*":
		s.allChannels, s.channels, s.channelAt = true, nil, nil
		return ""
	case "resetchannels":
		s.allChannels, s.channels, s.channelAt = false, nil, nil
		return ""
	case "allcommands", "+@all", "nocommands", "-@all":
		s.future = rule[0] == '+' || rule[0]|0x20 == 'a'
		s.commands.fill(len(a.bits), s.future)
		s.firstArgs, s.wordAt, s.worded = nil, nil, nil
		return ""
	case "":
		return faultSyntax
	}
	switch rule[0] {
	case '~', '%':
		return s.applyKeys(rule)
	case '&':
		return s.applyChannel(rule[1:])
	case '+', '-':
		if len(rule) > 1 && rule[1] == '@' {
			return s.applyCategory(a, rule[2:], rule[0] == '+')
		}
		return s.applyCommand(a, rule[1:], rule[0] == '+')
	}
	return faultSyntax
}

// applyKeys applies a rule with a key pattern: ~pattern, %R~pattern, %W~pattern or %RW~pattern.
func (s *selector) applyKeys(rule string) (fault string) {
	if s.allKeys {
		return faultKeyPattern
	}
	access, pattern := keyReads|keyWrites, rule[1:]
	if rule[0] == '%' {
		flags, rest, _ := strings.Cut(pattern, "~")
		// As Redis does, treat a rule with flags but without '~' as one with an empty pattern.
		access, pattern = 0, rest
		for _, f := range strings.ToUpper(flags) {
			flag := keyReads
			if f == 'W' {
				flag = keyWrites
			}
			if f != 'R' && f != 'W' || access&flag != 0 {
				return faultSyntax
			}
			access |= flag
		}
		if access == 0 {
			return faultSyntax
		}
	}
	if HasSpaces(pattern) {
		return faultSyntax
	}
	at, known := s.keyAt.find(pattern, len(s.keys), func(i int) string { return s.keys[i].pattern })
	if !known {
		s.keyAt[pattern] = len(s.keys)
		s.keys = append(s.keys, namePattern{pattern, access})
	} else {
		s.keys[at].access |= access
	}
	return ""
}

func (s *selector) applyChannel(pattern string) (fault string) {
	switch {
	case s.allChannels:
		return faultChannel
	case HasSpaces(pattern):
		return faultSyntax
	}
	if _, known := s.channelAt.find(pattern, len(s.channels), func(i int) string { return s.channels[i].pattern }); !known {
		s.channelAt[pattern] = len(s.channels)
		s.channels = append(s.channels, namePattern{pattern, keyReads | keyWrites})
	}
	return ""
}

func (s *selector) applyCategory(a *aclTable, name string, allow bool) (fault string) {
	at := categoryPlace(name)
	if at < 0 {
		return faultUnknown
	}
	if s.worded == nil && len(s.firstArgs) > 0 {
		s.findWorded()
	}
	for i, word := range a.reach[at] {
		if s.worded != nil {
			for both := word & s.worded[i]; both != 0; both &= both - 1 {
				s.forgetWords(i*64 + bits.TrailingZeros64(both))
			}
		}
		if allow {
			s.commands[i] |= word
		} else {
			s.commands[i] &^= word
		}
	}
	return ""
}

// findWorded computes s.worded, the commands in s.firstArgs, once for all rules with categories. It would take long to go through
// s.firstArgs for each of these rules.
func (s *selector) findWorded() {
	s.worded = make(bitmap, len(s.commands))
	for bit := range s.firstArgs {
		s.worded.set(bit, true)
	}
}

// allow allows or forbids a command with its subcommands, and drops the rules for its first
// arguments.
func (s *selector) allow(a *aclTable, c *Command, on bool) {
	s.commands.set(c.bit, on)
	s.forgetWords(c.bit)
	for _, sub := range a.subs[c] {
		s.commands.set(sub.bit, on)
	}
}

// forgetWords drops the first arguments with which a command is allowed.
func (s *selector) forgetWords(bit int) {
	if len(s.firstArgs[bit]) > 0 {
		delete(s.firstArgs, bit)
		delete(s.wordAt, bit)
		if s.worded != nil {
			s.worded.set(bit, false)
		}
	}
}

// applyCommand applies a rule for a command, a container|subcommand or, if on is true, a command|first-argument.
func (s *selector) applyCommand(a *aclTable, name string, on bool) (fault string) {
	bar := strings.LastIndexByte(name, '|')
	if !on || bar < 0 {
		c := a.lookup(name)
		if c == nil {
			return faultUnknown
		}
		s.allow(a, c, on)
		return ""
	}
	c, arg := a.lookup(name[:bar]), name[bar+1:]
	switch {
	case c == nil:
		return faultUnknown
	case c.parent != nil:
		return faultSubFirstArg
	case arg == "":
		return faultSyntax
	case len(a.subs[c]) > 0:
		if c = a.lookup(name); c == nil {
			return faultUnknown
		}
		s.allow(a, c, true)
	default:
		s.allowFirstArg(c.bit, arg)
	}
	return ""
}

func (s *selector) allowFirstArg(bit int, args ...string) {
	if s.firstArgs == nil {
		s.firstArgs = map[int][]string{}
	}
	if s.wordAt == nil {
		s.wordAt = map[int]places{}
	}
	list, at := s.firstArgs[bit], s.wordAt[bit]
	for _, arg := range args {
		word := lowerASCII(arg)
		if _, known := at.find(word, len(list), func(i int) string { return lowerASCII(list[i]) }); !known {
			at[word] = len(list)
			list = append(list, arg)
		}
	}
	s.firstArgs[bit], s.wordAt[bit] = list, at
	if s.worded != nil {
		s.worded.set(bit, true)
	}
}

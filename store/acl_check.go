package store

import (
	"slices"
	"strings"

	"lockstep/store/redistext"
)

// DenyReason says why a command is not allowed. If several selectors refuse a command, the greatest
// reason is reported, as in Redis.
type DenyReason uint8

const (
	// Allowed means that the command is not refused.
	Allowed DenyReason = iota
	// DeniedCommand means that the user may not run the command.
	DeniedCommand
	// DeniedKey means that the user may not use a key in this way.
	DeniedKey
	// DeniedAuth means that an authentication failed.
	DeniedAuth
	// DeniedChannel means that the user may not use a channel.
	DeniedChannel
)

// String returns the reason as ACL LOG writes it.
func (r DenyReason) String() string {
	switch r {
	case DeniedCommand:
		return "command"
	case DeniedKey:
		return "key"
	case DeniedAuth:
		return "auth"
	case DeniedChannel:
		return "channel"
	}
	return "unknown"
}

// Check returns Allowed if the user may run the command with these arguments, else the reason and
// the index of the argument that caused it.
func (u *User) Check(cmd *Command, args [][]byte) (why DenyReason, arg int) {
	if u.free {
		return Allowed, 0
	}
	why = DeniedCommand
	for _, s := range u.selectors {
		reason, at := s.check(cmd, args)
		if reason == Allowed {
			return Allowed, 0
		}
		if reason > why || reason == why && at > arg {
			why, arg = reason, at
		}
	}
	return why, arg
}

func (s *selector) check(cmd *Command, args [][]byte) (why DenyReason, arg int) {
	if !cmd.Is(NoAuth) && !s.commands.has(cmd.bit) && !s.firstArgAllowed(cmd, args) {
		return DeniedCommand, 0
	}
	if !s.allKeys && len(cmd.Keys) > 0 {
		for _, use := range cmd.keyUses(args) {
			if !s.keyAllowed(string(args[use.arg]), use.flags) {
				return DeniedKey, use.arg
			}
		}
	}
	if first, last, pattern := cmd.channels(args); !s.allChannels {
		for i := first; i <= last; i++ {
			if !channelAllowed(s.channels, string(args[i]), pattern) {
				return DeniedChannel, i
			}
		}
	}
	return Allowed, 0
}

func (s *selector) firstArgAllowed(cmd *Command, args [][]byte) bool {
	return len(args) > 1 && slices.ContainsFunc(s.firstArgs[cmd.bit], func(arg string) bool {
		return strings.EqualFold(arg, string(args[1]))
	})
}

func (s *selector) keyAllowed(key string, flags KeyFlags) bool {
	var need keyAccess
	if flags&KeyAccess != 0 {
		need |= keyReads
	}
	if flags&(KeyInsert|KeyDelete|KeyUpdate) != 0 {
		need |= keyWrites
	}
	return s.allKeys || slices.ContainsFunc(s.keys, func(k keyPattern) bool {
		return k.access&need == need && redistext.Match(k.pattern, key)
	})
}

// channelAllowed reports whether a user with the allowed patterns may use a channel. If channel is
// itself a pattern, it must be equal to one of them.
func channelAllowed(allowed []string, channel string, pattern bool) bool {
	return slices.ContainsFunc(allowed, func(p string) bool {
		return pattern && p == channel || !pattern && redistext.Match(p, channel)
	})
}

// MayListen reports whether one selector allows a channel. A pattern must be equal to an allowed
// pattern.
func (u *User) MayListen(channel string, pattern bool) bool {
	return slices.ContainsFunc(u.selectors, func(s *selector) bool {
		return s.allChannels || channelAllowed(s.channels, channel, pattern)
	})
}

// channels returns the range of arguments that are channels which the command publishes or
// subscribes to; there are none if last < first, as where the arguments are too few.
func (c *Command) channels(args [][]byte) (first, last int, pattern bool) {
	if c.parent != nil || !c.Is(PubSub) {
		return 1, 0, false
	}
	switch c.Name {
	case "publish", "spublish":
		return 1, min(1, len(args)-1), false
	case "subscribe", "ssubscribe":
		return 1, len(args) - 1, false
	case "psubscribe":
		return 1, len(args) - 1, true
	}
	return 1, 0, false
}

// keyUse is an argument that is a key, and how the command uses it.
type keyUse struct {
	arg   int
	flags KeyFlags
}

// keyUses finds the keys of a command line. As in Redis, it finds none if the arguments are
// malformed: the command itself then reports the error.
func (c *Command) keyUses(args [][]byte) []keyUse {
	var uses []keyUse
	for _, spec := range c.Keys {
		if spec.Flags&KeyNotKey != 0 {
			continue
		}
		at, ok := spec.places(args)
		if !ok || spec.NumKeys > 0 && len(at) == 0 {
			return nil
		}
		for _, i := range at {
			uses = append(uses, keyUse{i, c.KeyFlags(spec, args)})
		}
	}
	return uses
}

// KeyFlags returns the flags of a key spec after a look at the arguments: SET reads the key only
// with GET, and BITFIELD with GETs alone only reads it.
func (c *Command) KeyFlags(spec KeySpec, args [][]byte) KeyFlags {
	if spec.Flags&KeyVariable == 0 {
		return spec.Flags
	}
	has := func(from int, words ...string) bool {
		return slices.ContainsFunc(args[min(from, len(args)):], func(a []byte) bool {
			return slices.Contains(words, strings.ToLower(string(a)))
		})
	}
	switch {
	case c.Name == "set" && !has(3, "get"):
		return KeyOW | KeyUpdate
	case c.Name == "bitfield" && onlyGets(args[min(2, len(args)):]):
		return KeyRO | KeyAccess
	}
	return KeyRW | KeyAccess | KeyUpdate
}

// onlyGets reports whether all operations of a BITFIELD are well-formed GETs. OVERFLOW with any
// word is no operation.
func onlyGets(ops [][]byte) bool {
	for len(ops) > 0 {
		switch word := string(ops[0]); {
		case strings.EqualFold(word, "get") && len(ops) >= 3:
			ops = ops[3:]
		case strings.EqualFold(word, "overflow") && len(ops) >= 2:
			ops = ops[2:]
		default:
			return false
		}
	}
	return true
}

// readsAnyKey reports whether one selector allows the command and reading of every key. SORT needs
// this for its patterns.
func (u *User) readsAnyKey(cmd *Command, args [][]byte) bool {
	return u == nil || u.free || slices.ContainsFunc(u.selectors, func(s *selector) bool {
		why, _ := s.check(cmd, args)
		return why == Allowed && (s.allKeys || slices.ContainsFunc(s.keys, func(k keyPattern) bool {
			return k.pattern == "*" && k.access&keyReads != 0
		}))
	})
}

package store

import (
	"slices"
	"strings"
)

// DenyReason says why a command is not allowed. If several selectors refuse a command, the last of their reasons below counts, as in Redis.
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
	// Undecided means that the check took too many steps. The command is refused, and the ACL log does not name it.
	Undecided
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

// A check makes other clients wait, so its steps are limited. A step is a binary search, a comparison, or a step of redistext.MatchSteps.
const (
	baseCheckSteps = 1 << 17
	stepsPerArg    = 32
	maxCheckSteps  = 1 << 20
)

// stepsOfWork is how many steps of a check take as long as one step of Ctx.work.
const stepsOfWork = 4

// CheckedSteps converts the steps of a check to steps of Ctx.Work.
func CheckedSteps(steps int) int { return steps / stepsOfWork }

// checkSteps is the largest number of steps of a check with args arguments.
func checkSteps(args int) int { return min(baseCheckSteps+stepsPerArg*args, maxCheckSteps) }

// Check returns Allowed if the user may run the command with these arguments, else the reason and
// the index of the argument that caused it.
func (u *User) Check(cmd *Command, args [][]byte) (why DenyReason, arg int) {
	why, arg, _ = u.CheckSteps(cmd, args)
	return why, arg
}

// CheckSteps is Check that also returns the number of its steps.
func (u *User) CheckSteps(cmd *Command, args [][]byte) (why DenyReason, arg, steps int) {
	if u.free {
		return Allowed, 0, 0
	}
	most := checkSteps(len(args))
	left := most
	why = DeniedCommand
	for _, s := range u.selectors {
		reason, at := s.check(cmd, args, &left)
		switch {
		case reason == Allowed:
			return Allowed, 0, most - left
		case left <= 0:
			return Undecided, at, most - left
		}
		if reason > why || reason == why && at > arg {
			why, arg = reason, at
		}
	}
	return why, arg, most - left
}

// check is Check for one selector. It subtracts its steps from *left. If no steps are left, a refusal means nothing.
func (s *selector) check(cmd *Command, args [][]byte, left *int) (why DenyReason, arg int) {
	if !cmd.Is(NoAuth) && !s.commands.has(cmd.bit) && !s.firstArgAllowed(cmd, args, left) {
		return DeniedCommand, 0
	}
	if !s.allKeys && len(cmd.Keys) > 0 {
		var few [4]keyUse
		for _, use := range cmd.keyUses(few[:0], args) {
			for i := range use.places {
				if !s.keySet.matches(bytesToString(args[i]), use.flags.access(), left) {
					return DeniedKey, i
				}
			}
		}
	}
	if first, last, pattern := cmd.channels(args); !s.allChannels {
		for i := first; i <= last; i++ {
			if !s.channelAllowed(bytesToString(args[i]), pattern, left) {
				return DeniedChannel, i
			}
		}
	}
	return Allowed, 0
}

// bytesPerStep is how many bytes of two words are compared in one step.
const bytesPerStep = 16

func (s *selector) firstArgAllowed(cmd *Command, args [][]byte, left *int) bool {
	if len(args) < 2 {
		return false
	}
	word := bytesToString(args[1])
	for _, arg := range s.firstArgs[cmd.bit] {
		if *left--; *left <= 0 {
			return false
		}
		if len(arg) == len(word) {
			if *left -= len(word) / bytesPerStep; sameWord(arg, word) {
				return true
			}
		}
	}
	return false
}

// access returns the access to a key that a command with these flags needs.
func (f KeyFlags) access() (need keyAccess) {
	if f&KeyAccess != 0 {
		need |= keyReads
	}
	if f&(KeyInsert|KeyDelete|KeyUpdate) != 0 {
		need |= keyWrites
	}
	return need
}

// channelAllowed reports whether a selector allows a channel. A pattern must equal an allowed one, unless all channels are allowed.
func (s *selector) channelAllowed(channel string, pattern bool, left *int) bool {
	if s.allChannels || !pattern {
		return s.allChannels || s.channelSet.matches(channel, 0, left)
	}
	*left--
	return s.channelSet.find(channel) != nil
}

// MayListen reports whether some selector allows a channel or, if pattern is true, a pattern (channelAllowed).
func (u *User) MayListen(channel string, pattern bool) bool {
	return u.MayListenToAll([][]byte{stringBytes(channel)}, pattern)
}

// MayListenToAll is MayListen for several channels, within the steps of one check.
func (u *User) MayListenToAll(channels [][]byte, pattern bool) bool {
	left := checkSteps(len(channels))
	for _, channel := range channels {
		if !u.MayListenWithin(bytesToString(channel), pattern, &left) {
			return false
		}
	}
	return true
}

// MayListenWithin is MayListen within *left steps, from which it subtracts its own. It returns false when they run out.
func (u *User) MayListenWithin(channel string, pattern bool, left *int) bool {
	for _, s := range u.selectors {
		if s.channelAllowed(channel, pattern, left) {
			return true
		}
		if *left <= 0 {
			return false
		}
	}
	return false
}

// channels returns the first and the last index of the arguments that are channels or, if pattern is true, patterns.
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

// keyUse says which arguments are the keys of one key spec, and how the command uses them.
type keyUse struct {
	span  keySpan
	found []int // the indices of the keys, if the spec has to search for them
	flags KeyFlags
}

// places yields the indices of the keys.
func (u *keyUse) places(yield func(int) bool) {
	for _, i := range u.found {
		if !yield(i) {
			return
		}
	}
	for i := u.span.first; i <= u.span.last && yield(i); i += u.span.step {
	}
}

// keyUses appends a keyUse for each key spec. It returns nil for malformed arguments, whose error the command itself reports.
func (c *Command) keyUses(uses []keyUse, args [][]byte) []keyUse {
	for i := range c.Keys {
		spec := &c.Keys[i]
		if spec.Flags&KeyNotKey != 0 {
			continue
		}
		span, found, ok := spec.find(args)
		if !ok || spec.NumKeys > 0 && span.last < span.first && len(found) == 0 {
			return nil
		}
		uses = append(uses, keyUse{span, found, c.KeyFlags(*spec, args)})
	}
	return uses
}

// KeyFlags returns the flags of a key spec for these arguments, which decide whether SET, DELEX and BITFIELD read and write. IFEQ and IFNE
// read: by their replies a client can find out the value. (In Redis they need no right to read.)
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
	case c.Name == "set" && !has(3, "get", "ifeq", "ifne"):
		return KeyOW | KeyUpdate
	case c.Name == "delex" && len(args) <= 2:
		return KeyRM | KeyDelete
	case c.Name == "delex":
		return KeyRW | KeyAccess | KeyDelete
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

// readsAnyKey reports whether one selector allows the command and reading every key: the patterns of SORT can name any key.
func (u *User) readsAnyKey(cmd *Command, args [][]byte) bool {
	left := checkSteps(len(args))
	return u == nil || u.free || slices.ContainsFunc(u.selectors, func(s *selector) bool {
		why, _ := s.check(cmd, args, &left)
		return left > 0 && why == Allowed && (s.allKeys || slices.ContainsFunc(s.keys, func(k namePattern) bool {
			return k.pattern == "*" && k.access&keyReads != 0
		}))
	})
}

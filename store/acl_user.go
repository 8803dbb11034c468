package store

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// Users follow Redis's acl.c. A single selector must allow a command with all its keys and channels.

const (
	// DefaultUser is the user of connections that have not authenticated.
	DefaultUser = "default"
	// SystemUser marks the server's own commands. No user can have this name, because a name cannot
	// contain a NUL.
	SystemUser = "\x00"
	// Anonymous stands for the default user while that user needs no password. A node whose user table may be outdated sends Anonymous.
	Anonymous = "\x00?"
	// nameless stands for the user whose name is empty, because the empty name in a call means the default user.
	nameless = "\x00-"
)

// UserOf returns the name of the user whose rights a call has. The argument is the name in the call.
func UserOf(call string) string {
	switch call {
	case "", Anonymous:
		return DefaultUser
	case nameless:
		return ""
	}
	return call
}

// CallName returns the name of a user in a call. The user must not be the default user.
func CallName(user string) string {
	if user == "" {
		return nameless
	}
	return user
}

// User holds a user's rights. A published User is immutable; rules are applied to a copy.
type User struct {
	Name      string
	Enabled   bool
	NoPass    bool
	Passwords []string // SHA-256 in hexadecimal

	sanitize   sanitize
	selectors  []*selector
	table      *Table
	passwordAt places    // the indices of Passwords, only while rules are applied
	work       func(int) // while a command applies rules: the method Ctx.work; otherwise nil
	free       bool      // the user may run every command with every key and channel
}

// sanitize stores what the user's rules say about RESTORE's payloads. This server always checks
// payloads.
type sanitize uint8

const (
	sanitizeUnsaid sanitize = iota
	sanitizeSkip
	sanitizeDo
)

// selector is a set of commands with the keys and channels that it allows.
type selector struct {
	allKeys     bool
	allChannels bool
	future      bool // +@all: the selector also allows commands that do not exist yet
	commands    bitmap
	firstArgs   map[int][]string // by command bit: the first arguments with which a command that is not in commands is allowed nevertheless
	keys        []namePattern
	channels    []namePattern
	keySet      *patternSet // made by seal from keys; nil if there are none
	channelSet  *patternSet // made by seal from channels; nil if there are none

	// While rules are applied:
	keyAt, channelAt places
	wordAt           map[int]places // the indices of firstArgs, by command bit and argument in lower case
	worded           bitmap         // the commands that are in firstArgs; nil: not computed yet
}

// keyAccess says how a key may be used.
type keyAccess uint8

const (
	keyReads keyAccess = 1 << iota
	keyWrites
)

// NewUser returns a user without rights, the starting point of ACL SETUSER. allChannels says whether the
// parameter acl-pubsub-default is "allchannels".
func NewUser(t *Table, name string, allChannels bool) *User {
	return &User{Name: name, table: t, selectors: []*selector{newSelector(t, allChannels)}}
}

func newSelector(t *Table, allChannels bool) *selector {
	return &selector{allChannels: allChannels, commands: newBitmap(len(t.acl.bits))}
}

// InitialUser returns the default user of an unconfigured server. passwordHash is the hash of the
// requirepass password, or "".
func InitialUser(t *Table, passwordHash string) *User {
	u := NewUser(t, DefaultUser, true)
	u.Enabled, u.NoPass = true, passwordHash == ""
	if passwordHash != "" {
		u.Passwords = []string{passwordHash}
	}
	root := u.selectors[0]
	root.allKeys, root.future = true, true
	root.commands.fill(len(t.acl.bits), true)
	u.free = true
	return u
}

// clone returns a copy of the user. Rules that are applied to the copy do not change the user.
func (u *User) clone() *User {
	c := *u
	c.Passwords = slices.Clone(u.Passwords)
	c.selectors = make([]*selector, len(u.selectors))
	for i, s := range u.selectors {
		d := *s
		d.commands, d.keys, d.channels = slices.Clone(s.commands), slices.Clone(s.keys), slices.Clone(s.channels)
		d.firstArgs = maps.Clone(s.firstArgs)
		for bit, list := range d.firstArgs {
			d.firstArgs[bit] = slices.Clone(list)
		}
		c.selectors[i] = &d
	}
	return &c
}

// seal completes a user after rules were applied. It makes the checks fast: it records whether the user may do everything, and
// sorts the patterns.
func (u *User) seal() *User {
	if u.passwordAt != nil {
		u.Passwords = slices.DeleteFunc(u.Passwords, func(hash string) bool { return hash == "" })
		u.passwordAt = nil
	}
	for _, s := range u.selectors {
		s.keyAt, s.channelAt, s.wordAt, s.worded = nil, nil, nil, nil
		s.keySet, s.channelSet = newPatternSet(s.keys), newPatternSet(s.channels)
	}
	u.work = nil
	u.free = slices.ContainsFunc(u.selectors, func(s *selector) bool {
		if !s.allKeys || !s.allChannels || !s.future {
			return false
		}
		for bit := range u.table.acl.bits {
			if !s.commands.has(bit) {
				return false
			}
		}
		return true
	})
	return u
}

// Unrestricted reports whether the user may do everything.
func (u *User) Unrestricted() bool { return u.free }

// Open reports whether a connection may act as this user without authentication.
func (u *User) Open() bool { return u.Enabled && u.NoPass }

// HashPassword returns the hash of a password, as Passwords stores it.
func HashPassword(password []byte) string {
	sum := sha256.Sum256(password)
	return hex.EncodeToString(sum[:])
}

// Authenticate reports whether the user is enabled and has this password or needs none. The time does not depend on the password.
func (u *User) Authenticate(password []byte) bool {
	return u.HasPassword(HashPassword(password))
}

// HasPassword is Authenticate for a caller that has the hash of the password.
func (u *User) HasPassword(hashed string) bool {
	if !u.Enabled {
		return false
	}
	ok := 0
	for _, p := range u.Passwords {
		ok |= sameHash(p, hashed)
	}
	return u.NoPass || ok == 1
}

// sameHash is subtle.ConstantTimeCompare without copies: a user may have thousands of passwords.
func sameHash(a, b string) int {
	if len(a) != len(b) {
		return 0
	}
	differ := byte(0)
	for i := range len(a) {
		differ |= a[i] ^ b[i]
	}
	return subtle.ConstantTimeByteEq(differ, 0)
}

// LosesChannels reports whether u may lose a channel when the user next replaces u. It compares only the texts of patterns.
func (u *User) LosesChannels(next *User) bool {
	stays := map[string]bool{}
	for _, s := range next.selectors {
		if s.allChannels {
			return false
		}
		for _, c := range s.channels {
			stays[c.pattern] = true
		}
	}
	return slices.ContainsFunc(u.selectors, func(s *selector) bool {
		return s.allChannels || slices.ContainsFunc(s.channels, func(c namePattern) bool { return !stays[c.pattern] })
	})
}

// HasSpaces reports whether a name or pattern contains a character that a line of rules cannot
// contain.
func HasSpaces(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r == 0 || r < 0x80 && redistext.IsBlank(byte(r)) })
}

package store

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// Users as in Redis's acl.c: a user has passwords and a list of selectors, of
// which the first, the root, always exists. A command is allowed if one
// selector allows it together with all its keys and channels.

const (
	// DefaultUser is the user of connections that have not said who they are.
	DefaultUser = "default"
	// SystemUser marks commands of the server's own. No user can have this
	// name: a name holds no NUL.
	SystemUser = "\x00"
	// Anonymous is the default user for as long as that needs no password. A
	// node whose knowledge of the users may be old gives it for clients that
	// have not given any.
	Anonymous = "\x00?"
)

// User is what a user may do. One that has been published is not changed any
// more; rules are applied to a copy.
type User struct {
	Name      string
	Enabled   bool
	NoPass    bool
	Passwords []string // SHA-256 in hexadecimal

	sanitize   sanitize
	selectors  []*selector
	table      *Table
	passwordAt places // while rules are applied
	free       bool   // may run everything with every key and channel
}

// sanitize keeps what the user's rules have said about RESTORE's payloads.
// They are always checked here.
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
	future      bool // also commands that do not exist yet: +@all
	commands    bitmap
	firstArgs   map[int][]string // by command: allowed with one of these only
	keys        []keyPattern
	channels    []string

	// While rules are applied:
	keyAt, channelAt places
	wordAt           map[int]places // of firstArgs, in lower case
}

// keyAccess says how a key may be used.
type keyAccess uint8

const (
	keyReads keyAccess = 1 << iota
	keyWrites
)

type keyPattern struct {
	pattern string
	access  keyAccess
}

// NewUser returns a user who may do nothing: what ACL SETUSER begins with.
// allChannels is acl-pubsub-default.
func NewUser(t *Table, name string, allChannels bool) *User {
	return &User{Name: name, table: t, selectors: []*selector{newSelector(t, allChannels)}}
}

func newSelector(t *Table, allChannels bool) *selector {
	return &selector{allChannels: allChannels, commands: newBitmap(len(t.acl.bits))}
}

// InitialUser is the default user of a server that has been told nothing;
// passwordHash is that of requirepass, or "".
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

// clone copies so deeply that rules can be applied to the copy.
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

// seal completes a user to whom rules have been applied. It finds out whether the user may do
// anything, which the fast path asks.
func (u *User) seal() *User {
	if u.passwordAt != nil {
		u.Passwords = slices.DeleteFunc(u.Passwords, func(hash string) bool { return hash == "" })
		u.passwordAt = nil
	}
	for _, s := range u.selectors {
		s.keyAt, s.channelAt, s.wordAt = nil, nil, nil
	}
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

// Unrestricted reports whether nothing is forbidden to the user.
func (u *User) Unrestricted() bool { return u.free }

// Open reports whether whoever says nothing is this user.
func (u *User) Open() bool { return u.Enabled && u.NoPass }

// HashPassword returns the form in which passwords are kept.
func HashPassword(password []byte) string {
	sum := sha256.Sum256(password)
	return hex.EncodeToString(sum[:])
}

// Authenticate checks a password. It takes as long for a wrong one as for a
// right one.
func (u *User) Authenticate(password []byte) bool {
	return u.HasPassword(HashPassword(password))
}

// HasPassword is Authenticate for one whose password's hash is known.
func (u *User) HasPassword(hashed string) bool {
	if !u.Enabled {
		return false
	}
	hash := []byte(hashed)
	ok := 0
	for _, p := range u.Passwords {
		ok |= subtle.ConstantTimeCompare(hash, []byte(p))
	}
	return u.NoPass || ok == 1
}

// LostChannels tells what subscriptions become of a user that is replaced by
// next: lost is false if next may use every channel that u may; else keeps
// reports whether next may use a channel or, taken literally, a pattern.
func (u *User) LostChannels(next *User) (keeps func(channel string, pattern bool) bool, lost bool) {
	upcoming, stays := []string{}, map[string]bool{}
	for _, s := range next.selectors {
		if s.allChannels {
			return nil, false
		}
		upcoming = append(upcoming, s.channels...)
		for _, c := range s.channels {
			stays[c] = true
		}
	}
	lost = slices.ContainsFunc(u.selectors, func(s *selector) bool {
		return s.allChannels || slices.ContainsFunc(s.channels, func(c string) bool { return !stays[c] })
	})
	return func(channel string, pattern bool) bool { return channelAllowed(upcoming, channel, pattern) }, lost
}

// HasSpaces reports whether a name or pattern holds what cannot stand in a
// line of rules.
func HasSpaces(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r == 0 || r < 0x80 && isBlank(byte(r)) })
}

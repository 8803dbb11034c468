package store

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tidwall/btree"
)

// Account is a user as the replicated state has it. It is never changed, only
// replaced.
type Account struct {
	Name   string
	rules  string // see encodeRules
	parsed atomic.Pointer[User]
}

// User returns the account's user. It may be called from any goroutine.
func (a *Account) User(t *Table) *User {
	if u := a.parsed.Load(); u != nil && u.table == t {
		return u
	}
	u := userOf(t, a.Name, decodeRules(a.rules))
	a.parsed.Store(u)
	return u
}

// What a user takes apart from its name and rules, and how much more its rules take when
// they have been parsed: a rule of few letters becomes a pattern, a selector a set of
// commands.
const (
	accountSize   = 512
	ruleSize      = 48
	selectorSize  = 64
	copiesOfRules = 3
)

// size is what the user counts as data. It is an estimate from the rules alone, the same
// on every node. A user who is nil takes nothing.
func (a *Account) size() int64 {
	if a == nil {
		return 0
	}
	n := int64(accountSize + len(a.Name) + copiesOfRules*len(a.rules))
	for _, rule := range decodeRules(a.rules) {
		n += ruleSize
		if rule == sectionSelector {
			n += selectorSize
		}
	}
	return n
}

// Packed is User.Packed.
func (a *Account) Packed() string { return a.rules }

// encodeRules packs rules: each a uvarint length and its bytes.
func encodeRules(rules []string) string {
	var b []byte
	for _, r := range rules {
		b = binary.AppendUvarint(b, uint64(len(r)))
		b = append(b, r...)
	}
	return string(b)
}

func decodeRules(packed string) (rules []string) {
	d := decoder{b: []byte(packed)}
	for len(d.b) > 0 {
		if r := d.str(); !d.bad {
			rules = append(rules, r)
		}
	}
	return rules
}

// accounts are the users of the state; there is one for the default user only
// if something was said of it.
type accounts struct {
	byName  *btree.BTreeG[*Account]
	version uint64   // the write set that last changed one
	def     *Account // the default user's, kept at hand for every command
	size    int64    // of all: they count as data

	// What is known of deletions on this node alone: by which write set a name was deleted last, and up to which
	// write set nothing is known, because a snapshot came or there were too many.
	deleted   map[string]uint64
	forgotten uint64
}

func newAccounts() accounts {
	return accounts{byName: btree.NewBTreeGOptions(func(a, b *Account) bool { return a.Name < b.Name }, treeOptions)}
}

func (a *accounts) set(acc *Account, version uint64) {
	old, _ := a.byName.Set(acc)
	a.size += acc.size() - old.size()
	a.version = version
	if acc.Name == DefaultUser {
		a.def = acc
	}
}

func (a *accounts) remove(name string, version uint64) {
	old, _ := a.byName.Delete(&Account{Name: name})
	a.size -= old.size()
	a.version = version
	if name == DefaultUser {
		a.def = nil
	}
	if len(a.deleted) >= maxDeletions {
		a.deleted, a.forgotten = nil, version
		return
	}
	if a.deleted == nil {
		a.deleted = map[string]uint64{}
	}
	a.deleted[name] = version
}

// maxDeletions is how many deleted names are remembered.
const maxDeletions = 1000

// sameUser tells whether a name stands for the user whom it stood for when the users were of a version. forgotten:
// nobody can tell.
func (t *Txn) sameUser(name string, version uint64) (same, forgotten bool) {
	a := &t.s.accounts
	if slices.Contains(t.deleted, name) || a.deleted[name] > version {
		return false, false
	}
	return version >= a.forgotten, version < a.forgotten
}

// applyUser applies the setting or deleting of a user.
func (s *Store) applyUser(o op, d *decoder, seq uint64) {
	name := string([]byte(d.str()))
	if o == opUserDelete {
		if !d.bad {
			s.accounts.remove(name, seq)
		}
		return
	}
	if rules := d.str(); !d.bad {
		s.accounts.set(&Account{Name: name, rules: string([]byte(rules))}, seq)
	}
}

// Accounts are all accounts at one instant, by name.
type Accounts struct {
	Version uint64 // grows with every change
	List    []*Account
}

// AccountSink is a Sink that wants to know the users. It is told of them after
// every change, also while old entries are replayed and after a snapshot has
// been restored; it must not block.
type AccountSink interface {
	AccountsChanged(Accounts)
}

// Accounts returns the present accounts.
func (s *Store) Accounts() Accounts { return Accounts{s.accounts.version, s.accounts.byName.Items()} }

// AccountsVersion tells whether Accounts has changed.
func (s *Store) AccountsVersion() uint64 { return s.accounts.version }

// accounts writes the users, if there ever were any.
func (w *snapWriter) accounts(a Accounts) {
	for _, acc := range a.List {
		w.WriteByte(recUser)
		w.str(acc.Name)
		w.str(acc.rules)
	}
	if a.Version > 0 {
		w.WriteByte(recUsers)
		w.int(a.Version)
	}
}

// ACLEnv is what the node that evaluates adds to the users of the state.
type ACLEnv struct {
	// PasswordHash is that of the default user as long as the state says
	// nothing of it; "": it has none.
	PasswordHash string
	// Users are of the node's ACL file: as long as the state says nothing, its default user counts.
	Users []PackedUser
}

// Initial is the default user as long as the state says nothing of it.
func (e *ACLEnv) Initial(table *Table) *User {
	for _, u := range e.Users {
		if u.Name == DefaultUser {
			return userOf(table, u.Name, decodeRules(u.Rules))
		}
	}
	return InitialUser(table, e.PasswordHash)
}

// NewUsersGetAllChannels is ParamChannels.
func (t *Txn) NewUsersGetAllChannels() bool {
	value, _ := t.Config(ParamChannels)
	return strings.EqualFold(value, "allchannels")
}

// account returns the account of a name as this transaction sees it.
func (t *Txn) account(name string) *Account {
	if a, pending := t.users[name]; pending {
		return a
	}
	if name == DefaultUser {
		return t.s.accounts.def
	}
	// Clients of one name often come together.
	if at := t.s.accounts.version; t.caller == nil || t.caller.Name != name || t.callerAt != at {
		t.caller, _ = t.s.accounts.byName.Get(&Account{Name: name})
		t.callerAt = at
	}
	return t.caller
}

// User returns a user by name; nil if there is none. There always is a default
// user.
func (t *Txn) User(table *Table, name string) *User {
	if a := t.account(name); a != nil {
		return a.User(table)
	}
	if name != DefaultUser {
		return nil
	}
	if t.defaultUser == nil {
		t.defaultUser = t.env.ACL.Initial(table)
	}
	return t.defaultUser
}

// UserNames returns the names of all users, in order.
func (t *Txn) UserNames() []string {
	names := map[string]bool{DefaultUser: true}
	for _, a := range t.s.accounts.byName.Items() {
		names[a.Name] = true
	}
	for name, a := range t.users {
		if a == nil && name != DefaultUser {
			delete(names, name)
		} else {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// SetUser adds or replaces a user.
func (t *Txn) SetUser(u *User) {
	a := &Account{Name: u.Name, rules: u.Packed()}
	a.parsed.Store(u)
	t.setAccount(a)
}

func (t *Txn) setAccount(a *Account) {
	t.ws.begin(opUserSet, t.ws.db)
	t.ws.str(a.Name)
	t.ws.str(a.rules)
	t.putAccount(a.Name, a)
}

// DeleteUser deletes an existing user, who is not the default user.
func (t *Txn) DeleteUser(name string) {
	t.ws.begin(opUserDelete, t.ws.db)
	t.ws.str(name)
	t.putAccount(name, nil)
	n := len(t.deleted)
	t.undo(func() { t.deleted, t.told = t.deleted[:n], min(t.told, n) })
	t.deleted = append(t.deleted, name)
}

// TakeDeletedUsers returns the users that have been deleted since it was last called.
func (t *Txn) TakeDeletedUsers() []string {
	deleted := t.deleted[t.told:]
	t.told = len(t.deleted)
	return deleted
}

func (t *Txn) putAccount(name string, a *Account) {
	if t.users == nil {
		t.users = map[string]*Account{}
	}
	users := t.users
	old, had := users[name]
	if had {
		t.size -= old.size()
	} else if before, is := t.s.accounts.byName.Get(&Account{Name: name}); is {
		t.size -= before.size()
	}
	t.size += a.size()
	t.undo(func() {
		if had {
			users[name] = old
		} else {
			delete(users, name)
		}
	})
	users[name] = a
}

// AccountsVersion is Store.AccountsVersion of the state that this transaction makes.
func (t *Txn) AccountsVersion() uint64 {
	if len(t.users) > 0 {
		return t.seq
	}
	return t.s.accounts.version
}

// paramFlagPassword keeps the hash of the password that a node's flag has given the default user.
const paramFlagPassword = "requirepass-of-a-flag"

// EstablishPassword makes a password that a node has been started with the default user's for good, if
// nothing was ever said of that user: the leader's own, or else the one with the given hash ("": none).
// From then on a node that does not know it lets nobody in by that.
//
// again: a node that is the whole cluster has been started. Then its flag may replace what a flag has given.
func (t *Txn) EstablishPassword(table *Table, hash string, again bool) {
	u := t.User(table, DefaultUser)
	if t.account(DefaultUser) != nil {
		byFlag, _ := t.Config(paramFlagPassword)
		if !again || hash == "" || u.NoPass || !slices.Equal(u.Passwords, []string{byFlag}) || hash == byFlag {
			return
		}
	} else if t.env.ACL.PasswordHash != "" {
		hash = t.env.ACL.PasswordHash
	}
	if !isPasswordHash(hash) {
		return
	}
	if u, refusal := u.WithRules([]string{"resetpass", "#" + hash}, true); refusal == "" {
		t.SetUser(u)
		t.SetConfig(paramFlagPassword, hash)
	}
}

// guarded reports whether the default user has to be looked up: its rights can
// only be less than all if something was said of it.
func (t *Txn) guarded() bool { return t.s.accounts.def != nil || t.users != nil }

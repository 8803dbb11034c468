package store

import (
	"github.com/lockstep-io/lockstep/store/codec"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
)

// Account is a user in the replicated state. It is immutable: a change replaces it.
type Account struct {
	Name   string
	rules  string // the rules, packed by encodeRules
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

// Estimated bytes of a user, a rule and a further selector, without texts. The texts of parsed rules take copiesOfRules times as much.
const (
	accountSize   = 512
	ruleSize      = 48
	selectorSize  = 64
	copiesOfRules = 3
)

// Packed returns the rules as User.Packed does.
func (a *Account) Packed() string { return a.rules }

// encodeRules packs rules: each is a uvarint length and its bytes.
func encodeRules(rules []string) string {
	var b []byte
	for _, r := range rules {
		b = codec.AppendStr(b, r)
	}
	return string(b)
}

func decodeRules(packed string) (rules []string) {
	d := newDecoder([]byte(packed))
	for len(d.B) > 0 {
		if r := d.Str(); !d.Bad {
			rules = append(rules, r)
		}
	}
	return rules
}

// accounts are the users of the state, which lacks the default user until something changes that user.
type accounts struct {
	byName  *tree[*Account]
	version uint64   // the sequence number of the last write set that changed an account
	def     *Account // the default user's account in byName, or nil; every command needs this account, so it is also here
	size    int64    // bytes of all accounts, a part of the data size
	gone    []string // names that the same write set (see version) deleted, even if it created them again later

	// deleted maps a user's name to the last write set that deleted it. Deletions up to the write set forgotten are unknown.
	deleted   map[string]uint64
	forgotten uint64
}

func newAccounts() accounts {
	return accounts{byName: newTree(func(a, b *Account) bool { return a.Name < b.Name })}
}

func (a *accounts) set(acc *Account, version uint64) {
	old, _ := a.byName.Set(acc)
	a.size += acc.size() - old.size()
	a.changed(version)
	if acc.Name == DefaultUser {
		a.def = acc
	}
}

func (a *accounts) remove(name string, version uint64) {
	old, _ := a.byName.Delete(&Account{Name: name})
	a.size -= old.size()
	a.changed(version)
	a.gone = append(a.gone, name)
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

// changed notes that the write set version changes an account.
func (a *accounts) changed(version uint64) {
	if a.version != version {
		a.version, a.gone = version, nil
	}
}

// maxDeletions is the largest number of deleted names that a node remembers.
const maxDeletions = 1000

// sameUser reports whether a name still means the user of the given version. forgotten means that this node does not know.
func (t *Txn) sameUser(name string, version uint64) (same, forgotten bool) {
	a := &t.s.accounts
	if t.gone[name] || a.deleted[name] > version {
		return false, false
	}
	return version >= a.forgotten, version < a.forgotten
}

// UsersForgotten returns the version of the users up to which this node no longer knows the deletions (sameUser).
func (t *Txn) UsersForgotten() uint64 { return t.s.accounts.forgotten }

// applyUser applies the operation that sets or deletes a user.
func (s *Store) applyUser(o op, d *decoder, seq uint64) {
	name := string([]byte(d.Str()))
	if o == opUserDelete {
		if !d.Bad {
			s.accounts.remove(name, seq)
		}
		return
	}
	if rules := d.Str(); !d.Bad {
		s.accounts.set(&Account{Name: name, rules: string([]byte(rules))}, seq)
	}
}

// Accounts holds all accounts at one instant, sorted by name.
type Accounts struct {
	Version uint64 // grows with every write set that changes an account
	// The store does not know which users were deleted up to the version Forgotten. For each later change, Gone names the deleted
	// users.
	Forgotten uint64
	List      []*Account
	Gone      []string // names that the last change deleted; such a name in List belongs to a new user
}

// AccountSink is a Sink that receives the users after every change, also in a replay or restore. It must not block.
type AccountSink interface {
	AccountsChanged(Accounts)
}

// Accounts returns the current accounts.
func (s *Store) Accounts() Accounts {
	a := &s.accounts
	return Accounts{Version: a.version, Forgotten: a.forgotten, List: a.byName.Items(), Gone: a.gone}
}

// AccountsVersion returns what is in the field Version of the current accounts.
func (s *Store) AccountsVersion() uint64 { return s.accounts.version }

// accounts writes the users and, if a user was ever set, their version.
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

// ACLEnv is what the evaluating node's own configuration adds to the users of the state.
type ACLEnv struct {
	// PasswordHash is the hash of the default user's password as long as the state has no default user; "" means that no password is
	// needed.
	PasswordHash string
	// Users are the users of the node's ACL file. The default user among them applies until a write to the state has set users.
	Users []PackedUser
}

// Initial returns the default user while the state has none. After a change of users (version > 0), the node's file no longer counts.
func (e *ACLEnv) Initial(table *Table, version uint64) *User {
	for _, u := range e.Users {
		if u.Name == DefaultUser && version == 0 {
			return userOf(table, u.Name, decodeRules(u.Rules))
		}
	}
	return InitialUser(table, e.PasswordHash)
}

// NewUsersGetAllChannels reports whether ParamChannels is "allchannels".
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
	// The next lookup is often for the same user, so cache the account.
	if at := t.s.accounts.version; t.caller == nil || t.caller.Name != name || t.callerAt != at {
		t.caller, _ = t.s.accounts.byName.Get(&Account{Name: name})
		t.callerAt = at
	}
	return t.caller
}

// User returns a user by name, or nil. The default user always exists.
func (t *Txn) User(table *Table, name string) *User {
	if a := t.account(name); a != nil {
		return a.User(table)
	}
	if name != DefaultUser {
		return nil
	}
	if t.defaultUser == nil {
		t.defaultUser = t.env.ACL.Initial(table, t.s.accounts.version)
	}
	return t.defaultUser
}

// UserNames returns the names of all users, sorted.
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
func (t *Txn) SetUser(u *User) { t.setAccount(newAccount(u)) }

func newAccount(u *User) *Account {
	a := &Account{Name: u.Name, rules: u.Packed()}
	a.parsed.Store(u)
	return a
}

func (t *Txn) setAccount(a *Account) {
	t.ws.begin(opUserSet, t.ws.db)
	t.ws.str(a.Name)
	t.ws.str(a.rules)
	t.putAccount(a.Name, a)
}

// DeleteUser deletes an existing user. It must not be the default user.
func (t *Txn) DeleteUser(name string) {
	t.ws.begin(opUserDelete, t.ws.db)
	t.ws.str(name)
	t.putAccount(name, nil)
	n, before := len(t.deleted), t.gone[name]
	t.undo(func() {
		t.deleted, t.told = t.deleted[:n], min(t.told, n)
		t.gone[name] = before
	})
	t.deleted = append(t.deleted, name)
	if t.gone == nil {
		t.gone = map[string]bool{}
	}
	t.gone[name] = true
}

// TakeDeletedUsers returns the names of the users that the transaction has deleted since the last call of TakeDeletedUsers.
func (t *Txn) TakeDeletedUsers() []string {
	deleted := t.deleted[t.told:]
	t.told = len(t.deleted)
	return deleted
}

func (t *Txn) putAccount(name string, a *Account) {
	if t.users == nil {
		t.users = map[string]*Account{}
	}
	users, grown := t.users, t.grown
	old, had := users[name]
	before := old
	if !had {
		before, _ = t.s.accounts.byName.Get(&Account{Name: name})
	}
	by := a.size() - before.size()
	t.size += by
	t.grown.size += by
	switch {
	case before == nil && a != nil:
		t.grown.users++
	case before != nil && a == nil:
		t.grown.users--
	}
	t.undo(func() {
		t.grown = grown
		if had {
			users[name] = old
		} else {
			delete(users, name)
		}
	})
	users[name] = a
}

// AccountsVersion returns the version of the users after this transaction.
func (t *Txn) AccountsVersion() uint64 {
	if len(t.users) > 0 {
		return t.seq
	}
	return t.s.accounts.version
}

// paramFlagPassword is a cluster parameter: the hash of the default user's password that came from a node's flag.
const paramFlagPassword = "requirepass-of-a-flag"

// EstablishPassword gives the default user the password hash, or rather that of the leader's own flag, unless the state has an account of
// this user. When a cluster's only node starts again (again), hash also replaces the password that an earlier flag has set.
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

// guarded reports whether the default user may have lost rights, so that Authorize must look that user up.
func (t *Txn) guarded() bool {
	return t.s.accounts.def != nil || t.users != nil || t.s.accounts.version == 0 && len(t.env.ACL.Users) > 0
}

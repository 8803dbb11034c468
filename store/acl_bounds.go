package store

// The bounds of users. Names are copied for each connection that CLIENT LIST shows and with each command that goes to the leader;
// each login compares all passwords of its user; ACL LIST, and a node that learns of a change, go through all users.
const (
	maxUserName  = 1 << 10
	maxUsers     = 10_000
	maxUserRules = 4096
	maxUsersSize = 32 << 20 // as DataSize counts them
)

// crowd says how many users there are, and what they take.
type crowd struct {
	users int
	size  int64
}

// AdmitUser is SetUser within the bounds of users. Users of an earlier version may be beyond them: they may change, but not grow.
func (t *Txn) AdmitUser(u *User) (refusal Error) {
	a, old := newAccount(u), t.account(u.Name)
	rules, size := a.weigh()
	oldRules, oldSize := old.weigh()
	now := t.crowd()
	switch {
	case old == nil && len(u.Name) > maxUserName:
		return ErrUserName
	case old == nil && now.users >= maxUsers:
		return ErrUsers
	case rules > maxUserRules && rules > oldRules:
		return ErrUserRules
	case now.size+size-oldSize > maxUsersSize && size > oldSize:
		return ErrUsersSize
	}
	t.setAccount(a)
	return ""
}

// crowd returns the users as this transaction sees them.
func (t *Txn) crowd() crowd {
	a := &t.s.accounts
	return crowd{a.byName.Len() + t.grown.users, a.size + t.grown.size}
}

// weigh returns the number of an account's rules and its share of the data size. The size is an estimate from the rules alone, so it
// is the same on every node. A nil account has neither.
func (a *Account) weigh() (rules int, size int64) {
	if a == nil {
		return 0, 0
	}
	size = int64(accountSize + len(a.Name) + copiesOfRules*len(a.rules))
	for _, rule := range decodeRules(a.rules) {
		rules++
		size += ruleSize
		if rule == sectionSelector {
			size += selectorSize
		}
	}
	return rules, size
}

// size is weigh for a caller that does not count rules.
func (a *Account) size() int64 {
	_, size := a.weigh()
	return size
}

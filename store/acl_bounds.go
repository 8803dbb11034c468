package store

// The bounds of users.
const (
	maxUserName  = 1 << 10  // in bytes; CLIENT LIST, and each command that is sent to the leader, copy the name of a user
	maxUsers     = 10_000   // ACL LIST goes through all users, and so does each node after a change of a user
	maxUserRules = 4096     // each password is a rule, and a login compares all passwords of its user
	maxUsersSize = 32 << 20 // bytes of all users together, as DataSize counts them
)

// crowd is the number of users and the bytes that they add to the data size.
type crowd struct {
	users int
	size  int64
}

// AdmitUser is SetUser for users within the bounds. An earlier version may have admitted a larger one: AdmitUser accepts changes that do
// not make it larger.
func (t *Txn) AdmitUser(u *User) (refusal Error) {
	old, now := t.account(u.Name), t.crowd()
	oldRules, oldSize := old.weigh()
	switch least := u.leastRules(); {
	case old == nil && len(u.Name) > maxUserName:
		return ErrUserName
	case old == nil && now.users >= maxUsers:
		return ErrUsers
	case least > maxUserRules && least > oldRules:
		return ErrUserRules // this check comes first, because newAccount would take long to find the rules of so many selectors
	}
	a := newAccount(u)
	rules, size := a.weigh()
	switch {
	case rules > maxUserRules && rules > oldRules:
		return ErrUserRules
	case now.size+size-oldSize > maxUsersSize && size > oldSize:
		return ErrUsersSize
	}
	t.setAccount(a)
	return ""
}

// leastRules returns a lower bound for the number of the user's rules.
func (u *User) leastRules() int {
	n := len(u.Passwords)
	for _, s := range u.selectors {
		n += 2 + len(s.keys) + len(s.channels) // two rules more: "(" (for the root: on or off), and one for the commands
	}
	return n
}

// DescribeSteps returns how many steps of Ctx.Work it takes to describe the user.
func (u *User) DescribeSteps() int { return describeSelector * len(u.selectors) }

// describeSelector is the number of steps that DescribeSteps counts for one selector. To find its rules takes some 20 µs.
const describeSelector = 128

// crowd returns the number and the size of the users as this transaction sees them.
func (t *Txn) crowd() crowd {
	a := &t.s.accounts
	return crowd{a.byName.Len() + t.grown.users, a.size + t.grown.size}
}

// weigh returns the number of an account's rules and an estimate of its bytes in the data size, which is the same on every node.
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

// size returns the bytes that the account adds to the data size.
func (a *Account) size() int64 {
	_, size := a.weigh()
	return size
}

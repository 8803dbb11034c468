package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestUsersAreBounded: an ACL SETUSER beyond a bound of users fails with an error that says what to do. A user that is beyond a
// bound already may change.
func TestUsersAreBounded(t *testing.T) {
	d := newTestDB(t)
	named := func(name string, rules ...string) *User {
		t.Helper()
		u, refusal := NewUser(d.table, name, false).WithRules(rules, false)
		if refusal != "" {
			t.Fatal(refusal)
		}
		return u
	}
	many := func(format string, n int) (rules []string) {
		for i := range n {
			rules = append(rules, fmt.Sprintf(format, i))
		}
		return rules
	}
	txn := d.begin()
	admits := func(u *User, want Error) {
		t.Helper()
		if got := txn.AdmitUser(u); got != want {
			t.Errorf("a user of %d rules with a name of %d bytes: %q, want %q", len(u.Rules()), len(u.Name), got, want)
		}
	}
	long := strings.Repeat("n", maxUserName)
	admits(named(long), "")
	admits(named(long+"n"), ErrUserName)
	txn.SetUser(named(long + "n"))
	admits(named(long+"n", "on"), "")

	for _, format := range []string{"~k%d", "%%R~k%d", "&c%d", ">p%d", "+get|w%d", "(~k%d)"} {
		admits(named("u", many(format, 1000)...), "")
		admits(named("u", many(format, 5000)...), ErrUserRules)
	}
	txn.SetUser(named("u", many("~k%d", 5000)...))
	admits(named("u", many("~k%d", 4999)...), "")
	admits(named("u", many("~k%d", 5000)...), ErrUserRules)
	txn.DeleteUser("u")

	large := named("large", "~"+strings.Repeat("x", 4<<20))
	admits(large, "")
	large.Name = "larger"
	admits(large, "")
	large.Name = "largest"
	admits(large, ErrUsersSize)
	d.apply(txn)
	txn = d.begin()
	admits(large, ErrUsersSize)
	before := txn.Savepoint()
	txn.DeleteUser("larger")
	admits(large, "")
	txn.Rollback(before)
	admits(large, ErrUsersSize)
	txn.DeleteUser("large")
	txn.DeleteUser("larger")

	for n := txn.crowd().users; n < maxUsers; n++ {
		txn.SetUser(named(fmt.Sprint("u", n)))
	}
	admits(named("another"), ErrUsers)
	d.apply(txn)
	txn = d.begin()
	admits(named("another"), ErrUsers)
	admits(named(fmt.Sprint("u", maxUsers-1), "on"), "")
	txn.DeleteUser(fmt.Sprint("u", maxUsers-1))
	admits(named("another"), "")
}

// TestCategoriesLookForNoWords: a rule with a category drops the first arguments of the category's commands. It does not search
// those of all other commands for them.
func TestCategoriesLookForNoWords(t *testing.T) {
	table := NewTable(Commands())
	u := NewUser(table, "u", false)
	s := u.selectors[0]
	for _, rule := range []string{"+get|a", "+set|b", "-@geo", "+incr|c", "-@read", "+get|d", "-@write"} {
		if fault := u.apply(rule, false); fault != "" {
			t.Fatal(fault)
		}
		for bit := range table.acl.bits {
			if s.worded != nil && s.worded.has(bit) != (len(s.firstArgs[bit]) > 0) {
				t.Errorf("%s: command %d", rule, bit)
			}
		}
	}
	if got := u.seal().String(); !strings.HasSuffix(got, " -@all +get|d") || s.worded != nil {
		t.Error(got)
	}
	many := slices.Repeat([]string{"(+@all)"}, 1400)
	u, refusal := u.WithRules(many, false)
	if rules, _ := newAccount(u).weigh(); refusal != "" || u.leastRules() > rules {
		t.Errorf("%q: %d rules, and %d at least", refusal, rules, u.leastRules())
	}
}

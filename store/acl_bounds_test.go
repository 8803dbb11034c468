package store

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestUsersAreBounded: ACL SETUSER makes no user larger than the bounds. A user beyond a bound may change, but not grow.
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

// TestUsersOfAFileHaveRoom: maxUsersSize is the only bound for the users that a cluster takes over from an ACL file.
func TestUsersOfAFileHaveRoom(t *testing.T) {
	table := NewTable(Commands())
	u, refusal := NewUser(table, "", false).WithRules([]string{"on", ">p", "~app:*", "+get"}, false)
	if refusal != "" {
		t.Fatal(refusal)
	}
	var users []PackedUser
	for i := range 5000 {
		users = append(users, PackedUser{fmt.Sprint("u", i), u.Packed()})
	}
	for name, set := range map[string]func(*Txn, []PackedUser) Error{
		"ACL LOAD":    func(txn *Txn, users []PackedUser) Error { return txn.ReplaceUsers(table, users) },
		"the founder": (*Txn).EstablishUsers,
	} {
		run := func(users []PackedUser) (refusal Error, n int) {
			txn := New().Begin(Time{Lease: 1}, 1, Env{Limits: Limits{Memory: 2 << 20, Entry: MinEntry}})
			txn.BeginCall()
			c := &Ctx{Txn: txn, Cmd: table.Lookup([]byte("set"))}
			r := c.Call(func(*Ctx) Reply {
				if refusal := set(txn, users); refusal != "" {
					return Err(refusal)
				}
				return OK
			})
			if r.IsError() {
				return Error(r.Str), txn.Writes().Len()
			}
			return c.Overrun(), txn.Writes().Len()
		}
		if refusal, n := run(users); refusal != "" || n < len(users) {
			t.Errorf("%s: %q, %d writes", name, refusal, n)
		}
		large := PackedUser{"large", encodeRules([]string{"~" + strings.Repeat("x", maxUsersSize/copiesOfRules)})}
		if refusal, n := run(append(slices.Clone(users), large)); refusal != ErrUsersSize || n != 0 {
			t.Errorf("%s, too large: %q, %d writes", name, refusal, n)
		}
	}
	var file strings.Builder // the rule of even a short password takes 65 bytes
	for i := range 9900 {
		fmt.Fprintf(&file, "user u%d on%s\n", i, " >0 >1 >2 >3 >4 >5 >6 >7 >8 >9 >a >b >c")
	}
	if users, faults := ParseACLFile(table, "f", file.String(), false); users != nil || !strings.Contains(faults, "f: the users would take more than 32 MiB") {
		t.Errorf("%d users, %q", len(users), faults)
	}
}

// TestCategoriesLookForNoWords: a rule with a category goes through the first arguments of that category's commands only.
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

// TestSelectorOfManyWords: if a word of a selector is refused, the words behind that word take no memory.
func TestSelectorOfManyWords(t *testing.T) {
	table := NewTable(Commands())
	line := strings.Repeat(" a", 1<<20)
	for rule, refused := range map[string]bool{"(a" + line + ")": true, "(a" + line + " 'b)": false} {
		u := NewUser(table, "u", false)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fault := u.apply(rule, false)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 4*uint64(len(rule)) || (fault != "") != refused {
			t.Errorf("refused as %q, took %d bytes", fault, took)
		}
	}
}

package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// userWith applies rules to a new user.
func userWith(t testing.TB, table *Table, rules ...string) *User {
	t.Helper()
	u, refusal := NewUser(table, "u", false).WithRules(rules, false)
	if refusal != "" {
		t.Fatal(refusal)
	}
	return u
}

// randomRule returns a rule that can be applied to any user.
func randomRule(r *rand.Rand, table *Table) string {
	all := table.acl.bits
	sign := []string{"+", "-"}[r.IntN(2)]
	switch r.IntN(9) {
	case 0, 1:
		return sign + "@" + aclCategories[r.IntN(len(aclCategories))]
	case 2, 3, 4:
		return sign + all[r.IntN(len(all))].FullName()
	case 5:
		return []string{"+@all", "-@all", "on", "off", "nopass", ">x", "sanitize-payload"}[r.IntN(7)]
	case 6:
		return "resetkeys"
	case 7:
		return "+select|" + []string{"0", "1", "a b"}[r.IntN(3)]
	}
	return []string{"%R~r", "~both", "%W~r", "%RW~*", "%R~*", "%W~*", "~*"}[r.IntN(7)]
}

// TestRulesMakeTheSameUser applies random rules and expects the user's own
// description to make a user that may do the same.
func TestRulesMakeTheSameUser(t *testing.T) {
	table := NewTable(Commands())
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		u := NewUser(table, "u", r.IntN(2) == 0)
		var given []string
		for range 1 + r.IntN(12) {
			rule := randomRule(r, table)
			if r.IntN(10) == 0 {
				rule = "(+get ~k)b) " + rule + ")"
			}
			next, refusal := u.WithRules([]string{rule}, false)
			if refusal == "" {
				u, given = next, append(given, rule)
			}
		}
		twin := (&Account{Name: "u", rules: encodeRules(u.Rules())}).User(table)
		if got, want := twin.String(), u.String(); got != want {
			t.Fatalf("seed %d, rules %q: described as\n%s\nwhich makes\n%s", seed, given, want, got)
		}
		for i, s := range u.selectors {
			if other := twin.selectors[i]; other.allKeys != s.allKeys || !slices.Equal(other.keys, s.keys) {
				t.Fatalf("seed %d, rules %q: selector %d of\n%s\nallows all keys %v and %v, its copy %v and %v", seed, given, i, u, s.allKeys, s.keys, other.allKeys, other.keys)
			}
			for _, c := range table.acl.bits {
				if twin.selectors[i].commands.has(c.bit) != s.commands.has(c.bit) {
					t.Fatalf("seed %d, rules %q: %s differs in selector %d of\n%s", seed, given, c.FullName(), i, u)
				}
			}
		}
	}
}

// TestUnknownRulesOfAnotherVersion: if this node does not know some rules of a user, it leaves them out and applies the others.
func TestUnknownRulesOfAnotherVersion(t *testing.T) {
	table := NewTable(Commands())
	u := userOf(table, "u", []string{"on", "~a*", "-@all", "+@nosuch", "+nosuch", "future-flag", "+get", "(", "+set", "+nosuch|x"})
	if got, want := u.String(), "on ~a* resetchannels -@all +get (resetchannels -@all +set)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestUnrestricted(t *testing.T) {
	table := NewTable(Commands())
	for rules, want := range map[string]bool{
		"~* &* +@all":                              true,
		"~* &* +@all -get":                         false,
		"~* &* +@all -get +get":                    true,
		"~* &* +@all -@stream":                     false,
		"~a &* +@all":                              false,
		"~* +@all":                                 false,
		"~* &* -@all +@read +@write +@slow":        false,
		"off resetpass ~* &* +@all clearselectors": true,
	} {
		u := userWith(t, table, strings.Fields(rules)...)
		if u.Unrestricted() != want {
			t.Errorf("%s: unrestricted is %v", rules, !want)
		}
	}
	if u := userWith(t, table, "(~* &* +@all)"); !u.Unrestricted() {
		t.Error("a selector that allows everything is not enough")
	}
}

// TestUserState takes users through the log and a snapshot.
func TestUserState(t *testing.T) {
	d := newTestDB(t)
	txn := d.begin()
	txn.SetUser(userWith(t, d.table, "on", ">p", "~a*", "+get"))
	if !txn.guarded() {
		t.Error("a pending user is not seen")
	}
	sp := txn.Savepoint()
	gone := userWith(t, d.table, "on")
	gone.Name = "gone"
	txn.SetUser(gone)
	txn.DeleteUser("u")
	if got := txn.UserNames(); !slices.Equal(got, []string{"default", "gone"}) {
		t.Errorf("pending: %q", got)
	}
	txn.Rollback(sp)
	if got := txn.UserNames(); !slices.Equal(got, []string{"default", "u"}) {
		t.Errorf("rolled back: %q", got)
	}
	d.apply(txn)
	if d.s.AccountsVersion() != 1 {
		t.Errorf("version %d, want that of the write set", d.s.AccountsVersion())
	}
	d.do("SET", "k", "v")
	before := encode(t, d.s)
	again, err := Restore(bytes.NewReader(before))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(encode(t, again), before) || again.AccountsVersion() != 1 {
		t.Error("a snapshot does not keep the users")
	}
	u := again.Begin(Time{}, 3, Env{}).User(d.table, "u")
	if u == nil || !u.Authenticate([]byte("p")) || u.Authenticate([]byte("q")) || u.Name != "u" {
		t.Errorf("the user is %v", u)
	}
	txn = d.begin()
	txn.DeleteUser("u")
	d.apply(txn)
	if bytes.Equal(encode(t, d.s), before) || d.s.AccountsVersion() != 3 || len(d.s.Accounts().List) != 0 {
		t.Error("a deleted user is still there")
	}
}

// TestGoldenUsers fixes the bytes of users in logs and snapshots.
func TestGoldenUsers(t *testing.T) {
	d := newTestDB(t)
	txn := d.begin()
	txn.SetUser(userWith(t, d.table, "on", ">p", "%R~a*", "&c", "+@read", "-get", "+select|0", "(+set ~b)"))
	gone := userWith(t, d.table, "skip-sanitize-payload")
	gone.Name = "gone"
	txn.SetUser(gone)
	txn.DeleteUser("gone")
	golden(t, "users-writes.hex", bytes.Clone(txn.Writes().Bytes()))
	d.apply(txn)
	golden(t, "users-snapshot.hex", encode(t, d.s))
}

// TestAuthorize checks whose rights a call has.
func TestAuthorize(t *testing.T) {
	d := newTestDB(t)
	get := func(user string, args ...string) (*Ctx, Reply, bool) {
		c := &Ctx{Txn: d.begin()}
		for _, a := range args {
			c.Args = append(c.Args, []byte(a))
		}
		c.Cmd = d.table.Lookup(c.Args[0])
		r, ok := c.Authorize(user, 0)
		return c, r, ok
	}
	txn := d.begin()
	txn.SetUser(userWith(t, d.table, "on", "nopass", "~a", "+get"))
	d.apply(txn)
	for _, tc := range []struct {
		user, key string
		want      Error
	}{
		{"", "b", ""}, {SystemUser, "b", ""}, {DefaultUser, "b", ""},
		{"u", "a", ""}, {"u", "b", ErrNoPermKey}, {"nosuch", "a", ErrNoPermCommand("get")},
	} {
		c, r, ok := get(tc.user, "GET", tc.key)
		if ok != (tc.want == "") || r.Str != string(tc.want) {
			t.Errorf("%q GET %s: %v, %v", tc.user, tc.key, ok, r.Str)
		}
		if tc.want != "" {
			_, notes := DetachDenials(c.Txn.AttachDenials(r))
			if len(notes) != 1 || notes[0].User != tc.user {
				t.Errorf("%q GET %s: noted %v", tc.user, tc.key, notes)
			}
		}
	}
	txn = d.begin()
	def, _ := txn.User(d.table, DefaultUser).WithRules([]string{"-get"}, false)
	txn.SetUser(def)
	d.apply(txn)
	if _, r, ok := get("", "GET", "b"); ok || r.Str != string(ErrNoPermCommand("get")) {
		t.Errorf("a default user without GET: %v", r)
	}
	if _, _, ok := get(SystemUser, "GET", "b"); !ok {
		t.Error("the server itself is refused")
	}
}

// TestAuthorizeIsFree: the check of a call of the default user allocates nothing.
func TestAuthorizeIsFree(t *testing.T) {
	d := newTestDB(t)
	c := &Ctx{Txn: d.begin(), Cmd: d.table.Lookup([]byte("get")), Args: [][]byte{[]byte("GET"), []byte("k")}}
	if n := testing.AllocsPerRun(100, func() {
		if _, ok := c.Authorize("", 0); !ok {
			t.Fatal("refused")
		}
	}); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}

// TestEstablishPassword: a flag sets the default user's password if nobody has changed that user. Only a later flag of a lone node replaces
// it.
func TestEstablishPassword(t *testing.T) {
	first, second, third := HashPassword([]byte("1")), HashPassword([]byte("2")), HashPassword([]byte("3"))
	for _, tc := range []struct {
		name        string
		rules       []string // rules that a command has applied to the default user before; nil: none
		env         string   // the hash of the password in the leader's own flag
		asked       []string // the hashes that nodes ask for, in order; "!" marks a node that is alone
		want        string
		wantVersion bool
	}{
		{"nobody has one", nil, "", []string{"", ""}, "", false},
		{"the leader's", nil, first, []string{""}, first, true},
		{"the leader's, before another's", nil, first, []string{second}, first, true},
		{"another's", nil, "", []string{"", second, third}, second, true},
		{"no hash", nil, "", []string{"secret"}, "", false},
		{"said before", []string{">x"}, first, []string{second, "!" + third}, HashPassword([]byte("x")), false},
		{"open on purpose", []string{"nopass"}, first, []string{second, "!" + third}, "", false},
		{"alone, another flag", nil, "", []string{"!" + first, "!" + second}, second, true},
		{"alone, no flag", nil, "", []string{"!" + first, "!"}, first, true},
		{"not alone", nil, "", []string{first, second}, first, true},
	} {
		d := newTestDB(t)
		if tc.rules != nil {
			txn := d.begin()
			u, refusal := txn.User(d.table, DefaultUser).WithRules(tc.rules, true)
			if refusal != "" {
				t.Fatal(refusal)
			}
			txn.SetUser(u)
			d.apply(txn)
		}
		before := d.s.AccountsVersion()
		for _, hash := range tc.asked {
			d.env.ACL.PasswordHash = tc.env
			txn := d.begin()
			hash, alone := strings.CutPrefix(hash, "!")
			txn.EstablishPassword(d.table, hash, alone)
			said := txn.AccountsVersion()
			d.apply(txn)
			if got := d.s.AccountsVersion(); got != said {
				t.Errorf("%s: it says version %d, and it is %d", tc.name, said, got)
			}
		}
		d.env.ACL.PasswordHash = ""
		u := d.begin().User(d.table, DefaultUser)
		if got := strings.Join(u.Passwords, " "); got != tc.want || u.NoPass != (tc.want == "") {
			t.Errorf("%s: the password is %q, none is needed: %t, want %q", tc.name, got, u.NoPass, tc.want)
		}
		if !u.Unrestricted() {
			t.Errorf("%s: the default user has lost a right", tc.name)
		}
		if got := d.s.AccountsVersion() != before; got != tc.wantVersion {
			t.Errorf("%s: changed: %t", tc.name, got)
		}
	}
}

// TestSameUserAfterRollback: sameUser forgets a deletion that is rolled back or not applied.
func TestSameUserAfterRollback(t *testing.T) {
	d := newTestDB(t)
	txn := d.begin()
	txn.SetUser(userWith(t, d.table, "on"))
	d.apply(txn)
	txn = d.begin()
	same := func(when string, want bool) {
		t.Helper()
		if got, _ := txn.sameUser("u", d.s.AccountsVersion()); got != want {
			t.Errorf("%s: the same user: %v", when, got)
		}
	}
	same("before", true)
	before := txn.Savepoint()
	txn.DeleteUser("u")
	same("deleted", false)
	txn.SetUser(userWith(t, d.table, "on"))
	again := txn.Savepoint()
	txn.DeleteUser("u")
	txn.Rollback(again)
	same("the second deletion undone", false)
	txn.Rollback(before)
	same("undone", true)
	txn.DeleteUser("u")
	same("deleted again", false)
	txn.Restart(Time{}, 9)
	same("in the next transaction", true)
}

// TestCallsBesideManyDeletedUsers: sameUser does not go through all users that the transaction has deleted. That would take
// minutes.
func TestCallsBesideManyDeletedUsers(t *testing.T) {
	d := newTestDB(t)
	txn := d.begin()
	txn.SetUser(userWith(t, d.table, "on"))
	for i := range 300_000 {
		txn.DeleteUser(fmt.Sprint(i))
	}
	for range 300_000 {
		if same, _ := txn.sameUser("u", 1); !same {
			t.Fatal("it is deleted")
		}
	}
}

// TestUsersCount: users and their rules count in DataSize with their memory, also before Apply and after a restore.
func TestUsersCount(t *testing.T) {
	long := strings.Repeat("k", 500)
	for name, rules := range map[string][]string{
		"short":     {"on", ">p", "~a*", "+get"},
		"patterns":  {"on", "~a1", "~b2", "~c3", "~d4", "~e5", "~f6", "~g7", "~h8", "&a", "&b", "&c", "&d"},
		"long":      {"on", "~" + long, "~x" + long, "&" + long},
		"selectors": {"on", "(+get ~a)", "(+set ~b)", "(+del ~c)", "(+incr ~d)", "(+decr ~e)", "(+hget ~f)"},
		"arguments": {"on", "+select|0", "+select|1", "+select|2", "+select|3", "+get"},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 2000
			before := heap()
			d := newTestDB(t)
			none := d.s.DataSize()
			names := make([]string, n)
			txn := d.begin()
			for i := range names {
				names[i] = fmt.Sprintf("user-%d", i)
				own := make([]string, len(rules))
				for k := range rules {
					own[k] = strings.Clone(rules[k])
				}
				u, refusal := NewUser(d.table, names[i], false).WithRules(own, false)
				if refusal != "" {
					t.Fatal(refusal)
				}
				txn.SetUser(u)
			}
			foreseen := txn.size
			d.apply(txn)
			for _, a := range d.s.Accounts().List {
				a.User(d.table)
			}
			txn = nil // let the garbage collector free the transaction
			took, size := heap()-before, d.s.DataSize()-none
			t.Logf("%d bytes of memory, size %d: %.2f", took, size, float64(took)/float64(size))
			if foreseen != size+none || took > size*6/5 || took < size/3 {
				t.Errorf("%d bytes of memory count as %d, foreseen %d", took, size, foreseen)
			}
			restored, err := Restore(bytes.NewReader(encode(t, d.s)))
			if err != nil || restored.DataSize() != d.s.DataSize() {
				t.Errorf("restored: %d of %d, %v", restored.DataSize(), d.s.DataSize(), err)
			}
			txn = d.begin()
			for _, name := range names {
				txn.SetUser(NewUser(d.table, name, false))
				txn.DeleteUser(name)
			}
			foreseen = txn.size
			d.apply(txn)
			if d.s.DataSize() != none || foreseen != none {
				t.Errorf("nobody counts as %d, foreseen %d, before %d", d.s.DataSize(), foreseen, none)
			}
		})
	}
}

// DetachDenials leaves out a denial with numbers that no leader sends.
func TestDamagedDenials(t *testing.T) {
	for _, numbers := range [][2]int64{{-1, 0}, {0, -1}, {int64(DeniedChannel) + 1, 0}, {0, int64(InLua) + 1}, {1 << 8, 0}} {
		r := Reply{Kind: Noted, Elems: []Reply{OK, List(Int(numbers[0]), Int(numbers[1]), Str("object"), Str("user"))}}
		if got, notes := DetachDenials(r); len(notes) > 0 || got.Str != OK.Str {
			t.Errorf("%v: %v with %v", numbers, got, notes)
		}
	}
}

package store

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// TestPatternSet: a set of patterns allows what one of its patterns allows.
func TestPatternSet(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	text := func(letters string) string {
		b := make([]byte, r.Intn(5))
		for i := range b {
			b[i] = letters[r.Intn(len(letters))]
		}
		return string(b)
	}
	for range 20_000 {
		list := make([]namePattern, r.Intn(8))
		for i := range list {
			list[i] = namePattern{text(`aab!*?[]\`), keyAccess(1 + r.Intn(3))}
			if r.Intn(2) == 0 {
				list[i].pattern = text("ab!") + "*"
			}
		}
		// No selector has a pattern twice, so drop the duplicates.
		slices.SortFunc(list, func(a, b namePattern) int { return len(a.pattern) - len(b.pattern) })
		known := map[string]bool{}
		list = slices.DeleteFunc(list, func(p namePattern) bool {
			was := known[p.pattern]
			known[p.pattern] = true
			return was
		})
		s := newPatternSet(list)
		for range 20 {
			name, need, left := text(`aaab!*[\`), keyAccess(r.Intn(4)), maxCheckSteps
			want := slices.ContainsFunc(list, func(p namePattern) bool { return p.access&need == need && redistext.Match(p.pattern, name) })
			if got := s.matches(name, need, &left); got != want {
				t.Fatalf("%q, access %d, among %q: %v", name, need, list, got)
			}
			if got := s.find(name) != nil; got != known[name] {
				t.Fatalf("%q is one of %q: %v", name, list, got)
			}
		}
	}
}

// mgetOf returns a call of MGET that repeats one key, and a user who may run MGET on keys of the given patterns.
func mgetOf(t *testing.T, keys int, name, pattern string, patterns int) (*User, *Command, [][]byte) {
	t.Helper()
	table, rules := NewTable(Commands()), []string{"+@all"}
	for i := range patterns {
		rules = append(rules, fmt.Sprintf(pattern, i))
	}
	u, refusal := NewUser(table, "u", false).WithRules(rules, false)
	if refusal != "" {
		t.Fatal(refusal)
	}
	args := slices.Repeat([][]byte{[]byte(name)}, keys+1)
	args[0] = []byte("mget")
	return u, table.Lookup(args[0]), args
}

// TestCheckOfManyKeys: the check of a key takes one step if no pattern has a special character but a final star.
func TestCheckOfManyKeys(t *testing.T) {
	const keys, patterns = 100_000, 1000
	for _, pattern := range []string{"~app%04d:*", "~app%04d:key", "%%R~app%04d:*"} {
		u, mget, args := mgetOf(t, keys, fmt.Sprintf("app%04d:key", patterns-1), pattern, patterns)
		left := maxCheckSteps
		if why, _ := u.selectors[0].check(mget, args, &left); why != Allowed || maxCheckSteps-left > keys {
			t.Errorf("%s: %v, after %d steps", pattern, why, maxCheckSteps-left)
		}
	}
}

// TestCheckGivesUp: a check that takes too long ends early. The command is refused, without an entry in the ACL log.
func TestCheckGivesUp(t *testing.T) {
	const keys, patterns = 2_000_000, 10_000
	u, mget, args := mgetOf(t, keys, "app1", "~[a-c]pp?%d", patterns)
	u, refusal := u.WithRules([]string{"~[a]pp1"}, false)
	if refusal != "" {
		t.Fatal(refusal)
	}
	c := Ctx{Txn: newTestDB(t).begin(), Cmd: mget, Args: args}
	c.Txn.SetUser(u)
	if refusal, ok := c.Authorize("u", 0); ok || refusal.Str != string(ErrUndecided) {
		t.Errorf("%v, %.200q", ok, refusal.Str)
	}
	c.InMulti = true
	if refusal, ok := c.Authorize("u", 0); ok || refusal.Str != string(ErrUndecided) {
		t.Errorf("in MULTI: %v, %.200q", ok, refusal.Str)
	}
	if len(c.Txn.denied) > 0 {
		t.Error("the ACL log calls it a refusal")
	}
	if why, _ := u.Check(mget, args[:3]); why != Allowed {
		t.Errorf("a few keys: %v", why)
	}
	var channels []string
	for i := range patterns {
		channels = append(channels, fmt.Sprintf("&[a-c]pp?%d", i))
	}
	u, refusal = u.WithRules(append(channels, "&[a]pp1"), false)
	if refusal != "" || u.MayListenToAll(args[1:], false) || !u.MayListenToAll(args[1:3], false) {
		t.Errorf("%s; or the steps for channels are not bounded", refusal)
	}
}

// TestCheckEndsAtTheFirstDeniedKey: the check does not even list the keys behind the first denied one.
func TestCheckEndsAtTheFirstDeniedKey(t *testing.T) {
	u, mget, args := mgetOf(t, 1_000_000, "other", "~app%d:*", 50)
	if n := testing.AllocsPerRun(10, func() {
		if why, arg := u.Check(mget, args); why != DeniedKey || arg != 1 {
			t.Errorf("%v, argument %d", why, arg)
		}
	}); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

// TestCheckStepsAreFew: the steps of a check, which runs on an event loop, are limited. Ordinary users need far fewer.
func TestCheckStepsAreFew(t *testing.T) {
	for _, c := range []struct {
		name, pattern  string
		keys, patterns int
		most           int
		want           DenyReason
	}{
		{strings.Repeat("a", 2000), "~*" + strings.Repeat("[a]", 63) + "[b]%d", 1, 90, 1 << 18, Undecided},
		{"app:3999:x", "~*:%d:*", 100_000, 4000, 2 << 20, Undecided},
		{"app:3999:x", "~*:%d:*", 1, 4000, 1 << 17, Allowed},
		{"app:9:x", "~*:%d:*", 1000, 10, 1 << 17, Allowed},
	} {
		u, mget, args := mgetOf(t, c.keys, c.name, c.pattern, c.patterns)
		if why, _, steps := u.CheckSteps(mget, args); why != c.want || steps > c.most {
			t.Errorf("%.20s: %v, after %d steps", c.pattern, why, steps)
		}
	}
	var rules []string
	for i := range 4000 {
		rules = append(rules, fmt.Sprintf("+get|w%04d", i))
	}
	u, refusal := NewUser(NewTable(Commands()), "u", true).WithRules(append(rules, "~*"), true)
	if refusal != "" {
		t.Fatal(refusal)
	}
	get := u.table.Lookup([]byte("get"))
	if why, _ := u.Check(get, [][]byte{[]byte("get"), []byte("W3999")}); why != Allowed {
		t.Errorf("the last word: %v", why)
	}
	long := [][]byte{[]byte("get"), make([]byte, 1<<20)}
	if n := testing.AllocsPerRun(1, func() { u.Check(get, long) }); n > 0 {
		t.Errorf("a long word is copied %v times", n)
	}
}

func BenchmarkCheck(b *testing.B) {
	table := NewTable(Commands())
	for _, patterns := range []int{1, 50} {
		for _, kind := range []string{"~app%d:*", "~[a-b]pp%d:*"} {
			rules := []string{"+@all"}
			for i := range patterns {
				rules = append(rules, fmt.Sprintf(kind, i))
			}
			u, _ := NewUser(table, "u", false).WithRules(rules, false)
			args := slices.Repeat([][]byte{fmt.Appendf(nil, "app%d:x", patterns-1)}, 2_000_001)
			args[0] = []byte("mget")
			for _, keys := range []int{1, 2_000_000} {
				b.Run(fmt.Sprintf("%s/%d/%d keys", kind, patterns, keys), func(b *testing.B) {
					for b.Loop() {
						u.Check(table.Lookup(args[0]), args[:1+keys])
					}
				})
			}
		}
	}
}

package call

import (
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

func line(cmd *store.Command, args ...string) Call {
	c := Call{Cmd: cmd}
	for _, arg := range args {
		c.Args = append(c.Args, []byte(arg))
	}
	return c
}

// TestKind: calls of one kind take about equally long. So each script is a kind of its own, and large arguments make another
// kind.
func TestKind(t *testing.T) {
	get, union := &store.Command{Name: "get"}, &store.Command{Name: "zunionstore"}
	eval := &store.Command{Name: "eval", Flags: store.Scripting}
	exec := func(calls ...Call) Call { return Call{Cmd: Exec, Txn: &Transaction{Calls: calls}} }
	long := strings.Repeat("x", 50)
	for _, tt := range []struct {
		call Call
		want string
	}{
		{line(get, "GET", "k"), "get"},
		{line(get, "GET", strings.Repeat("k", HeavyBytes)), "get with large arguments"},
		{exec(line(union, "ZUNIONSTORE", "z"), line(union, "ZUNIONSTORE", "y")), "exec zunionstore"},
		{exec(line(get, "GET", "k")), "exec get"},
		{Call{Cmd: Exec, Txn: &Transaction{Observe: true}}, "watch"},
	} {
		if got := KindOf([]Call{tt.call}); got.Name != tt.want || got.Number != 0 {
			t.Errorf("%v, want %q", got, tt.want)
		}
	}
	one, two := line(get, "GET", "k"), line(union, "ZUNIONSTORE", "z")
	mixed := KindOf([]Call{one, two})
	if mixed == KindOf([]Call{one}) || mixed == KindOf([]Call{two, one}) || mixed != KindOf([]Call{line(get, "GET", "q"), two}) || KindOf([]Call{exec(one, two)}) == KindOf([]Call{exec(one)}) {
		t.Errorf("calls with several commands: %v", mixed)
	}
	script := KindOf([]Call{line(eval, "EVAL", long+"1", "0")})
	if other := KindOf([]Call{line(eval, "EVAL", long+"2", "0")}); other == script || script != KindOf([]Call{line(eval, "EVAL", long+"1", "1", "k")}) {
		t.Errorf("two scripts that begin alike: %v, %v", script, other)
	}
}

// TestUser: a client that has not said who it is counts as the default user. What nodes ask in their own name belongs to no
// user.
func TestUser(t *testing.T) {
	for name, want := range map[string]string{"": "", "app": "app", store.Anonymous: ""} {
		if got, any := User([]Call{{User: name}}); got != want || !any {
			t.Errorf("%q is %q, %v", name, got, any)
		}
	}
	if _, any := User([]Call{{User: store.SystemUser}}); any {
		t.Error("a question of a node has a user")
	}
}

// TestWatchedKeysCount: EXEC carries the keys that its client has watched, so these count as arguments. WATCH carries its keys
// twice, but they count once.
func TestWatchedKeysCount(t *testing.T) {
	keys := []Watched{{Key: make([]byte, HeavyBytes)}, {Key: make([]byte, 1)}}
	get := &store.Command{Name: "get"}
	exec := []Call{{Cmd: Exec, Txn: &Transaction{Watched: keys, Calls: []Call{line(get, "GET", "k")}}}}
	if got, n := Size(exec), Arguments(exec); got != HeavyBytes+5+4*argumentTakes || n != 4 || !AnyLarge(exec) {
		t.Errorf("EXEC: %d bytes in %d arguments, large: %v", got, n, AnyLarge(exec))
	}
	watch := line(Exec, "WATCH", "k")
	watch.Txn = &Transaction{Observe: true, Watched: []Watched{{Key: []byte("k")}}}
	if got, n := Size([]Call{watch}), Arguments([]Call{watch}); got != 6+2*argumentTakes || n != 2 {
		t.Errorf("WATCH: %d bytes in %d arguments", got, n)
	}
}

// TestEmptyArgumentsTakeTheirPlaces: many empty arguments count as large, because each takes a place in memory.
func TestEmptyArgumentsTakeTheirPlaces(t *testing.T) {
	exists := Call{Cmd: &store.Command{Name: "exists"}, Args: make([][]byte, 1+HeavyBytes/argumentTakes)}
	exec := Call{Cmd: Exec, Txn: &Transaction{Calls: []Call{exists}}}
	watched := Call{Cmd: Exec, Txn: &Transaction{Watched: make([]Watched, 1+HeavyBytes/argumentTakes)}}
	for _, c := range []Call{exists, exec, watched} {
		if calls := []Call{c}; !AnyLarge(calls) || Size(calls) <= HeavyBytes {
			t.Errorf("%s: %d bytes", c.Cmd.Name, Size(calls))
		}
	}
}

// TestFitting: a request gets as many calls as fit, whatever makes the calls long.
func TestFitting(t *testing.T) {
	const piece = MaxRequest / 64
	get, name := &store.Command{Name: "get"}, strings.Repeat("n", piece)
	long, user := line(get, "GET", name), Call{Cmd: get, User: name}
	fill := func(c Call, n int) (calls []Call) {
		for range n {
			calls = append(calls, c)
		}
		return calls
	}
	exec := func(watched int, calls []Call) Call {
		t := &Transaction{Calls: calls}
		for range watched {
			t.Watched = append(t.Watched, Watched{Key: long.Args[1]})
		}
		return Call{Cmd: Exec, Txn: t}
	}
	many := Call{Cmd: get, Args: make([][]byte, MaxRequest/argumentTakes)}
	for what, tt := range map[string]struct {
		calls []Call
		want  int
	}{
		"a few":                    {fill(long, 63), 63},
		"too many":                 {fill(long, 100), 63},
		"names of users":           {fill(user, 64), 63},
		"empty arguments":          {[]Call{many}, 0},
		"one behind others":        {[]Call{long, many, long}, 1},
		"EXEC":                     {[]Call{exec(31, fill(long, 32))}, 1},
		"EXEC of more":             {[]Call{exec(32, fill(long, 32))}, 0},
		"EXEC, by names of users":  {[]Call{exec(0, fill(user, 64))}, 0},
		"EXEC, by keys it watched": {[]Call{exec(64, nil)}, 0},
	} {
		if got := Fitting(tt.calls); got != tt.want {
			t.Errorf("%s: %d calls fit, want %d", what, got, tt.want)
		}
	}
}

// TestRequestsFitFrames: the calls that Fitting lets through are no longer than a frame may be.
func TestRequestsFitFrames(t *testing.T) {
	key := []byte(strings.Repeat("k", 200))
	c := Call{Cmd: &store.Command{Name: "get"}, Args: [][]byte{key, {}}, DB: 15, RESP: 3, Origin: 1 << 63, User: strings.Repeat("u", 200), Users: 1 << 63}
	txn := Call{Cmd: Exec, DB: 15, RESP: 3, Origin: 1 << 63, User: c.User, Users: 1 << 63,
		Txn: &Transaction{Watched: []Watched{{DB: 15, Key: key, Version: 1 << 63}}, Calls: []Call{c}}}
	for _, c := range []Call{c, txn} {
		if encoded, counted := len(Append(nil, []Call{c}, 255))-1, MaxRequest-roomLeft(&c, MaxRequest); encoded > counted {
			t.Errorf("%d bytes are counted as %d", encoded, counted)
		}
	}
}

package main

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/conformance/transcript"
	"github.com/lockstep-io/lockstep/conformance/transcript/redisd"
)

// A short run; `make differential` is the long one.
func TestDifferential(t *testing.T) {
	if _, _, err := redisd.Find(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	node := nodes.Start(t, 1, "--ephemeral")[0]
	commands := 20_000
	if testing.Short() {
		commands = episode
	}
	if err := run(node.Addr, "", commands, 1_000_000); err != nil {
		t.Error(err)
	}
}

func TestSyntax(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[string]bool{}
	n := parse("A (b|c d) [e (f|g)]... {db}")
	for range 200 {
		args := n.draw(r, nil)
		if args[0] != "A" || !slices.Contains([]string{"0", "1", "2", "3"}, args[len(args)-1]) {
			t.Fatalf("%q", args)
		}
		seen[strings.Join(args[1:len(args)-1], " ")] = true
	}
	for _, want := range []string{"b", "c d", "b e f", "c d e g", "b e f e g"} {
		if !seen[want] {
			t.Errorf("%q was not drawn", want)
		}
	}
}

func TestSeedRepeats(t *testing.T) {
	for seed := range uint64(3) {
		a, b := stepsOf(seed), stepsOf(seed)
		for i := range a {
			if !slices.Equal(a[i].args, b[i].args) || a[i].waiter != b[i].waiter {
				t.Fatalf("seed %d, step %d: %q and %q", seed, i, a[i].args, b[i].args)
			}
		}
	}
}

func TestSame(t *testing.T) {
	bulk := func(s ...string) transcript.Value {
		v := transcript.Value{Type: '*'}
		for _, s := range s {
			v.Elems = append(v.Elems, transcript.Value{Type: '$', Text: s})
		}
		return v
	}
	number := func(s string) transcript.Value { return transcript.Value{Type: ':', Text: s} }
	for _, test := range []struct {
		a, b transcript.Value
		how  how
		want bool
	}{
		{bulk("a", "b"), bulk("b", "a"), exact, false},
		{bulk("a", "b"), bulk("b", "a"), sorted, true},
		{bulk("a", "b"), bulk("a", "c"), sorted, false},
		{bulk("a", "1", "b", "2"), bulk("b", "2", "a", "1"), pairs, true},
		{bulk("a", "1", "b", "2"), bulk("b", "1", "a", "2"), pairs, false},
		{bulk("a"), bulk("b"), shape, true},
		{bulk("a"), number("1"), shape, false},
		{number("5000"), number("7000"), near, true},
		{number("5000"), number("9000"), near, false},
		{number("-1"), number("0"), near, false},
	} {
		if got := same(test.a, test.b, test.how); got != test.want {
			t.Errorf("%v %v %d: %v", test.a, test.b, test.how, got)
		}
	}
}

// TestEvents: notifications may differ only in when a server notices an expired key, and in which order SORT looks up keys.
func TestEvents(t *testing.T) {
	for name, test := range map[string]struct {
		a, b []string
		has  traits
		same bool
	}{
		"same":                 {[]string{`0__:set "a"`, `0__:del "a"`}, []string{`0__:set "a"`, `0__:del "a"`}, traits{}, true},
		"other order":          {[]string{`0__:set "a"`, `0__:set "b"`}, []string{`0__:set "b"`, `0__:set "a"`}, traits{}, false},
		"expired later":        {[]string{`0__:expired "a"`, `0__:set "b"`}, []string{`0__:set "b"`, `0__:expired "a"`}, traits{}, true},
		"expired after use":    {[]string{`0__:expired "a"`, `0__:set "a"`}, []string{`0__:set "a"`, `0__:expired "a"`}, traits{}, false},
		"expired elsewhere":    {[]string{`0__:expired "a"`}, []string{`1__:expired "a"`}, traits{}, false},
		"expired on one":       {[]string{`0__:expired "a"`}, nil, traits{}, false},
		"missed":               {[]string{`0__:keymiss "a"`, `0__:keymiss "b"`}, []string{`0__:keymiss "b"`, `0__:keymiss "a"`}, traits{}, false},
		"missed by SORT":       {[]string{`0__:keymiss "a"`, `0__:keymiss "b"`}, []string{`0__:keymiss "b"`, `0__:keymiss "a"`}, traits{sorts: true}, true},
		"another one by SORT":  {[]string{`0__:keymiss "a"`}, []string{`0__:keymiss "b"`}, traits{sorts: true}, false},
		"order of SORT's rest": {[]string{`0__:keymiss "a"`, `0__:new "b"`}, []string{`0__:new "b"`, `0__:keymiss "a"`}, traits{sorts: true}, false},
	} {
		if d := compareEvents(test.a, test.b, test.has); (d == nil) != test.same {
			t.Errorf("%s: %v", name, d)
		}
	}
}

// TestReplyOfTransaction: in the reply to EXEC, each element is compared like the reply to its command.
func TestReplyOfTransaction(t *testing.T) {
	list := func(s ...string) transcript.Value {
		v := transcript.Value{Type: '*'}
		for _, s := range s {
			v.Elems = append(v.Elems, transcript.Value{Type: '$', Text: s})
		}
		return v
	}
	of := func(v ...transcript.Value) transcript.Value { return transcript.Value{Type: '*', Elems: v} }
	exec, at := step{args: []string{"EXEC"}}, &pair{queued: []how{sorted, exact}}
	a, b := list("a", "b"), list("b", "a")
	if !exec.same(at, of(a, a), of(b, a)) {
		t.Error("the first one has no order")
	}
	if exec.same(at, of(a, a), of(a, b)) || exec.same(at, of(a, a), of(a)) || exec.same(at, of(a), of(b)) {
		t.Error("the second one has")
	}
	queued := transcript.Value{Type: '+', Text: "QUEUED"}
	if random := (step{args: []string{"SRANDMEMBER", "s"}, how: shape}); random.same(at, transcript.Value{Type: '+', Text: "OK"}, queued) {
		t.Error("a command that is queued on one server alone")
	}
}

func TestAsTranscript(t *testing.T) {
	got := asTranscript([]step{
		{args: []string{"SET", "k", "a b"}}, {args: []string{"SMEMBERS", "s"}, how: sorted, resp3: true},
		{args: []string{"BLPOP", "l", "0"}, waiter: 1}, {waiter: 1}, {args: []string{"PEXPIRE", "k", "10"}, expires: true},
	})
	f, err := transcript.Parse("steps", []byte(got))
	if err != nil {
		t.Fatalf("%v:\n%s", err, got)
	}
	var lines []string
	for _, s := range f.Steps {
		lines = append(lines, s.Source)
	}
	want := []string{`> "SET" "k" "a b"`, "@conn resp3", "@hello 3", "@sorted", `> "SMEMBERS" "s"`,
		"@conn waiter1", "@type", "> ECHO ${id:waiter1}", "@noreply", `> "BLPOP" "l" "0"`, "@sleep 50ms",
		"@conn main", "> CLIENT UNBLOCK ${id:waiter1}", "@conn waiter1", "@push", "@conn main", `> "PEXPIRE" "k" "10"`, "@advance 100ms"}
	if !slices.Equal(lines, want) {
		t.Errorf("%q\nwant %q", lines, want)
	}
}

// TestEncodingsAreCompared: every other episode compares the encodings of sorted sets. Such an episode has no SORT, because SORT
// changes the encodings in Redis.
func TestEncodingsAreCompared(t *testing.T) {
	for seed := range uint64(4) {
		sorted, asked := false, false
		for _, s := range stepsOf(seed) {
			sorted = sorted || sorts(s.args)
			if asked = asked || len(s.args) == 3 && s.args[1] == "ENCODING"; s.how == encoding && encodings(seed) == exact {
				t.Fatalf("seed %d: %q", seed, s.args)
			}
		}
		if want := encodings(seed) == encoding; sorted != want || !asked {
			t.Errorf("seed %d: SORT %v, want %v; OBJECT ENCODING %v", seed, sorted, want, asked)
		}
	}
}

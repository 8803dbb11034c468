package main

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"lockstep/conformance/nodes"
	"lockstep/conformance/transcript"
	"lockstep/conformance/transcript/redisd"
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
			if !slices.Equal(a[i].args, b[i].args) {
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

package main

import (
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/show"
)

// TestRepliesCommandNoTerminal: a stranger may answer in the place of a node. Escape sequences in the answer are printed as
// text and do not control the terminal.
func TestRepliesCommandNoTerminal(t *testing.T) {
	const evil = "\x1b]0;owned\a\x9b2J\r\u202e"
	for name, reply := range map[string]any{
		"status":   []any{"role", evil},
		"members":  []any{[]any{"id", evil + "\n"}},
		"transfer": evil,
	} {
		var b strings.Builder
		if err := printReply(&b, outputOptions{}, name, reply); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); strings.ContainsAny(got, "\x1b\a\r\u202e") || strings.Contains(got, "\x9b") || !strings.Contains(got, `\x1b]0;`) && !strings.Contains(got, `\X1B`) {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, text := range []string{"OK", "", "two\nlines", "größer, „so“ …"} {
		if got := show.Visible(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// TestOtherRepliesAreErrors: if an answer does not have the form of a node's answer, the command fails, and prints no empty
// table.
func TestOtherRepliesAreErrors(t *testing.T) {
	check := func(name string, replies ...any) {
		for _, reply := range replies {
			for _, json := range []bool{false, true} {
				var b strings.Builder
				if err := printReply(&b, outputOptions{json}, name, reply); err == nil || b.Len() > 0 {
					t.Errorf("%s, %v, JSON %v: %q, %v", name, reply, json, b.String(), err)
				}
			}
		}
	}
	check("status", nil, "OK", int64(1), []any{}, []any{nil}, []any{[]any{}}, []any{"role"}, []any{"role", "a", "role", "b"}, []any{"Role", "a"}, []any{"role\x1b", "a"})
	check("members", nil, "OK", int64(1), []any{}, []any{nil}, []any{[]any{}}, []any{[]any{"id", "n1"}, []any{"id"}})
	check("transfer", nil, int64(1), []any{})
}

// TestHashNamesItsIndex: status says at which log index the state has the printed hash, so that hashes can be compared.
func TestHashNamesItsIndex(t *testing.T) {
	var b strings.Builder
	if err := printReply(&b, outputOptions{}, "status", []any{"applied", int64(9), "state-index", int64(7), "state-hash", "0123456789abcdef"}); err != nil {
		t.Fatal(err)
	}
	want := "applied      9\nstate-index  7\nstate-hash   0123456789abcdef (of the state at log index state-index, not at applied)\n"
	if got := b.String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

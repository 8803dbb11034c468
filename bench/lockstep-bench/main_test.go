package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args  []string
		code  int
		words []string
	}{
		{[]string{"--help"}, 0, []string{"redis-always", "three ZooKeeper", "contended", "--clients", "--svg"}},
		{[]string{"extra"}, exitUsage, []string{"unexpected argument", "extra", "lockstep bench --help"}},
		{[]string{"--clients"}, exitUsage, []string{"clients"}},
		{[]string{"--peers", "mysql", "--clients", "0"}, exitUsage, []string{"--peers", "mysql", "lockstep-3", "--clients"}},
		{[]string{"--lockstep", "no/such"}, exitUsage, []string{"--lockstep", "no/such"}},
	} {
		var out bytes.Buffer
		if code := run(t.Context(), c.args, &out, &out); code != c.code {
			t.Errorf("%q: exit code %d, want %d", c.args, code, c.code)
		}
		for _, word := range c.words {
			if !strings.Contains(out.String(), word) {
				t.Errorf("%q: no %q in: %s", c.args, word, out.String())
			}
		}
	}
}

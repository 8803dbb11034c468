package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/bench/load"
)

// The README of the benchmark names all workloads.
func TestReadmeNamesWorkloads(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range load.Workloads {
		if !strings.Contains(string(text), "`"+w.Name+"`") {
			t.Errorf("it does not name %s", w.Name)
		}
	}
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args  []string
		code  int
		words []string
	}{
		{[]string{"--help"}, 0, []string{"redis-always", "three ZooKeeper", "contended", "native-cycle", "--queues", "--clients", "--svg"}},
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

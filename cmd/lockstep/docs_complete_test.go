package main

import (
	"flag"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lockstep/cluster"
)

// TestFlagsAreDocumented: each flag is in a document, and no line of `lockstep help` names two defaults.
func TestFlagsAreDocumented(t *testing.T) {
	paths, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	text := read(t, root+"/README.md")
	for _, path := range paths {
		text += read(t, path)
	}
	for _, group := range flagGroups() {
		group.flags.VisitAll(func(f *flag.Flag) {
			if !regexp.MustCompile(`--` + regexp.QuoteMeta(f.Name) + `\b[^-]`).MatchString(text) {
				t.Errorf("no document names --%s", f.Name)
			}
		})
	}
	for _, line := range strings.Split(helpText(), "\n") {
		if strings.Count(line, "(default") > 1 {
			t.Errorf("two defaults: %s", line)
		}
	}
}

// TestMetricsAreDocumented: docs/operations.md names each metric of a node.
func TestMetricsAreDocumented(t *testing.T) {
	text := read(t, root+"/docs/operations.md")
	names := regexp.MustCompile(`\{"(lockstep_\w+)",`).FindAllStringSubmatch(read(t, "serve.go"), -1)
	if len(names) < 20 {
		t.Fatalf("serve.go has %d metrics", len(names))
	}
	for _, m := range names {
		if !strings.Contains(text, "`"+m[1]+"`") {
			t.Errorf("docs/operations.md does not name %s", m[1])
		}
	}
}

// TestCleanKeepsTheData: make clean removes what was built. It does not remove the directory in which a node keeps its data by
// default.
func TestCleanKeepsTheData(t *testing.T) {
	_, clean, found := strings.Cut(read(t, root+"/Makefile"), "\nclean:\n")
	if data := cluster.Default().Data; !found || strings.Contains(clean, data) {
		t.Errorf("make clean deletes %s, the data of a node:%s", data, clean)
	}
}

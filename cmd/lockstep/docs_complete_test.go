package main

import (
	"flag"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/cluster"
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

// TestMetricsAreDocumented: each metric that a document names is in docs/metrics.md, which TestMetrics compares with real nodes.
func TestMetricsAreDocumented(t *testing.T) {
	paths, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	list := read(t, metricsDocument)
	named := 0
	for _, path := range append(paths, root+"/README.md", root+"/README.zh-CN.md") {
		for _, name := range regexp.MustCompile("`(lockstep_[a-z_]+[a-z])`").FindAllStringSubmatch(read(t, path), -1) {
			named++
			if !strings.Contains(list, "\n| `"+name[1]+"` |") {
				t.Errorf("%s names %s, which docs/metrics.md does not have", path, name[1])
			}
		}
	}
	if named < 100 {
		t.Errorf("the documents name %d metrics", named)
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

package clients

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// code is an example in docs/fencing.md.
type code struct{ language, text string }

func examples(t *testing.T) (list []code) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/fencing.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)```(\\w+)\n(.*?)```").FindAllStringSubmatch(string(doc), -1) {
		list = append(list, code{m[1], m[2]})
	}
	return list
}

// TestFencingExamples: each line of the calls that docs/fencing.md shows is a line of a suite's test. The suites read the SQL and the
// Lua from the document itself.
func TestFencingExamples(t *testing.T) {
	for language, pattern := range map[string]string{
		"go":     "../go/fencing_test.go",
		"python": "../python/test_fencing.py",
		"java":   "../java/*/src/test/java/lockstep/conformance/*/FencingTest.java",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files, %v", pattern, err)
		}
		lines := make(map[string]bool)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				lines[strings.TrimSpace(line)] = true
			}
		}
		found := 0
		for _, example := range examples(t) {
			if example.language != language {
				continue
			}
			for line := range strings.Lines(example.text) {
				found++
				if !lines[strings.TrimSpace(line)] {
					t.Errorf("docs/fencing.md: no test has the line %s", line)
				}
			}
		}
		if found == 0 {
			t.Errorf("docs/fencing.md has no %s", language)
		}
	}
}

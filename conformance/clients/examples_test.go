package clients

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// code is an example in a document.
type code struct{ language, text string }

func examples(t *testing.T, page string) (list []code) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/" + page)
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
	runs(t, "fencing.md", map[string]string{
		"go":     "../go/fencing_test.go",
		"python": "../python/test_fencing.py",
		"java":   "../java/*/src/test/java/lockstep/conformance/*/FencingTest.java",
		"sql":    "",
		"lua":    "",
	})
}

// TestLockExamples: each line of code in docs/locks.md is a line of a suite's test.
func TestLockExamples(t *testing.T) {
	runs(t, "locks.md", map[string]string{
		"go":         "../go/acquire_test.go",
		"python":     "../python/test_acquire.py",
		"java":       "../java/jedis-tests/java/lockstep/conformance/jedis/JedisAcquireTest.java ../java/locks/src/test/java/lockstep/conformance/locks/LettuceAcquireTest.java",
		"javascript": "../node/acquire.test.js",
		"rust":       "../rust/tests/acquire.rs",
		"ruby":       "../ruby/acquire_test.rb",
		"php":        "../php/acquire.php",
	})
}

// runs checks the examples of a page in each language. patterns has the files in which their lines must be; "" if nothing is to be
// checked.
func runs(t *testing.T, page string, patterns map[string]string) {
	t.Helper()
	found := make(map[string]bool)
	lines := make(map[string]map[string]bool)
	for language, pattern := range patterns {
		lines[language] = linesOf(t, pattern)
	}
	for _, example := range examples(t, page) {
		pattern, known := patterns[example.language]
		if !known {
			t.Errorf("docs/%s: no test runs examples in %s", page, example.language)
		}
		found[example.language] = true
		for line := range strings.Lines(example.text) {
			if pattern != "" && !lines[example.language][strings.TrimSpace(line)] {
				t.Errorf("docs/%s: no test has the line %s", page, line)
			}
		}
	}
	for language := range patterns {
		if !found[language] {
			t.Errorf("docs/%s has no %s", page, language)
		}
	}
}

// linesOf returns the lines of the files that match one of the patterns.
func linesOf(t *testing.T, patterns string) map[string]bool {
	t.Helper()
	lines := make(map[string]bool)
	for _, pattern := range strings.Fields(patterns) {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files, %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				lines[strings.TrimSpace(line)] = true
			}
		}
	}
	return lines
}

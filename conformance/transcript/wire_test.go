package transcript

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// named matches the name of a test in conformance/WIRE.md: a file, and a text in that file.
var named = regexp.MustCompile("`([A-Za-z][^`: ]*/[^`: ]*)(?:: ([^`]+))?`")

// TestWireTable: the tests that conformance/WIRE.md names exist, and it names every transcript of a client.
func TestWireTable(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "WIRE.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	rows := 0
	for _, line := range strings.Split(string(doc), "\n") {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| row |") || strings.HasPrefix(line, "| trap |") || strings.HasPrefix(line, "| surprise |") {
			continue
		}
		rows++
		cells := strings.Split(line, " | ")
		tests := named.FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(tests) == 0 {
			t.Errorf("no test is named in %q", line)
		}
		for _, m := range tests {
			path := filepath.Join("..", "..", m[1])
			if strings.HasPrefix(m[1], "clients/") {
				path = filepath.Join("testdata", m[1])
				seen[filepath.Base(m[1])] = true
			}
			src, err := os.ReadFile(path)
			if err != nil {
				t.Errorf("%s: %v", line, err)
			} else if !strings.Contains(string(src), m[2]) {
				t.Errorf("%s has no %q", m[1], m[2])
			}
		}
	}
	if rows < 100 {
		t.Errorf("the tables have %d rows: this test looks for the wrong thing", rows)
	}
	files, err := filepath.Glob(filepath.Join("testdata", "clients", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !seen[filepath.Base(f)] {
			t.Errorf("%s is in no row", f)
		}
	}
}

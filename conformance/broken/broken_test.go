package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// Every mutation fits the program and compiles. So a test that fails on a broken program fails because of the bug.
func TestMutationsFit(t *testing.T) {
	mutations, err := readMutations("testdata")
	if err != nil {
		t.Fatal(err)
	}
	var rounds []map[string][]byte
	for _, m := range mutations {
		files, err := m.apply(root)
		if err != nil {
			t.Error(err)
			continue
		}
		shares := func(round map[string][]byte) bool {
			for name := range files {
				if round[name] != nil {
					return true
				}
			}
			return false
		}
		at := slices.IndexFunc(rounds, func(round map[string][]byte) bool { return !shares(round) })
		if at < 0 {
			at, rounds = len(rounds), append(rounds, map[string][]byte{})
		}
		maps.Copy(rounds[at], files)
	}
	for _, files := range rounds {
		if err := compile(t.Context(), root, files); err != nil {
			t.Errorf("mutations of %v: %v", slices.Sorted(maps.Keys(files)), err)
		}
	}
}

// Each class has a mutation.
func TestEveryClassIsBroken(t *testing.T) {
	mutations, err := readMutations("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for class := 1; class <= 20; class++ {
		if !slices.ContainsFunc(mutations, func(m *mutation) bool { return m.class == fmt.Sprint("J", class) }) {
			t.Errorf("nothing breaks J%d", class)
		}
	}
}

// This test checks the mutations of two classes; `make broken` checks all of them.
func TestBrokenProgramsAreNoticed(t *testing.T) {
	mutations, err := readMutations("testdata")
	if err != nil {
		t.Fatal(err)
	}
	c := &checker{root: root, real: map[string]outcome{}, log: testLog{t}}
	for _, m := range mutations {
		if m.class != "J1" && m.class != "J8" {
			continue
		}
		if real, broken, err := c.check(t.Context(), m); err != nil || real != passed || broken != failed {
			t.Errorf("%s: real: %s, broken: %s, %v", m.name, real, broken, err)
		}
	}
}

type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(string(b))
	return len(b), nil
}

const sound = "class: J1\nwhy: it is\ntest: ./x ^Test$\nfile: a.go\n-- old --\nx\n-- new --\ny\n"

func TestMutationsThatSayTooLittle(t *testing.T) {
	if _, err := parseMutation([]byte(sound)); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"class: J1\n", "why: it is\n", "test: ./x ^Test$\n", " ^Test$", "x\n-- new", "file: a.go\n"} {
		if _, err := parseMutation([]byte(strings.Replace(sound, field, strings.Repeat("-- new", strings.Count(field, "-- new")), 1))); err == nil {
			t.Errorf("taken without %q", field)
		}
	}
	if _, err := parseMutation([]byte("clas: J1\n" + sound)); err == nil {
		t.Error("an unknown field is taken")
	}
	m := &mutation{edits: []edit{{file: "conformance/broken/broken_test.go", old: "nowhere " + "to be found", new: ""}}}
	if _, err := m.apply(root); err == nil {
		t.Error("old text that is not there is replaced")
	}
	m.edits[0].old = "\t"
	if _, err := m.apply(root); err == nil {
		t.Error("old text that is there many times is replaced")
	}
	if _, err := run(t.Context(), "testdata", true, []string{"J99"}, io.Discard, io.Discard); err == nil {
		t.Error("a class that does not exist is run")
	}
}

func TestJudge(t *testing.T) {
	failure := errors.New("exit status 1")
	for _, test := range []struct {
		out  string
		err  error
		want outcome
	}{
		{"=== RUN   TestX\n--- PASS: TestX (0.00s)\nPASS\n", nil, passed},
		{"=== RUN   TestX\n--- FAIL: TestX (0.00s)\nFAIL\n", failure, failed},
		{"=== RUN   TestX\npanic: test timed out after 5m0s\n", failure, failed},
		{"=== RUN   TestX\n--- SKIP: TestX (0.00s)\nPASS\n", nil, unclear},
		{"testing: warning: no tests to run\nPASS\n", nil, unclear},
		{"# lockstep/cluster\nFAIL\tlockstep/cluster [build failed]\n", failure, unclear},
	} {
		if got := judge(test.out, test.err); got != test.want {
			t.Errorf("%q: %s, want %s", test.out, got, test.want)
		}
	}
}

// docs/guarantees.md and docs/failures.md name only tests that exist. For each class they name the tests that fail on the broken
// program.
func TestGuaranteesNameTests(t *testing.T) {
	var doc []byte
	for _, name := range []string{"guarantees.md", "failures.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		doc = append(doc, text...)
	}
	var sources strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		sources.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`Test[A-Z]\w+`).FindAllString(string(doc), -1) {
		if !strings.Contains(sources.String(), "func "+name+"(") {
			t.Errorf("there is no %s", name)
		}
	}
	mutations, err := readMutations("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutations {
		row := regexp.MustCompile(`(?m)^\| ` + m.class + ` \|.*$`).FindString(string(doc))
		if m.class[0] != 'J' {
			row = string(doc) // the bug was lockstep's own
		}
		if !strings.Contains(row, "`"+strings.Trim(m.run, "^$")+"`") {
			t.Errorf("%s: the row of %s does not name %s", m.name, m.class, m.run)
		}
	}
}

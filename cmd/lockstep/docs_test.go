package main

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the root directory of the repository.
const root = "../.."

// ofOthers are flags in the documents that belong to other programs.
var ofOthers = []string{
	"security-opt", "volumes", // docker
	"now", "offline", // systemctl, systemd-analyze
	"namespace", "create-namespace", "set", "selector", "reuse-values", // helm, kubectl
	"pass", "pipe", "rdb", "askpass", // redis-cli
	"help",
}

// namedSection matches the words by which a document names a section of another document.
var namedSection = regexp.MustCompile(`([\w./-]+\.md)\)?(?:,? \(?| 的 )["“]([^"”]+)["”]`)

// TestDocumentsAreTrue: the flags, variables, tests, files, make targets and sections that the documents name exist.
func TestDocumentsAreTrue(t *testing.T) {
	var flags []string
	for _, group := range flagGroups() {
		group.flags.VisitAll(func(f *flag.Flag) { flags = append(flags, f.Name) })
	}
	tests, goFlags := testsAndFlags(t)
	flags = append(append(flags, goFlags...), ofOthers...)
	makefile := read(t, root+"/Makefile")
	documents, err := filepath.Glob(root + "/docs/*.md")
	if err != nil || len(documents) < 5 {
		t.Fatal(documents, err)
	}
	list := read(t, root+"/docs/README.md")
	for _, path := range documents {
		if name := filepath.Base(path); name != "README.md" && !strings.Contains(list, "]("+name+")") {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
	for _, name := range []string{"README.md", "README.zh-CN.md", "CONTRIBUTING.md", "CHANGELOG.md", "cluster/DESIGN.md", "raftfsm/DESIGN.md"} {
		documents = append(documents, root+"/"+name)
	}
	for _, path := range documents {
		doc, name := read(t, path), strings.TrimPrefix(path, root+"/")
		each := func(pattern, what string, there func(string) bool) {
			for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(doc, -1) {
				if !there(m[1]) {
					t.Errorf("%s: there is no %s %s", name, what, m[1])
				}
			}
		}
		each("(?:^|[\\s`(\"])--([a-z][a-z0-9-]+)", "flag", func(s string) bool { return slices.Contains(flags, s) })
		each("\\b(LOCKSTEP_[A-Z][A-Z_]*[A-Z])\\b", "variable", func(s string) bool {
			return unknownVariables([]string{s + "="}) == nil || strings.Contains(makefile, s)
		})
		each("`((?:Test|Fuzz)[A-Z][A-Za-z0-9]+)`", "test", func(s string) bool { return tests[s] })
		each("`((?:bench|cluster|cmd|conformance|docs|luavm|raftfsm|server|store|\\.ci)/[\\w./-]*\\w)`", "file", func(s string) bool {
			_, err := os.Stat(filepath.Join(root, s))
			return err == nil
		})
		each("`make ([a-z]+(?:-[a-z]+)*)", "make target", func(s string) bool { return strings.Contains(makefile, "\n"+s+":") })
		each(`\]\(([^):#]+)(?:#[^)]*)?\)`, "file to link to,", func(s string) bool {
			_, err := os.Stat(filepath.Join(filepath.Dir(path), s))
			return err == nil
		})
		checkSections(t, path, doc)
	}
}

// TestTargetsAreListed: README.md has every target of the Makefile.
func TestTargetsAreListed(t *testing.T) {
	phony := regexp.MustCompile(`(?m)^\.PHONY: (.+)$`).FindStringSubmatch(read(t, root+"/Makefile"))
	if phony == nil {
		t.Fatal("the Makefile has no line of targets")
	}
	readme := read(t, root+"/README.md")
	for _, target := range strings.Fields(phony[1]) {
		if !strings.Contains(readme, "`make "+target+"`") {
			t.Errorf("README.md does not list make %s", target)
		}
	}
}

// checkSections fails the test if the document names a section that does not exist, or has one twice.
func checkSections(t *testing.T, path, doc string) {
	t.Helper()
	name := strings.TrimPrefix(path, root+"/")
	for _, m := range namedSection.FindAllStringSubmatch(doc, -1) {
		target := filepath.Join(filepath.Dir(path), m[1])
		if strings.Contains(m[1], "docs/") {
			target = filepath.Join(root, m[1])
		}
		if there := read(t, target); !strings.Contains(there, "# "+m[2]+"\n") && !strings.Contains(there, "**"+m[2]) {
			t.Errorf("%s: %s has no section %q", name, m[1], m[2])
		}
	}
	headings := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(doc, -1) {
		if headings[m[1]] {
			t.Errorf("%s has the section %q twice", name, m[1])
		}
		headings[m[1]] = true
	}
}

// testsAndFlags returns the tests of this repository, and the flags that its other programs declare.
func testsAndFlags(t *testing.T) (tests map[string]bool, flags []string) {
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	declared := regexp.MustCompile(`(?:flag|fs)\.\w+\((?:&[\w.]+, )?"([a-z][a-z0-9-]*)"`)
	tests = make(map[string]bool)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		text := read(t, path)
		for _, m := range function.FindAllStringSubmatch(text, -1) {
			tests[m[1]] = true
		}
		for _, m := range declared.FindAllStringSubmatch(text, -1) {
			flags = append(flags, m[1])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests, flags
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

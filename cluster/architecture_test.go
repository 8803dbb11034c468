package cluster

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sources parses the non-test Go files of the module, by path from its root.
func sources(t *testing.T) (*token.FileSet, map[string]*ast.File) {
	t.Helper()
	const root = ".."
	fset, files := token.NewFileSet(), map[string]*ast.File{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		files[filepath.ToSlash(rel)] = f
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, must := range []string{"cluster/internal/clock/source.go", "cmd/lockstep/main.go", "store/txn.go"} {
		if files[must] == nil {
			t.Fatalf("%s was not found", must)
		}
	}
	return fset, files
}

func imports(f *ast.File) (paths []string) {
	for _, spec := range f.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			panic(err) // the parser has accepted it
		}
		paths = append(paths, path)
	}
	return paths
}

// outside reports whether a file belongs to a program that speaks RESP to a server. Such a program measures real time.
func outside(path string) bool {
	return strings.HasPrefix(path, "bench/") || strings.HasPrefix(path, "conformance/")
}

// ofTests reports whether a file belongs to a package that only tests import.
func ofTests(path string) bool {
	return strings.HasPrefix(path, "cluster/internal/crashdisk") || strings.HasPrefix(path, "cluster/internal/clustertest")
}

// Code gets the time as an argument, so that a test can choose it. Only one file asks the machine for the time.
func TestOnlyTheClockAsksForTheTime(t *testing.T) {
	fset, files := sources(t)
	asks := 0
	for path, f := range files {
		if outside(path) || ofTests(path) {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if !ok || pkg.Name != "time" {
				return true
			}
			switch sel.Sel.Name {
			case "Now", "Since", "Until":
				if path == "cluster/internal/clock/source.go" {
					asks++
				} else {
					t.Errorf("%s: time.%s; take the time as an argument", fset.Position(sel.Pos()), sel.Sel.Name)
				}
			}
			return true
		})
		for _, spec := range f.Imports {
			if spec.Path.Value == `"time"` && spec.Name != nil {
				t.Errorf("%s: time is imported under another name", path)
			}
		}
	}
	if asks == 0 {
		t.Error("cluster/internal/clock/source.go does not ask for the time: this test looks for the wrong thing")
	}
}

// layers from the top to the bottom; each may import what stands below it.
var layers = []string{"cmd", "server", "cluster", "raftfsm", "luavm", "store"}

func TestImportsRunOneWay(t *testing.T) {
	_, files := sources(t)
	level := map[string]int{}
	for i, name := range layers {
		level[name] = i
	}
	seen := map[string]bool{}
	for path, f := range files {
		top, _, _ := strings.Cut(path, "/")
		from, layered := level[top]
		for _, imported := range imports(f) {
			rest, ours := strings.CutPrefix(imported, "github.com/lockstep-io/lockstep/")
			if !ours {
				continue
			}
			name, _, _ := strings.Cut(rest, "/")
			to, known := level[name]
			switch {
			case ofTests(rest):
				t.Errorf("%s imports %s, which is for tests", path, rest)
			case name == top:
			case layered && known && from < to:
				seen[top] = true
			case strings.HasPrefix(path, "conformance/compatibility/"):
				// docs/compatibility.md is generated from the server's command tables.
			case (top == "conformance" || top == "bench") && rest == "server/respclient":
				// respclient is a client, and needs nothing of the server.
			case top == "bench" && (rest == "conformance/certs" || rest == "conformance/environ"):
				// Measurements, like tests, start processes that need certificates and an environment.
			default:
				t.Errorf("%s imports %s", path, imported)
			}
		}
	}
	for _, name := range []string{"cmd", "server", "cluster", "raftfsm"} {
		if !seen[name] {
			t.Errorf("%s imports nothing below it: this test looks for the wrong thing", name)
		}
	}
}

// DESIGN.md names exactly the files of this package and of datadir, and the internal packages that not only tests import.
func TestDesignNamesEveryFile(t *testing.T) {
	doc, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(doc), "\n## Where each detail stands\n")
	if !found {
		t.Fatal("DESIGN.md has no table of files")
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([\\w/]+\\.go|internal/\\w+)`").FindAllStringSubmatch(table, -1) {
		path := m[1]
		if strings.HasPrefix(path, "internal/") {
			path = "cluster/" + path
		}
		if !strings.Contains(path, "/") {
			path = "cluster/" + path
		}
		named[path] = true
	}
	_, files := sources(t)
	dirs := map[string]bool{}
	for path := range files {
		dir := filepath.Dir(path)
		dirs[dir] = true
		inside := strings.HasPrefix(dir, "cluster/internal/") && dir != "cluster/internal/datadir" && !ofTests(dir)
		if !named[path] && (dir == "cluster" || dir == "cluster/internal/datadir") || inside && !named[dir] {
			t.Errorf("DESIGN.md does not name %s", path)
		}
	}
	for path := range named {
		if files[path] == nil && !dirs[path] {
			t.Errorf("DESIGN.md names %s, which is not there", path)
		}
	}
}

// rooms lists packages, and what each of them imports of this repository. Go's own rule decides who may import the packages below
// an internal/.
var rooms = map[string][]string{
	"cmd/lockstep/internal/bucket": nil,
	"cmd/lockstep/internal/lock":   {"server/respclient"},
	"cmd/lockstep/internal/show":   {"server/respclient"},
	"cmd/lockstep/internal/web":    {"store"},

	"cluster/internal/call":     {"cluster/internal/frame", "store", "store/codec"},
	"cluster/internal/clock":    {"store"},
	"cluster/internal/datadir":  {"cluster/brake", "cluster/internal/roster", "raftfsm"},
	"cluster/internal/fair":     {"cluster/internal/call", "store"},
	"cluster/internal/forward":  {"cluster/internal/call", "cluster/internal/fair", "cluster/internal/frame", "cluster/internal/raftnode", "cluster/internal/roster", "store", "store/codec"},
	"cluster/internal/frame":    {"cluster/brake"},
	"cluster/internal/peers":    {"cluster/internal/clock", "cluster/internal/fair", "cluster/internal/frame", "cluster/internal/peerport", "cluster/internal/raftnode", "cluster/internal/roster", "store/codec"},
	"cluster/internal/peerport": {"cluster/internal/frame", "cluster/turns"},
	"cluster/internal/raftnode": {"cluster/brake", "cluster/internal/datadir", "cluster/internal/frame", "cluster/internal/peerport", "cluster/internal/roster", "raftfsm", "store/codec"},
	"cluster/internal/roster":   nil,

	"store/codec":           nil,
	"store/internal/packed": {"store/redistext"},
	"store/redistext":       nil,

	"luavm/internal/auxlib":  {"luavm/internal/clib"},
	"luavm/internal/clib":    {"store"},
	"luavm/internal/compile": {"luavm/internal/clib", "luavm/internal/interp"},
	"luavm/internal/ext":     {"luavm/internal/auxlib", "luavm/internal/clib", "luavm/internal/interp"},
	"luavm/internal/interp":  nil,
}

func TestRoomsImportNoMore(t *testing.T) {
	_, files := sources(t)
	seen := map[string]map[string]bool{}
	for path, f := range files {
		room := filepath.ToSlash(filepath.Dir(path))
		if _, known := rooms[room]; !known {
			continue
		}
		if seen[room] == nil {
			seen[room] = map[string]bool{}
		}
		for _, imported := range imports(f) {
			if rest, ours := strings.CutPrefix(imported, "github.com/lockstep-io/lockstep/"); ours {
				seen[room][rest] = true
			}
		}
	}
	for room, want := range rooms {
		if got := slices.Sorted(maps.Keys(seen[room])); seen[room] == nil || !slices.Equal(got, want) {
			t.Errorf("%s imports %q, want %q", room, got, want)
		}
	}
}

// otherModules are the directories with a go.mod of their own.
var otherModules = []string{"bench/", "conformance/go/", "conformance/helm/", "conformance/ui/"}

// Each third-party module but golang.org/x/sys has one importing package, so that the module can be replaced.
func TestThirdPartyModulesHaveOneImporter(t *testing.T) {
	_, files := sources(t)
	modules := modulesUsed(t)
	importer := map[string]string{}
	for path, f := range files {
		if slices.ContainsFunc(otherModules, func(dir string) bool { return strings.HasPrefix(filepath.ToSlash(path), dir) }) {
			continue
		}
		pkg, _, _ := strings.Cut(filepath.ToSlash(filepath.Dir(path)), "/internal")
		for _, imported := range imports(f) {
			module := moduleOf(imported, modules)
			if module == "" || module == "golang.org/x/sys" {
				continue
			}
			if module == "github.com/hashicorp/raft" && filepath.ToSlash(filepath.Dir(path)) == "cluster" {
				t.Errorf("%s imports %s: that is for internal/raftnode", path, module)
			}
			if other := importer[module]; other != "" && other != pkg {
				t.Errorf("%s is imported by %s and by %s", module, other, pkg)
			}
			importer[module] = pkg
		}
	}
	for module, want := range map[string]string{
		"github.com/hashicorp/raft":  "cluster",
		"github.com/tidwall/redcon":  "server",
		"github.com/yuin/gopher-lua": "luavm",
	} {
		if got := importer[module]; got != want {
			t.Errorf("%s is imported by %q, want %s", module, got, want)
		}
	}
}

// modulesUsed lists the modules of the build.
func modulesUsed(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Path}}", "all").Output()
	if err != nil {
		t.Fatalf("go list -m: %v", err)
	}
	return strings.Fields(string(out))
}

// moduleOf returns the module of an import path, "" if it is the standard
// library's or ours.
func moduleOf(path string, modules []string) string {
	found := ""
	for _, m := range modules {
		if m != "github.com/lockstep-io/lockstep" && (path == m || strings.HasPrefix(path, m+"/")) && len(m) > len(found) {
			found = m
		}
	}
	return found
}

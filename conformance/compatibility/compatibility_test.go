package compatibility

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/redissuite"
	"github.com/lockstep-io/lockstep/conformance/transcript/redisd"
	"github.com/lockstep-io/lockstep/server/respclient"
)

var update = flag.Bool("update", false, "write redis-7.0.15.txt from the redis-server that is installed")

// TestDocument fails if docs/compatibility.md does not say exactly what the results, the command table, the transcripts and the
// list of Redis's own tests say now.
func TestDocument(t *testing.T) {
	results, err := ReadAll("results")
	if err != nil {
		t.Fatal(err)
	}
	sights, err := ReadSights(filepath.Join("results", "sight"))
	if err != nil {
		t.Fatal(err)
	}
	corpus, err := ReadCorpus(filepath.Join("..", "transcript", "testdata"), filepath.Join("..", "discovery", "testdata"))
	if err != nil {
		t.Fatal(err)
	}
	suite, err := redissuite.Section(filepath.Join("..", "redissuite"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := Generate(results, sights, Commands(Table()), corpus, suite)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", "..", "docs", "compatibility.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/compatibility.md is out of date: run `go run ./conformance/compatibility/generate`")
	}
}

// TestNothingFailed: nobody may commit a result that failed.
func TestNothingFailed(t *testing.T) {
	results, err := ReadAll("results")
	if err != nil {
		t.Fatal(err)
	}
	if len(results) == 0 {
		t.Fatal("no results")
	}
	for _, r := range results {
		if r.Outcome == Failed {
			t.Errorf("%+v", r)
		}
	}
}

// TestReasons: every command that is not done has a reason, and no command that is done has one.
func TestReasons(t *testing.T) {
	table, names := Table(), map[string]bool{}
	for _, c := range Commands(table) {
		names[c.Name] = true
		if c.State != Done && c.Why == "" {
			t.Errorf("%s is %s and nobody says why", c.Name, c.State)
		}
	}
	for name := range absent {
		if !names[name] || has(table, name) {
			t.Errorf("absent: %s is here, or Redis has none", name)
		}
	}
	for name := range refused {
		if !names[name] || !has(table, name) {
			t.Errorf("refused: %s is not here, or Redis has none", name)
		}
	}
	for name := range noEffect {
		if !names[name] && !slices.Contains([]string{"debug"}, name) {
			t.Errorf("noEffect: Redis has no %s", name)
		}
	}
}

// TestVersions: the results come from the pinned versions of the clients.
func TestVersions(t *testing.T) {
	pinned := map[string]string{}
	for suite, file := range map[string]string{"java": "pom.xml", "python": "requirements.txt", "node": "package.json", "go": "go.mod", "rust": "Cargo.lock"} {
		b, err := os.ReadFile(filepath.Join("..", suite, file))
		if err != nil {
			t.Fatal(err)
		}
		pinned[suite] = string(b)
	}
	for suite, text := range pinned {
		results, err := ReadResults(filepath.Join("results", suite+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			for _, v := range strings.Split(r.Version, ", ") {
				if !regexp.MustCompile(`[^\d.]` + regexp.QuoteMeta(v) + `(["\s<+]|$)`).MatchString(text) {
					t.Errorf("%s: %s %s is not the version that is pinned", suite, r.Client, v)
				}
			}
		}
	}
}

// TestRedisCommands compares the list of Redis's commands with that of a real Redis.
func TestRedisCommands(t *testing.T) {
	bin, version, err := redisd.Find()
	if err != nil || version != redisd.Version {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI has redis-server %s: %q, %v", redisd.Version, version, err)
		}
		t.Skipf("redis-server %s is not installed", redisd.Version)
	}
	srv, err := redisd.Start(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	}()
	conn, err := srv.Dial()
	if err != nil {
		t.Fatal(err)
	}
	addr := conn.RemoteAddr().String()
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := respclient.Dial(addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	docs, err := c.Do("COMMAND", "DOCS")
	if err != nil {
		t.Fatal(err)
	}
	lines := documented(docs)
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile("redis-7.0.15.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != redisCommands {
		t.Error("redis-7.0.15.txt is not what redis-server says: run with -update")
	}
}

// documented turns the reply of COMMAND DOCS into lines "group name". It does not list a container command itself, only its
// subcommands.
func documented(docs any) (lines []string) {
	list, _ := docs.([]any)
	for i := 0; i+1 < len(list); i += 2 {
		fields, _ := list[i+1].([]any)
		group, subs := "", []string(nil)
		for j := 0; j+1 < len(fields); j += 2 {
			switch fields[j] {
			case "group":
				group = fmt.Sprint(fields[j+1])
			case "subcommands":
				subs = documented(fields[j+1])
			}
		}
		if subs == nil {
			lines = append(lines, group+" "+fmt.Sprint(list[i]))
		}
		lines = append(lines, subs...)
	}
	return lines
}

// TestResults: results that were written are read back unchanged, in a fixed order.
func TestResults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.jsonl")
	in := []Result{
		{Client: "b", Version: "1", Mode: "plain", Nodes: 3, Test: "x", Outcome: Passed},
		{Client: "a", Version: "1", Mode: "plain", Nodes: 1, Test: "x", Outcome: Skipped, Reason: "why"},
	}
	if err := WriteResults(file, in); err != nil {
		t.Fatal(err)
	}
	out, err := ReadResults(file)
	if err != nil || len(out) != 2 || out[0] != in[1] || out[1] != in[0] {
		t.Errorf("%v, %v", out, err)
	}
	for _, bad := range []Result{{Client: "a"}, {Client: "a", Version: "1", Mode: "m", Test: "t", Outcome: Skipped}} {
		line, err := json.Marshal(bad)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, line, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadResults(file); err == nil {
			t.Errorf("%s was accepted", line)
		}
	}
}

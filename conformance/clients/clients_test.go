// Package clients runs test suites of clients in other languages. Each suite uses the real client library, and runs against one
// lockstep node and against three.
package clients

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/certs"
	"github.com/lockstep-io/lockstep/conformance/compatibility"
	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/conformance/postgres"
)

// suite is the test suite for the clients of one language.
type suite struct {
	name   string
	needs  []string // tools on the PATH
	probe  []string // a command that fails where the tools lack a library
	script string   // in conformance/; func environment sets the variables that it reads
	// database is true if tests of the suite write to a PostgreSQL.
	database bool
}

var suites = []suite{
	{name: "java", needs: []string{"mvn", "javac"}, script: "../run-java.sh", database: true},
	{name: "python", needs: []string{"python3"}, script: "../run-python.sh", database: true},
	{name: "node", needs: []string{"node", "npm"}, script: "../run-node.sh"},
	{name: "go", needs: []string{"go"}, script: "../run-go.sh", database: true},
	{name: "rust", needs: []string{"cargo"}, script: "../run-rust.sh"},
	// The libraries for Ruby and PHP are Debian's packages, which .ci/install names.
	{name: "ruby", needs: []string{"ruby"}, script: "../run-ruby.sh",
		probe: []string{"ruby", "-e", "%w[minitest redis active_support sidekiq].each { |name| require name }"}},
	{name: "php", needs: []string{"php"}, script: "../run-php.sh",
		probe: []string{"php", "-r", `chdir("../php"); require "./adapters.php"; new Redis; pcntl_async_signals();`}},
}

func TestClients(t *testing.T) {
	if os.Getenv("LOCKSTEP_CLIENTS") == "" {
		t.Skip("`make conformance` runs the suites of foreign clients")
	}
	var failed []string
	// All suites share one database, which the first one that needs it starts.
	startDatabase := sync.OnceValues(func() (string, error) { return postgres.Start(t, accounts(t)) })
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) {
			s.require(t)
			database := ""
			if s.database {
				database = requireDatabase(t, startDatabase)
			}
			var results []compatibility.Result
			var sights []compatibility.Sight
			add := func(r []compatibility.Result, s []compatibility.Sight) {
				results, sights = append(results, r...), append(sights, s...)
			}
			t.Run("one node", func(t *testing.T) {
				list, secret := nodes.StartSecret(t, 1)
				add(s.run(t, list, secret, database, &failed))
			})
			// The suites send most commands to the first address, which is a follower's.
			t.Run("three nodes through a follower", func(t *testing.T) {
				list, secret := nodes.StartSecret(t, 3)
				c := &control{list: list}
				add(s.run(t, c.followersFirst(), secret, database, &failed))
			})
			if !t.Failed() && os.Getenv("LOCKSTEP_RECORD") != "" && len(sights) > 0 {
				if err := compatibility.WriteSights(filepath.Join("..", "compatibility", "results", "sight", s.name+".jsonl"), sights); err != nil {
					t.Fatal(err)
				}
			}
			if !t.Failed() && os.Getenv("LOCKSTEP_RECORD") != "" && os.Getenv("LOCKSTEP_TESTS") == "" && len(results) > 0 {
				file := filepath.Join("..", "compatibility", "results", s.name+".jsonl")
				if err := compatibility.WriteResults(file, results); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	// The failures are printed again at the end, because readers of a CI log look there first.
	for _, out := range failed {
		t.Log(out)
	}
}

// require skips the suite if its tools are missing; on CI it fails instead.
func (s suite) require(t *testing.T) {
	t.Helper()
	missing := func(what string) {
		t.Helper()
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s: CI runs every suite", what)
		}
		t.Skipf("skipped: %s", what)
	}
	for _, tool := range s.needs {
		if _, err := exec.LookPath(tool); err != nil {
			missing(tool + " is not installed")
		}
	}
	if len(s.probe) == 0 {
		return
	}
	if out, err := exec.Command(s.probe[0], s.probe[1:]...).CombinedOutput(); err != nil {
		missing(fmt.Sprintf("a library of %s is not installed: %s", s.name, bytes.TrimSpace(out)))
	}
}

// requireDatabase returns the address of a PostgreSQL. Without PostgreSQL, it returns "", and names what is missing; on CI it fails instead.
func requireDatabase(t *testing.T, start func() (string, error)) string {
	t.Helper()
	address, err := start()
	if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") != "true" {
		t.Run("PostgreSQL", func(t *testing.T) { t.Skipf("skipped: %v", err) })
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// accounts returns the statements that make the table of docs/fencing.md, the document's own statement included.
func accounts(t *testing.T) string {
	t.Helper()
	for _, code := range examples(t, "fencing.md") {
		if code.language == "sql" {
			column, _, _ := strings.Cut(code.text, ";")
			return "CREATE TABLE account (id text PRIMARY KEY, balance bigint NOT NULL);\n" + column
		}
	}
	t.Fatal("docs/fencing.md has no SQL")
	return ""
}

// environment tells a suite all addresses and files. With three nodes, the first address of each kind is a follower's.
func environment(t *testing.T, c *control, list []*nodes.Node, secret nodes.Secret, database, results string) []string {
	a := addrsOf(list)
	return append(os.Environ(),
		"LOCKSTEP_ADDRS="+strings.Join(a.Plain, ","),
		"LOCKSTEP_SENTINELS="+strings.Join(a.Sentinel, ","),
		"LOCKSTEP_CLUSTER="+strings.Join(a.Cluster, ","),
		"LOCKSTEP_TLS_ADDRS="+strings.Join(a.TLS.Plain, ","),
		"LOCKSTEP_TLS_SENTINELS="+strings.Join(a.TLS.Sentinel, ","),
		"LOCKSTEP_TLS_CLUSTER="+strings.Join(a.TLS.Cluster, ","),
		"LOCKSTEP_TLS_CA="+secret.CA,
		"LOCKSTEP_TLS_CERT="+secret.Cert,
		"LOCKSTEP_TLS_KEY="+secret.Key,
		"LOCKSTEP_TLS_OTHER_CA="+otherAuthority(t),
		"LOCKSTEP_POSTGRES="+database,
		"LOCKSTEP_CONTROL="+startControl(t, c),
		"LOCKSTEP_NODES="+strconv.Itoa(len(list)),
		"LOCKSTEP_RESULTS="+results,
	)
}

// otherAuthority writes the certificate of an authority that has signed no other certificate.
func otherAuthority(t *testing.T) string {
	t.Helper()
	a, err := certs.NewAuthority("another authority")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "other.crt")
	if err := os.WriteFile(file, a.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// run runs the suite, and returns the results that the suite reported. If the suite failed, run adds its output to failed.
func (s suite) run(t *testing.T, list []*nodes.Node, secret nodes.Secret, database string, failed *[]string) ([]compatibility.Result, []compatibility.Sight) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "results.jsonl")
	var out bytes.Buffer
	cmd := exec.Command(s.script)
	c := &control{list: list}
	cmd.Env = environment(t, c, list, secret, database, file)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	t.Logf("%s", out.String())
	if err != nil {
		text := fmt.Sprintf("%s on %d nodes: %v\n", s.name, len(list), err)
		for _, n := range list {
			t.Logf("log of %s:\n%s", n.ID, n.Log())
			text += fmt.Sprintf("what %s said of leaders:\n%s\n", n.ID, lastLines(linesWith(n.Log(), "leader"), 8))
		}
		*failed = append(*failed, text+lastLines(out.String(), 60))
		t.Fatalf("%s: %v", s.script, err)
	}
	results, err := compatibility.ReadResults(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range results {
		results[i].Nodes = len(list)
		if results[i].Outcome == compatibility.Failed {
			t.Errorf("%s reported a failure and did not fail: %+v", s.script, results[i])
		}
	}
	return results, c.recorded()
}

// linesWith returns the lines of s that contain a word.
func linesWith(s, word string) string {
	var list []string
	for line := range strings.Lines(s) {
		if strings.Contains(line, word) {
			list = append(list, line)
		}
	}
	return strings.Join(list, "")
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

package redissuite

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// slow is how long one file may take. On an idle machine the slowest takes two minutes.
const slow = 10 * time.Minute

// TestSuite runs files of Redis's suite. With LOCKSTEP_REDIS_SUITE=all it runs every file in suite.txt, and otherwise the quick
// ones. Without Redis's source it runs none.
func TestSuite(t *testing.T) {
	all := os.Getenv("LOCKSTEP_REDIS_SUITE") != ""
	source := suiteSource(t, all)
	units := readList(t)
	var results []Result
	for _, u := range units {
		if u.Absent != "" || !all && !u.Quick {
			continue
		}
		t.Run(u.Name, func(t *testing.T) { results = append(results, check(t, source, u)) })
	}
	if all && os.Getenv("LOCKSTEP_RECORD") != "" && !t.Failed() {
		if err := WriteResults("results.txt", results); err != nil {
			t.Fatal(err)
		}
	}
}

// suiteSource returns the directory of the suite. If the suite is not there, suiteSource fetches it if fetch is true, and otherwise
// skips the test.
func suiteSource(t *testing.T, fetch bool) string {
	t.Helper()
	source, err := Source()
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"tclsh", "redis-cli", "redis-benchmark"} {
		if _, err := exec.LookPath(tool); err != nil && fetch {
			t.Fatal(err)
		} else if err != nil {
			t.Skipf("skipped: %s is not installed", tool)
		}
	}
	if There(source) {
		return source
	}
	if !fetch {
		t.Skip("`make redis-suite` fetches the suite")
	}
	if err := Fetch(source); err != nil {
		t.Fatal(err)
	}
	return source
}

// check runs one file and judges it.
func check(t *testing.T, source string, u Unit) Result {
	report, out := run(t, source, u)
	for _, failed := range report.Failed {
		t.Errorf("%s", failed)
	}
	if !report.Done {
		t.Errorf("the suite has not come to the end of the file:\n%s", out[max(0, len(out)-4000):])
	}
	for _, s := range u.Skips {
		if !slices.Contains(report.Skipped, s.Test) {
			t.Errorf("suite.txt skips %q, which the file does not have, or not any more", s.Test)
		}
	}
	return u.result(report)
}

// run runs one file on a new node, and returns what the suite has printed.
func run(t *testing.T, source string, u Unit) (Report, string) {
	t.Helper()
	dir, within := t.TempDir(), ""
	if u.Within {
		within = u.Name
	}
	if err := Copy(source, dir, within); err != nil {
		t.Fatal(err)
	}
	var names strings.Builder
	for _, s := range u.Skips {
		names.WriteString(s.Test + "\n")
	}
	if err := os.WriteFile(filepath.Join(dir, skipFile), []byte(names.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	node := nodes.Start(t, 1, "--enable-debug-command", "yes", "--maxmemory", "2gb", "--script-time-limit", "1m")[0]
	out := runTcl(t, dir, node.Addr, u.Name)
	for range 2 {
		// The suite looks for a free port, but another process may take the port first.
		if strings.Contains(out, "address already in use") {
			out = runTcl(t, dir, node.Addr, u.Name)
		}
	}
	if kept := os.Getenv("LOCKSTEP_OUTPUT"); kept != "" {
		if err := os.WriteFile(filepath.Join(kept, strings.ReplaceAll(u.Name, "/", "_")+".txt"), []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return ReadReport(out), out
}

// skipFile has the names of the tests that are skipped.
const skipFile = "skipped"

// runTcl runs one file against the server at an address.
func runTcl(t *testing.T, dir, addr, unit string) string {
	t.Helper()
	host, port, _ := strings.Cut(addr, ":")
	base := 12000 + rand.IntN(18000) // below the ports that outgoing connections get
	ctx, cancel := context.WithTimeout(context.Background(), slow)
	defer cancel()
	cmd := exec.CommandContext(ctx, "tclsh", "tests/test_helper.tcl", "--host", host, "--port", port, "--single", unit, "--baseport", strconv.Itoa(base),
		"--portcount", "10", "--clients", "1", "--tags", "-needs:repl", "--no-latency", "--durable", "--skipfile", skipFile)
	cmd.Dir = dir
	// The suite runs its tests in a process of its own, which must be killed together with the suite.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) && ctx.Err() == nil {
		t.Fatal(err)
	}
	return string(out)
}

func readList(t *testing.T) []Unit {
	t.Helper()
	f, err := os.Open("suite.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	units, err := ReadList(f)
	if err != nil {
		t.Fatal(err)
	}
	return units
}

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/history"
	"github.com/lockstep-io/lockstep/store"
)

// audited runs `lockstep audit --check`, and returns its exit code and output.
func audited(paths ...string) (code int, text string) {
	var out, faults bytes.Buffer
	code = run(append([]string{"audit", "--check"}, paths...), &out, &faults)
	return code, out.String() + faults.String()
}

// auditLines returns the lines of a node's files.
func auditLines(t *testing.T, n *nodes.Node) (lines []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.AuditDir(), "locks-*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")...)
	}
	return lines
}

// TestAudit: through kills of each node, the files of the nodes together have every lock that a client was given, and the check finds nothing.
// Then it finds what is planted.
func TestAudit(t *testing.T) {
	list := nodes.StartAudited(t, 3)
	var mu sync.Mutex
	given := map[string]bool{}
	take := func(worker, n int) {
		for i := range n {
			key, owner := fmt.Sprint("lock", worker%2), fmt.Sprint(worker, "-", i)
			at := list[(worker+i)%len(list)]
			if reply, err := at.Do("SET", key, owner, "NX", "PX", "60000"); err != nil || reply != "OK" {
				continue
			}
			mu.Lock()
			given[owner] = true
			mu.Unlock()
			_, _ = at.Do("DELIFEQ", key, owner) // a node may be killed meanwhile: then the lock stays until the next round ends it
		}
	}
	for round, n := range list {
		var all sync.WaitGroup
		for worker := range 4 {
			all.Go(func() { take(10*round+worker, 50) })
		}
		n.Kill()
		all.Wait()
		n.Run()
		n.WaitReady()
		for _, key := range []string{"lock0", "lock1"} {
			if _, err := n.Do("LOCK.FORCE", key, "REASON", "a round has ended"); err != nil {
				t.Fatal(err)
			}
		}
	}
	waitEqual(t, list)
	var dirs []string
	granted := map[string]bool{}
	for _, n := range list {
		if code := n.Terminate(); code != 0 {
			t.Fatalf("%s ended with %d", n.ID, code)
		}
		dirs = append(dirs, n.AuditDir())
		for _, line := range auditLines(t, n) {
			e, err := history.ParseJSON([]byte(line))
			if err != nil {
				t.Fatal(err)
			}
			granted[e.Owner] = granted[e.Owner] || e.How == store.LockGranted
		}
	}
	for owner := range given {
		if !granted[owner] {
			t.Errorf("no node tells that %s was given the lock", owner)
		}
	}
	if len(given) < 20 {
		t.Errorf("only %d locks were given", len(given))
	}
	if code, text := audited(dirs...); code != exitOK || !strings.Contains(text, "faults  0") {
		t.Fatalf("exit code %d\n%s", code, text)
	}
	planted := filepath.Join(t.TempDir(), "planted.jsonl")
	var kept []string
	for _, line := range auditLines(t, list[0]) {
		if !strings.Contains(line, `"event":"released"`) { // so the next owner got the lock while this one held it
			kept = append(kept, line)
		}
	}
	if err := os.WriteFile(planted, []byte(strings.Join(kept, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, text := audited(planted); code != exitRuntime || !strings.Contains(text, "held it") {
		t.Errorf("exit code %d\n%s", code, text)
	}
}

// TestAuditUsage: wrong usage says what to do.
func TestAuditUsage(t *testing.T) {
	for _, args := range [][]string{{"audit"}, {"audit", "--check"}, {"audit", "dir"}} {
		var out, faults bytes.Buffer
		if code := run(args, &out, &faults); code != exitUsage || !strings.Contains(faults.String(), "want --check and the directories") {
			t.Errorf("%q: %d %s", args, code, faults.String())
		}
	}
	for _, size := range []string{"1", "many", "-1gb", ""} {
		o := options{auditDir: t.TempDir(), auditSize: size}
		if _, err := o.openAudit(nil, nil); err == nil || !strings.Contains(err.Error(), "--audit-size") {
			t.Errorf("%q: %v", size, err)
		}
	}
	if code, text := audited(filepath.Join(t.TempDir(), "absent")); code != exitRuntime || !strings.Contains(text, "no such file") {
		t.Errorf("%d %s", code, text)
	}
}

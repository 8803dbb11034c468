package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// allLocks is how many locks a cluster of these tests has granted in all, and earlyLocks how many of them are in the log of the survivor.
const (
	allLocks   = 300
	earlyLocks = 200
)

// grantLocks takes locks from one number up to another, and returns their tokens.
func grantLocks(t *testing.T, n *nodes.Node, from, to int) (tokens map[string]string) {
	t.Helper()
	c := n.Dial()
	tokens = map[string]string{}
	for i := from; i < to; i++ {
		name := fmt.Sprintf("lock:%d", i)
		if got := ask(t, c, "SET", name, fmt.Sprintf("owner-%d", i), "NX", "PX", "3600000"); got != "OK" {
			t.Fatalf("%s: %v", name, got)
		}
		tokens[name] = ask(t, c, "LOCK.TOKEN", name)
	}
	return tokens
}

// loseTheMajority starts three nodes, grants earlyLocks that all have, and further locks up to allLocks that the third has not. Then all are
// dead.
func loseTheMajority(t *testing.T) (list []*nodes.Node, tokens map[string]string) {
	t.Helper()
	list = nodes.Start(t, 3, "--failover-wait", "1s")
	tokens = grantLocks(t, list[0], 0, earlyLocks)
	if got := ask(t, list[0].Dial(), "WAIT", "2", "30000"); got != "2" {
		t.Fatalf("%v other nodes have the locks", got)
	}
	list[2].Kill()
	for name, token := range grantLocks(t, list[0], earlyLocks, allLocks) {
		tokens[name] = token
	}
	list[0].Kill()
	list[1].Kill()
	return list, tokens
}

// TestBackupWithoutAMajority: a backup of the restarted survivor has every lock in the survivor's log, but neither the command nor a later
// reader of the file calls it whole, and the exit code tells it from a good backup.
func TestBackupWithoutAMajority(t *testing.T) {
	list, _ := loseTheMajority(t)
	list[2].Run()
	until(t, "the survivor to serve", func() bool {
		_, err := list[2].Do("PING")
		return err == nil
	})
	dir := t.TempDir()
	file := filepath.Join(dir, "alone.backup")
	code, out, faults := command(t, "backup", file, "--addr", list[2].Addr)
	check := func(what string) {
		t.Helper()
		if code != exitIncomplete || strings.Contains(out, "whole") || !strings.Contains(out, "200 keys") {
			t.Errorf("%s: exit code %d: %s", what, code, out)
		}
		for _, said := range []string{"n3", "may lack", "after log index", "recovery.md"} {
			if !strings.Contains(faults, said) {
				t.Errorf("%s: no word of %q: %s", what, said, faults)
			}
		}
	}
	check("backup")
	code, out, faults = command(t, "backup", "--verify", file)
	check("verify")
	if code, out, _ := command(t, "backup", "--verify", file, "--output", "json"); code != exitIncomplete || !strings.Contains(out, `"complete": false`) {
		t.Errorf("as JSON: %d %s", code, out)
	}
	code, out, faults = command(t, "restore", file, "--data", filepath.Join(dir, "restored"))
	check("restore")
	n := nodes.Start(t, 1, "--data", filepath.Join(dir, "restored"))[0]
	if got := ask(t, n.Dial(), "DBSIZE"); got != "200" {
		t.Errorf("restored: %v locks", got)
	}
}

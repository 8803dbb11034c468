package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// TestMajorityLost: two of three nodes are gone, and the third was restarted and has no leader. recover makes a cluster of it with every lock
// that its log has, each with its owner, token and lease. New locks have larger tokens than any that the dead majority gave.
func TestMajorityLost(t *testing.T) {
	list, tokens := loseTheMajority(t)
	survivor := list[2]
	survivor.Run()
	until(t, "the survivor to serve", func() bool {
		_, err := survivor.Do("PING")
		return err == nil
	})
	if code, _, faults := command(t, "recover", "--data", survivor.Data, "--yes"); code != exitRuntime || !strings.Contains(faults, "in use") {
		t.Errorf("while it runs: exit code %d: %s", code, faults)
	}
	survivor.Kill()
	if code, _, faults := command(t, "recover", "--data", survivor.Data); code != exitUsage || !strings.Contains(faults, "--yes") {
		t.Errorf("without a terminal: exit code %d: %s", code, faults)
	}
	code, out, faults := command(t, "inspect", "--data", survivor.Data, "--keys")
	if code != exitOK || strings.Count(out, "\n") != earlyLocks {
		t.Fatalf("inspect: exit code %d, %d lines: %s", code, strings.Count(out, "\n"), faults)
	}
	for line := range strings.Lines(out) {
		var k struct {
			Key, Kind, Value string
			Token, TTL       int64
			Owners           []struct{ Owner string }
		}
		if err := json.Unmarshal([]byte(line), &k); err != nil || k.Kind != "plain" || fmt.Sprint(k.Token) != tokens[k.Key] || k.TTL < 3_000_000 || len(k.Owners) != 1 || k.Owners[0].Owner != k.Value {
			t.Errorf("%s, want the token %s: %v", line, tokens[k.Key], err)
		}
	}
	code, out, faults = command(t, "recover", "--data", survivor.Data, "--yes")
	if code != exitOK || !strings.Contains(out, "200 locks") || !strings.Contains(out, "before-recover-1") {
		t.Fatalf("recover: exit code %d: %s%s", code, out, faults)
	}

	for _, old := range list[:2] {
		old.Run() // both come back, and are a majority of the old cluster
	}
	alone := survivor.Restarted()
	alone.Run()
	alone.WaitReady()
	c := alone.Dial()
	highest := int64(0)
	for name, token := range tokens {
		n, err := strconv.ParseInt(token, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		highest = max(highest, n)
		number, _ := strconv.Atoi(strings.TrimPrefix(name, "lock:"))
		if number >= earlyLocks {
			continue
		}
		if got := ask(t, c, "GET", name); got != fmt.Sprintf("owner-%d", number) {
			t.Errorf("%s is held by %s", name, got)
		}
		if got := ask(t, c, "LOCK.TOKEN", name); got != token {
			t.Errorf("%s has the token %s, and had %s", name, got, token)
		}
		if left, err := strconv.Atoi(ask(t, c, "PTTL", name)); err != nil || left < 3_000_000 {
			t.Errorf("%s ends in %d ms, %v", name, left, err)
		}
	}
	for i := earlyLocks; i < allLocks; i++ { // the dead majority had granted these
		name := fmt.Sprintf("lock:%d", i)
		if got := ask(t, c, "SET", name, "new owner", "NX", "PX", "60000"); got != "OK" {
			t.Errorf("%s: %s", name, got)
		}
		if token, err := strconv.ParseInt(ask(t, c, "LOCK.TOKEN", name), 10, 64); err != nil || token <= highest {
			t.Errorf("%s has the token %d; the dead nodes had given %d: %v", name, token, highest, err)
		}
	}
	list[0].WaitReady()
	for _, n := range []*nodes.Node{alone, list[0]} {
		want := map[bool]string{true: "n3", false: "n1 n2 n3"}[n == alone]
		if got := memberIDs(t, n); got != want {
			t.Errorf("%s has the members %s, want %s", n.ID, got, want)
		}
	}
	for _, old := range list[:2] {
		old.Kill()
	}

	joins := nodes.Newcomer(t, "n4", []*nodes.Node{alone})
	joins.Run()
	joins.WaitReady()
	if got := memberIDs(t, alone); got != "n3 n4" {
		t.Errorf("after a node has joined: %s", got)
	}
}

// memberIDs returns the ids of the members that a node names.
func memberIDs(t *testing.T, n *nodes.Node) string {
	t.Helper()
	code, out, faults := command(t, "members", "--addr", n.Addr, "--output", "json")
	var members []struct{ ID string }
	if err := json.Unmarshal([]byte(out), &members); err != nil || code != exitOK {
		t.Fatalf("%d %s%s: %v", code, out, faults, err)
	}
	var ids []string
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	return strings.Join(ids, " ")
}

// TestRecoverAsks: recover asks, goes on only after "yes", and says what it has done, in both forms.
func TestRecoverAsks(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	ask(t, n.Dial(), "SET", "lock", "me", "NX", "PX", "600000")
	n.Kill()
	for answer, want := range map[string]bool{"yes\n": true, " yes \n": true, "yes": true, "y\n": false, "no\n": false, "": false, strings.Repeat("x", 100): false} {
		var out strings.Builder
		s := surveyed(t, n.Data)
		if got, err := askToRecover(strings.NewReader(answer), &out, s); err != nil || got != want || !strings.Contains(out.String(), "Type yes") {
			t.Errorf("%q: %v, %v: %s", answer, got, err, out.String())
		}
	}
	code, out, faults := command(t, "recover", "--data", n.Data, "--yes", "--output", "json", "--peer-advertise", "10.0.0.1:7379", "--tokens-above", "4000000000000000")
	for _, said := range []string{`"locks": 1`, `"peer_advertise": "10.0.0.1:7379"`, `"tokens_above": 4000000000000000`, `"kept": "` + filepath.Join(n.Data, "before-recover-1") + `"`} {
		if code != exitOK || strings.Count(out, "\n") != 1 || !strings.Contains(out, said) {
			t.Errorf("no %s: %d %s%s", said, code, out, faults)
		}
	}
	for _, args := range [][]string{{"recover"}, {"recover", "--data", n.Data, "more"}, {"recover", "--data", n.Data, "--yes", "--tokens-above", "-1"}, {"recover", "--data", n.Data, "--yes", "--peer-advertise", "x"},
		{"inspect"}, {"inspect", "a", "b"}, {"inspect", "a", "--data", "b"}} {
		if code, _, _ := command(t, args...); code != exitUsage {
			t.Errorf("%q: exit code %d", args, code)
		}
	}
}

func surveyed(t *testing.T, data string) *cluster.Survey {
	t.Helper()
	s, err := cluster.Inspect(t.Context(), data, false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestInspectFiles: inspect reads a backup and a snapshot, finds a changed byte in each, and refuses other files.
func TestInspectFiles(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	c := n.Dial()
	ask(t, c, "SET", "lock", "me", "NX", "PX", "600000")
	ask(t, c, "RPUSH", "list", "a")
	ask(t, c, "LOCK.ACQUIRE", "shared", "me", "PX", "600000", "SHARED")
	ask(t, c, "SELECT", "3")
	ask(t, c, "SET", "text\x01\xff", "v")
	dir := t.TempDir()
	backup := filepath.Join(dir, "b")
	for _, args := range [][]string{{"backup", backup}, {"snapshot"}} {
		if code, _, faults := command(t, append(args, "--addr", n.Addr)...); code != exitOK {
			t.Fatal(args, faults)
		}
	}
	n.Kill()
	snapshots, err := filepath.Glob(filepath.Join(n.Data, "snapshots", "*", "state.bin"))
	if err != nil || len(snapshots) != 1 {
		t.Fatal(snapshots, err)
	}
	for path, kind := range map[string]string{backup: "backup", snapshots[0]: "snapshot"} {
		code, out, faults := command(t, "inspect", path, "--output", "json")
		if code != exitOK || !strings.Contains(out, `"kind": "`+kind+`"`) || !strings.Contains(out, `"keys": 4, "locks": 2`) {
			t.Errorf("%s: %d %s%s", kind, code, out, faults)
		}
		if code, out, _ := command(t, "inspect", path, "--keys"); code != exitOK || strings.Count(out, "\n") != 4 || !strings.Contains(out, `"db": 3, "key": "text`) || !strings.Contains(out, `"kind": "shared"`) {
			t.Errorf("%s: %d %s", kind, code, out)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-40] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, faults := command(t, "inspect", path); code != exitRuntime || strings.Count(faults, "\n") != 1 {
			t.Errorf("damaged %s: %d %s", kind, code, faults)
		}
	}
	if code, out, faults := command(t, "inspect", "--data", n.Data, "--check"); code != exitRuntime || !strings.Contains(faults, "snapshot") || !strings.Contains(out, "keys          4") {
		t.Errorf("a directory with a damaged snapshot: %d %s%s", code, out, faults)
	}
	for name, content := range map[string]string{"empty": "", "other": "something else", "short": "LOCK"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, faults := command(t, "inspect", path); code != exitRuntime || !strings.Contains(faults, "neither") {
			t.Errorf("%s: %d %s", name, code, faults)
		}
	}
}

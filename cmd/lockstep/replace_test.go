package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

const (
	heldLocks = 60
	// A lease lasts for watchdogLease milliseconds, and is renewed every watchdogPause. As long as the cluster serves, no lease is
	// close to its end.
	watchdogLease = "6000"
	watchdogPause = 200 * time.Millisecond
)

// holdLeases renews leases through the nodes until the test calls the function done. It fails the test if a lease is gone.
func holdLeases(t *testing.T, list []*nodes.Node) (done func()) {
	stop := make(chan struct{})
	var work sync.WaitGroup
	for i, n := range list {
		for j := range 3 {
			key, c := fmt.Sprintf("leased:%d:%d", i, j), n.Dial()
			if got, err := c.Do("SET", key, "me", "NX", "PX", watchdogLease); got != "OK" {
				t.Fatal(got, err)
			}
			work.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(watchdogPause):
					}
					if got, err := c.Do("PEXPIRE", key, watchdogLease); got != int64(1) {
						t.Errorf("the lease of %s through %s was missed: %v, %v", key, n.ID, got, err)
						return
					}
				}
			})
		}
	}
	return sync.OnceFunc(func() { close(stop); work.Wait() })
}

// allHeld checks through every node that every lock has its owner, and that a thief cannot take any.
func allHeld(t *testing.T, list []*nodes.Node) {
	t.Helper()
	for _, n := range list {
		c := n.Dial()
		for i := range heldLocks {
			key := fmt.Sprint("held:", i)
			if got, err := c.Do("GET", key); got != fmt.Sprint("owner-", i) {
				t.Errorf("%s through %s: %v, %v", key, n.ID, got, err)
			}
			if got, err := c.Do("SET", key, "thief", "NX", "PX", "1000"); got != nil || err != nil {
				t.Errorf("%s is granted twice through %s: %v, %v", key, n.ID, got, err)
			}
		}
	}
}

// flipIn changes the owners of locks in all files below dir, as a damaged disk may.
func flipIn(t *testing.T, dir string) {
	t.Helper()
	damaged := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(b, []byte("owner-")) {
			return err
		}
		damaged++
		return os.WriteFile(path, bytes.ReplaceAll(b, []byte("owner-"), []byte("owner.")), 0o600)
	})
	if err != nil || damaged == 0 {
		t.Fatalf("%d files damaged in %s, %v", damaged, dir, err)
	}
}

// TestReplaceDamagedVoter follows docs/operations.md for a node whose disk is lost or damaged. After the repair, the node is a voter
// again and has every lock.
func TestReplaceDamagedVoter(t *testing.T) {
	for _, test := range []struct {
		name   string
		leads  bool // the victim led
		damage func(t *testing.T, n *nodes.Node)
		says   []string // what the damaged node says; nil: its data is gone, so it cannot notice
	}{
		{"the log", false, func(t *testing.T, n *nodes.Node) { flipIn(t, filepath.Join(n.Data, "log")) },
			[]string{"remove this node from the cluster and join with an empty directory"}},
		{"the snapshots and the log", true, func(t *testing.T, n *nodes.Node) {
			flipIn(t, filepath.Join(n.Data, "log"))
			flipIn(t, filepath.Join(n.Data, "snapshots"))
		}, []string{"remove this node from the cluster and join with an empty directory"}},
		{"the disk", false, func(t *testing.T, n *nodes.Node) {
			if err := os.RemoveAll(n.Data); err != nil {
				t.Fatal(err)
			}
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			list := nodes.Start(t, 3)
			for i := range heldLocks {
				if got, err := list[i%3].Do("SET", fmt.Sprint("held:", i), fmt.Sprint("owner-", i), "NX", "PX", "3600000"); got != "OK" {
					t.Fatal(got, err)
				}
				if i == heldLocks/3 || i == 2*heldLocks/3 {
					for _, n := range list {
						if got, err := n.Do("LOCKSTEP", "SNAPSHOT"); got != "OK" {
							t.Fatal(got, err)
						}
					}
				}
			}
			waitEqual(t, list)
			at := 0
			for i, n := range list {
				if (n == nodes.Leader(list)) == test.leads {
					at = i
				}
			}
			victim := list[at]
			rest := append(append([]*nodes.Node{}, list[:at]...), list[at+1:]...)
			done := holdLeases(t, rest)
			defer done()
			victim.Kill()
			test.damage(t, victim)
			if test.says != nil {
				victim.Run()
				code := victim.Wait()
				lines := strings.Split(strings.TrimSpace(victim.Log()), "\n")
				last := lines[len(lines)-1]
				t.Log(last)
				for _, want := range test.says {
					if code != exitRuntime || !strings.Contains(last, want) || !strings.Contains(last, victim.Data) {
						t.Errorf("exit code %d, and it says not %q in its last line:\n%s", code, want, last)
					}
				}
			}
			// If the old node has not been removed yet, the new node's log says that this step is missing.
			replacement := victim.Replacement(rest)
			if err := os.RemoveAll(victim.Data); err != nil {
				t.Fatal(err)
			}
			replacement.Run()
			if code := replacement.Wait(); code != exitRuntime || !strings.Contains(replacement.Log(), "lockstep remove "+victim.ID) {
				t.Errorf("not removed: exit code %d:\n%s", code, replacement.Log())
			}
			allHeld(t, rest)
			administered(t, rest[0], "remove", victim.ID)
			if err := os.RemoveAll(victim.Data); err != nil {
				t.Fatal(err)
			}
			replacement.Run()
			inState(t, rest[1], victim.ID, "voter")
			replacement.WaitReady()
			allHeld(t, append(rest, replacement))
			done()
			waitEqual(t, append(rest, replacement))
		})
	}
}

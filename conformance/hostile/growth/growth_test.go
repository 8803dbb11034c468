// Package growth tests what happens when clients fill the memory of a small cluster, in every way that a client has. It checks what
// the other clients notice.
package growth

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

const memory = 256 << 20

// start starts n nodes, each with a limited memory.
func start(t *testing.T, n int) []*nodes.Node {
	t.Helper()
	groups := map[string]group{}
	for i := range n {
		id := fmt.Sprintf("n%d", i+1)
		groups[id] = memoryGroup(t, id, memory)
	}
	return nodes.StartSetup(t, n, nodes.Setup{Flags: []string{"--protected-mode=no"},
		Within: func(id string) []string { return groups[id].within() }})
}

// TestFull sets keys of a megabyte until there is no room for more, and then restarts all nodes.
func TestFull(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { full(t, start(t, n)) })
	}
}

func full(t *testing.T, list []*nodes.Node) {
	value := strings.Repeat("x", 1<<20)
	c := list[0].Dial()
	stored, refused := 0, 0
	must(t, c, "OK", "SET", "lock", "me", "PX", "600000")
	for i := range 227 {
		r, err := c.Do("SET", fmt.Sprint("k", i), value)
		switch {
		case err != nil && strings.HasPrefix(err.Error(), "OOM "):
			refused++
		case err != nil || r != "OK":
			t.Fatalf("key %d: %v, %v", i, r, err)
		default:
			stored++
		}
	}
	t.Logf("%d keys of 1 MiB stored, %d refused", stored, refused)
	if refused == 0 {
		t.Error("nothing was refused")
	}
	alive(t, list)
	must(t, c, int64(1), "PEXPIRE", "lock", "700000")
	for _, node := range list {
		if code, out := node.Admin("snapshot"); code != 0 {
			t.Fatalf("snapshot of %s: %s", node.ID, out)
		}
	}
	alive(t, list)
	for _, node := range list {
		node.Terminate()
	}
	for _, node := range list {
		node.Run()
	}
	for _, node := range list {
		node.WaitReady()
	}
	c = list[0].Dial()
	must(t, c, "me", "GET", "lock")
	must(t, c, int64(stored+1), "DBSIZE")
	must(t, c, int64(1), "DEL", "lock")
	must(t, c, int64(1), "DEL", "k0")
	must(t, c, int64(1), "DEL", "k1")
	must(t, c, "OK", "SET", "k0", value)
	alive(t, list)
}

func must(t *testing.T, c *respclient.Conn, want any, args ...string) {
	t.Helper()
	if got, err := c.Do(args...); err != nil || got != want {
		t.Fatalf("%.60q: %v, %v; want %v", args, got, err, want)
	}
}

// alive fails the test if a node's process has ended.
func alive(t *testing.T, list []*nodes.Node) {
	t.Helper()
	time.Sleep(100 * time.Millisecond)
	for _, node := range list {
		if node.Ended() {
			t.Fatalf("%s has ended:\n%s", node.ID, last(node.Log()))
		}
	}
}

func last(log string) string { return log[max(0, len(log)-2000):] }

// TestLongEntries: a member that was away gets the longest allowed entries, and all nodes apply them again after a crash.
func TestLongEntries(t *testing.T) {
	list := start(t, 3)
	value := strings.Repeat("x", 8<<20-100)
	c := list[0].Dial()
	must(t, c, "OK", "SET", "lock", "me", "PX", "600000")
	list[2].Kill()
	for range 16 {
		must(t, c, "OK", "SET", "k", value)
	}
	list[2].Run()
	list[2].WaitReady()
	must(t, list[2].Dial(), int64(2), "DBSIZE")
	alive(t, list)
	for _, node := range list {
		node.Kill()
	}
	for _, node := range list {
		node.Run()
	}
	for _, node := range list {
		node.WaitReady()
		must(t, node.Dial(), "me", "GET", "lock")
		must(t, node.Dial(), int64(len(value)), "STRLEN", "k")
	}
	alive(t, list)
}

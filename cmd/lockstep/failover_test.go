package main

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// waitEqual waits until all nodes report the same applied index and the same state hash.
func waitEqual(t *testing.T, list []*nodes.Node) {
	t.Helper()
	var seen []string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		seen = seen[:0]
		equal := true
		for _, n := range list {
			st, err := n.Status()
			if err != nil {
				t.Fatalf("%s: %v", n.ID, err)
			}
			seen = append(seen, st["applied"]+" "+st["state-hash"])
			equal = equal && st["state-hash"] != "" && seen[len(seen)-1] == seen[0]
		}
		if equal {
			return
		}
	}
	t.Fatalf("the nodes do not agree on applied index and state hash: %q", seen)
}

// TestAllKilled kills all three nodes at once under load. After the restart, every acknowledged write must be there.
func TestAllKilled(t *testing.T) {
	list := nodes.Start(t, 3)
	var (
		mu    sync.Mutex
		acked = map[string]string{}
		wg    sync.WaitGroup
	)
	for w := range 12 {
		c := list[w%3].Dial()
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; ; i++ {
				key, value := fmt.Sprintf("w%d:%d", w, i), fmt.Sprintf("v%d", i)
				got, err := c.Do("SET", key, value, "NX", "PX", "600000")
				if err != nil {
					return // the node was killed
				}
				if got == "OK" {
					mu.Lock()
					acked[key] = value
					mu.Unlock()
				}
			}
		}()
	}
	for {
		mu.Lock()
		n := len(acked)
		mu.Unlock()
		if n >= 2000 {
			break
		}
		time.Sleep(10 * time.Millisecond) // the pause between two looks at a counter; the time limits of no lease depend on it
	}
	for _, n := range list {
		if err := n.Process().Kill(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range list {
		n.Kill()
	}
	wg.Wait()
	for _, n := range list {
		n.Run()
	}
	for _, n := range list {
		n.WaitReady()
	}
	lost := checkAll(t, list[0].Dial(), acked)
	t.Logf("%d acknowledged writes, %d lost", len(acked), lost)
	waitEqual(t, list)
}

func checkAll(t *testing.T, c *respclient.Conn, want map[string]string) (lost int) {
	t.Helper()
	for key, value := range want {
		got, err := c.Do("GET", key)
		if err != nil {
			t.Fatal(err)
		}
		if got != value {
			lost++
			t.Errorf("%s = %v, want %s: an acknowledged write is lost", key, got, value)
		}
	}
	return lost
}

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// TestMainThreadWritesNothing: the main thread of a durable node never writes to the log.
func TestMainThreadWritesNothing(t *testing.T) {
	for _, processors := range []string{"1", "8"} {
		t.Setenv("GOMAXPROCS", processors)
		for _, flags := range [][]string{nil, {"--without", slowMonitor}} {
			n := nodes.Start(t, 1, flags...)[0]
			if !strings.Contains(stacks(t, n), "main.takeMainThread.func1()") {
				t.Errorf("%s processors, %v: nobody has the main thread", processors, flags)
			}
			before := switches(t, n.Process().Pid)
			for range 100 {
				if _, err := n.Do("SET", "k", strings.Repeat("v", 5000)); err != nil {
					t.Fatal(err)
				}
			}
			if after := switches(t, n.Process().Pid); after != before {
				t.Errorf("%s processors, %v: the main thread ran:\n%s\n%s", processors, flags, before, after)
			}
		}
	}
}

// stacks returns the stacks of a node's goroutines that are locked to their threads.
func stacks(t *testing.T, n *nodes.Node) (locked string) {
	t.Helper()
	resp, err := http.Get("http://" + n.HTTPAddr + "/debug/pprof/goroutine?debug=2")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", resp.Status, err, all)
	}
	for stack := range strings.SplitSeq(string(all), "\n\n") {
		if first, _, _ := strings.Cut(stack, "\n"); strings.Contains(first, "locked to thread") {
			locked += stack + "\n\n"
		}
	}
	return locked
}

// switches returns the lines that say how often the main thread of a process has stopped running.
func switches(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^(non)?voluntary_ctxt_switches:.*$`).FindAllString(string(b), -1)
	if len(lines) != 2 {
		t.Skip("this system does not count the switches of a thread")
	}
	return strings.Join(lines, "\n")
}

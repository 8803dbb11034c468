package main

import (
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/environ"
	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// TestRunbook runs each command of docs/runbook.md on three nodes, of which one holds the lock that the document names.
func TestRunbook(t *testing.T) {
	tool(t, "redis-cli")
	list := nodes.Start(t, 3)
	if _, err := list[0].Do("LOCK.ACQUIRE", "orders", "me", "PX", "600000"); err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(list[0].Addr)
	if err != nil {
		t.Fatal(err)
	}
	places := strings.NewReplacer("10.0.0.1:6379", list[0].Addr, "-h 10.0.0.1 -p 6379", "-h "+host+" -p "+port)
	ran := 0
	for _, s := range sections(read(t, root+"/docs/runbook.md")) {
		for _, block := range s.blocks {
			for line := range strings.Lines(block) {
				if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "```") {
					continue
				}
				ran++
				cmd := exec.Command("sh", "-c", places.Replace(line))
				cmd.Env = append(environ.Environ(), "PATH="+filepath.Dir(nodes.Binary(t))+":/usr/local/bin:/usr/bin:/bin")
				out, err := cmd.CombinedOutput()
				if text := string(out); err != nil || text == "" && !strings.Contains(line, "--event") && !strings.Contains(line, "SLOWLOG") && !strings.Contains(line, "lock-waiters") ||
					strings.Contains(text, "ERR ") || places.Replace(line) == line {
					t.Errorf("%q, %s: %v\n%s", s.name, line, err, out)
				}
			}
		}
	}
	if ran < 20 {
		t.Errorf("%d commands were run", ran)
	}
}

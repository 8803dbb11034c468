// Package clients runs the suites of foreign clients, each with the real
// library, against one lockstep node and against three.
package clients

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"lockstep/conformance/nodes"
)

// suite is one language's clients.
type suite struct {
	name   string
	needs  []string // tools on the PATH
	script string   // in conformance/; finds the servers in LOCKSTEP_ADDRS
}

var suites = []suite{
	{name: "java", needs: []string{"mvn", "javac"}, script: "../run-java.sh"},
}

func TestClients(t *testing.T) {
	if os.Getenv("LOCKSTEP_CLIENTS") == "" {
		t.Skip("`make conformance` runs the suites of foreign clients")
	}
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) {
			s.require(t)
			t.Run("one node", func(t *testing.T) {
				s.run(t, nodes.Start(t, 1))
			})
			// The suites use the first address most: a follower's.
			t.Run("three nodes through a follower", func(t *testing.T) {
				list := nodes.Start(t, 3)
				leader := nodes.Leader(list)
				for list[0] == leader || leader == nil {
					list = append(list[1:], list[0])
					leader = nodes.Leader(list)
				}
				s.run(t, list)
			})
		})
	}
}

// require skips the suite where its toolchain is missing; CI must have it.
func (s suite) require(t *testing.T) {
	t.Helper()
	for _, tool := range s.needs {
		if _, err := exec.LookPath(tool); err == nil {
			continue
		}
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed: CI runs every suite", tool)
		}
		t.Skipf("skipped: %s is not installed", tool)
	}
}

func (s suite) run(t *testing.T, list []*nodes.Node) {
	t.Helper()
	var addrs []string
	for _, n := range list {
		addrs = append(addrs, n.Addr)
	}
	var out bytes.Buffer
	cmd := exec.Command(s.script)
	cmd.Env = append(os.Environ(), "LOCKSTEP_ADDRS="+strings.Join(addrs, ","))
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	t.Logf("%s", out.String())
	if err != nil {
		for _, n := range list {
			t.Logf("log of %s:\n%s", n.ID, n.Log())
		}
		t.Fatalf("%s: %v", s.script, err)
	}
}

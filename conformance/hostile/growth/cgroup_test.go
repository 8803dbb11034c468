package growth

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// group is a cgroup with little memory, in which a node runs.
type group struct{ procs, limit string }

// memoryGroup makes a cgroup with a limit of memory. If this machine cannot make one, it skips the test and says why.
func memoryGroup(t *testing.T, name string, bytes int) group {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can make a cgroup")
	}
	root, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		root, file = "/sys/fs/cgroup", "memory.max"
		controllers, err := os.ReadFile(filepath.Join(root, "cgroup.subtree_control"))
		if err != nil || !strings.Contains(string(controllers), "memory") {
			t.Skip("there is no memory controller, neither of version 1 nor of version 2")
		}
	}
	dir := filepath.Join(root, fmt.Sprintf("lockstep-growth-%d-%s", os.Getpid(), name))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no cgroup can be made: %v", err)
	}
	t.Cleanup(func() {
		for range 50 { // the kernel may take a moment to notice that the group's processes have ended
			if os.Remove(dir) == nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Errorf("%s could not be removed", dir)
	})
	g := group{procs: filepath.Join(dir, "cgroup.procs"), limit: filepath.Join(dir, file)}
	if err := os.WriteFile(g.limit, []byte(strconv.Itoa(bytes)), 0o600); err != nil {
		t.Skipf("the cgroup takes no limit: %v", err)
	}
	return g
}

// within returns a program with its first arguments, which runs the command after them in the group.
func (g group) within() []string {
	return []string{"sh", "-c", `echo $$ > "$0" && exec "$@"`, g.procs}
}

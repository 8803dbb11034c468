package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// TestWithout: a node does not take the fast paths that --without names, and still serves clients.
func TestWithout(t *testing.T) {
	all := usedBy(t)
	if all[directIO] == 0 {
		t.Log("the file system has no O_DIRECT")
	}
	if all[ioUring] == 0 {
		t.Log("the system does not allow io_uring")
	}
	if all[eventLoops] < 2 { // Go's runtime has one epoll instance, the event loops have the others
		t.Errorf("%d epoll instances", all[eventLoops])
	}
	got := usedBy(t, "--without", strings.Join(fastPaths, ","))
	if got[directIO] > 0 || got[ioUring] > 0 || got[eventLoops] > 1 {
		t.Errorf("a node without fast paths has of each %v, another one %v", got, all)
	}
}

// usedBy starts a node, writes to it, and counts the node's descriptors for each fast path that uses descriptors.
func usedBy(t *testing.T, flags ...string) map[string]int {
	t.Helper()
	n := nodes.Start(t, 1, flags...)[0]
	for range 20 {
		if v, err := n.Do("EVAL", "return redis.call('INCR', KEYS[1])", "1", "k"); err != nil {
			t.Fatal(v, err)
		}
	}
	dir := fmt.Sprintf("/proc/%d", n.Process().Pid)
	list, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]int{}
	for _, fd := range list {
		// An error means that the descriptor was closed meanwhile.
		to, _ := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
		info, _ := os.ReadFile(filepath.Join(dir, "fdinfo", fd.Name()))
		_, flags, _ := strings.Cut(string(info), "flags:")
		flags, _, _ = strings.Cut(flags, "\n")
		mode, _ := strconv.ParseInt(strings.TrimSpace(flags), 8, 64)
		switch {
		case strings.Contains(to, "io_uring"):
			used[ioUring]++
		case strings.Contains(to, "eventpoll"):
			used[eventLoops]++
		case mode&syscall.O_DIRECT != 0:
			used[directIO]++
		}
	}
	return used
}

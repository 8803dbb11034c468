package hostile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// group is a control group that bounds the memory of one node.
type group struct{ dir string }

// errNoGroup says that this machine, or this user, cannot make control groups.
var errNoGroup = errors.New("no control group for memory can be made")

// made is the number of groups that this process has made; it makes their names different.
var made atomic.Int64

const cgroups = "/sys/fs/cgroup"

// newGroup makes a control group of version 1 or 2.
func newGroup(name string, limit int64) (*group, error) {
	parent, file := filepath.Join(cgroups, "memory"), "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(parent, file)); err != nil {
		parent, file = cgroups, "memory.max"
	}
	g := &group{dir: filepath.Join(parent, fmt.Sprintf("hostile-%d-%d-%s", os.Getpid(), made.Add(1), name))}
	if err := os.Mkdir(g.dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%w: %v", errNoGroup, err)
	}
	if err := os.WriteFile(filepath.Join(g.dir, file), []byte(strconv.FormatInt(limit, 10)), 0o644); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %v", errNoGroup, err), g.remove())
	}
	return g, nil
}

// within returns a program with its first arguments. The program runs the command that follows these arguments, in the group.
func (g *group) within() []string {
	return []string{"/bin/sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(g.dir, "cgroup.procs")}
}

// remove removes the group after its process has ended.
func (g *group) remove() error {
	var err error
	for range 50 {
		if err = os.Remove(g.dir); err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// resident returns the resident memory of a process in bytes: the present one, and the highest so far.
func resident(pid int) (now, peak int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		kib, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			continue
		}
		switch words[0] {
		case "VmRSS:":
			now = kib << 10
		case "VmHWM:":
			peak = kib << 10
		}
	}
	return now, peak, nil
}

// descriptors counts a process's connections to peer ports (links) and its other open files and sockets (own).
func descriptors(pid int, peers map[string]bool) (own, links int64, err error) {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0, 0, err
	}
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", pid))
	if err != nil {
		return 0, 0, err
	}
	linked := map[string]bool{}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 9 && (peers[hexPort(f[1])] || peers[hexPort(f[2])]) {
			linked["socket:["+f[9]+"]"] = true
		}
	}
	for _, fd := range list {
		// A descriptor that was closed meanwhile does not count.
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name())); linked[to] {
			links++
		} else if err == nil {
			own++
		}
	}
	return own, links, nil
}

// hexPort converts the port of an address in /proc/net/tcp to decimal.
func hexPort(addr string) string {
	_, port, _ := strings.Cut(addr, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/lock"
	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// stubborn is a command that does not end by SIGTERM, and whose child does not either.
const stubborn = `trap "echo TERM" TERM; sh -c 'trap "" TERM; echo other=$$; while :; do sleep 0.05; done' & echo first=$$; while :; do wait; done`

// TestLockClusterGone: the only node dies. The command gets SIGTERM and then SIGKILL, all before the lease is over.
func TestLockClusterGone(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	const ttl = 3 * time.Second
	l := startLocked(t, n.Addr, "--ttl", ttl.String(), "job", "--", "sh", "-c", stubborn)
	first, other := l.pid("first"), l.pid("other")
	n.Kill()
	gone := time.Now() // the last lease began earlier
	l.says("TERM")
	if !alive(first) || !alive(other) {
		t.Error("SIGKILL came with SIGTERM")
	}
	until(t, "the end of the command", func() bool { return !alive(first) && !alive(other) })
	if took := time.Since(gone); took >= ttl {
		t.Errorf("it took %v", took)
	}
	if code := l.code(); code != lock.ExitLost || !strings.Contains(l.said(), "SIGTERM, and SIGKILL in") || !strings.Contains(l.said(), "cannot be renewed") {
		t.Errorf("exit code %d: %s", code, l.said())
	}
}

// nobodyWhile checks that no other owner has the lock while a process of the first one is alive. It returns when the lock is another's.
func nobodyWhile(t *testing.T, n *nodes.Node, pids ...int) {
	t.Helper()
	script := fmt.Sprintf(`for p in %s; do s=$(cut -d " " -f 3 /proc/$p/stat 2>/dev/null); case "$s" in ""|Z|X);; *) echo "alive: $p";; esac; done; echo another has it`,
		strings.Trim(fmt.Sprint(pids), "[]"))
	other := startLocked(t, n.Addr, "job", "--", "sh", "-c", script)
	other.says("another has it")
	if strings.Contains(other.said(), "alive") {
		t.Errorf("of the first owner, a process was alive: %s", other.said())
	}
}

// TestLockStopped: `lockstep lock` is stopped for longer than the lease. The command is dead before anybody else has the lock, because the
// guard is not stopped.
func TestLockStopped(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	l := startLocked(t, n.Addr, "--ttl", "1500ms", "job", "--", "sh", "-c", stubborn)
	first, other := l.pid("first"), l.pid("other")
	guardOf(t, l)
	l.signal(syscall.SIGSTOP)
	nobodyWhile(t, n, first, other)
	if !strings.Contains(l.said(), "TERM") {
		t.Errorf("the command got no SIGTERM: %s", l.said())
	}
	if l.signal(syscall.SIGCONT); l.code() != lock.ExitLost {
		t.Errorf("exit code %d: %s", l.code(), l.said())
	}
}

// TestLockStoppedWithItsGuard: both processes are stopped, as in a machine that sleeps, but the command is not. When either goes on, the
// command is dead at once.
func TestLockStoppedWithItsGuard(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	for _, first := range []string{"lock", "guard"} {
		l := startLocked(t, n.Addr, "--ttl", "1s", "job", "--", "sh", "-c", stubborn)
		pid, guard := l.pid("first"), guardOf(t, l)
		stop(t, guard, syscall.SIGSTOP)
		l.signal(syscall.SIGSTOP)
		until(t, "the end of the lease", func() bool { return send(t, n.Addr, "EXISTS", "job") == int64(0) })
		if !alive(pid) {
			t.Fatal("the command has ended, so this test shows nothing")
		}
		woken := guard
		if first == "lock" {
			woken = l.cmd.Process.Pid
		}
		began := time.Now()
		stop(t, woken, syscall.SIGCONT)
		until(t, "the end of the command", func() bool { return !alive(pid) })
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("%s: it took %v", first, took)
		}
		l.signal(syscall.SIGCONT)
		if l.code() != lock.ExitLost || alive(guard) {
			t.Errorf("%s: exit code %d, the guard is alive: %v: %s", first, l.code(), alive(guard), l.said())
		}
	}
}

func stop(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(pid, sig, err)
	}
}

// guardOf returns the process id of a guard.
func guardOf(t *testing.T, l *locked) (pid int) {
	t.Helper()
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Skip("needs /proc to find the guard")
	}
	until(t, "a guard", func() bool {
		entries, _ := os.ReadDir("/proc")
		for _, e := range entries {
			line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
			stat, _ := os.ReadFile("/proc/" + e.Name() + "/stat")
			_, after, _ := strings.Cut(string(stat), ") ")
			fields := strings.Fields(after)
			if strings.Contains(string(line), lock.GuardCommand) && len(fields) > 1 && fields[1] == strconv.Itoa(l.cmd.Process.Pid) && fields[0] != "Z" {
				pid, _ = strconv.Atoi(e.Name())
				return true
			}
		}
		return false
	})
	return pid
}

// TestLockKilled: after SIGKILL of `lockstep lock` the command's whole process group is dead at once, and the lock ends with its lease.
func TestLockKilled(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	l := startLocked(t, n.Addr, "--ttl", "2s", "job", "--", "sh", "-c", stubborn)
	first, other, guard := l.pid("first"), l.pid("other"), guardOf(t, l)
	began := time.Now()
	l.signal(syscall.SIGKILL)
	until(t, "the end of the group", func() bool { return !alive(first) && !alive(other) && !alive(guard) })
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v", took)
	}
	nobodyWhile(t, n, first, other)
}

// TestLockKilledWithItsGuard: without a guard, the kernel kills the command itself.
func TestLockKilledWithItsGuard(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	l := startLocked(t, n.Addr, "--ttl", "20s", "job", "--", "sh", "-c", stubborn)
	first, other, guard := l.pid("first"), l.pid("other"), guardOf(t, l)
	stop(t, guard, syscall.SIGKILL)
	l.signal(syscall.SIGKILL)
	until(t, "the end of the command", func() bool { return !alive(first) })
	if !alive(other) {
		t.Error("docs/locks.md says that the command's own children survive this")
	}
	_ = syscall.Kill(other, syscall.SIGKILL)
}

// TestLockGuardIsReplaced: a guard that somebody has killed gets a successor at the next renewal. SIGTERM does not end a guard.
func TestLockGuardIsReplaced(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	l := startLocked(t, n.Addr, "--ttl", "1200ms", "job", "--", "sh", "-c", stubborn)
	first, guard := l.pid("first"), guardOf(t, l)
	stop(t, guard, syscall.SIGTERM)
	stop(t, guard, syscall.SIGHUP)
	time.Sleep(100 * time.Millisecond)
	if !alive(guard) {
		t.Error("SIGTERM or SIGHUP ends the guard")
	}
	stop(t, guard, syscall.SIGKILL)
	until(t, "another guard", func() bool { return guardOf(t, l) != guard })
	l.signal(syscall.SIGSTOP)
	until(t, "the end of the command", func() bool { return !alive(first) })
}

// TestLockTakenAway: somebody deletes the lock. The command is ended soon, and the exit code says so.
func TestLockTakenAway(t *testing.T) {
	lockServers(t, func(t *testing.T, addr string, redis bool) {
		l := startLocked(t, addr, "--ttl", "1500ms", "job", "--", "sh", "-c", stubborn)
		l.pid("first")
		send(t, addr, "SET", "job", "somebody", "PX", "60000")
		if code := l.code(); code != lock.ExitLost || !strings.Contains(l.said(), "TERM") {
			t.Errorf("exit code %d: %s", code, l.said())
		}
		if got := send(t, addr, "GET", "job"); got != "somebody" {
			t.Errorf("the lock of somebody is %v", got)
		}
	})
}

// TestLockRevoked: LOCK.REVOKE ends the command by SIGTERM. It may take its time: the lock is renewed until it has ended.
func TestLockRevoked(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	l := startLocked(t, n.Addr, "--ttl", "1200ms", "job", "--", "sh", "-c", `trap "echo TERM; sleep 2; exit 9" TERM; echo first=$$; while :; do sleep 0.05; done`)
	l.pid("first")
	send(t, n.Addr, "LOCK.REVOKE", "job", "REASON", "maintenance")
	if code := l.code(); code != 9 || strings.Count(l.said(), "\nTERM\n") != 1 {
		t.Errorf("exit code %d: %s", code, l.said())
	}
}

// TestLockLosesANode: of three nodes one dies, the one that is asked, and later another takes its place. A command that runs goes on for
// many leases, and so does one that waits.
func TestLockLosesANode(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) []*nodes.Node{
		"plain":   func(t *testing.T) []*nodes.Node { return nodes.Start(t, 3) },
		"cluster": func(t *testing.T) []*nodes.Node { return nodes.StartDiscoverable(t, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := start(t)
			var addrs []string
			for _, n := range list {
				addr := n.Addr
				if name == "cluster" {
					addr = n.ClusterAddr // it redirects to the leader (MOVED)
				}
				addrs = append(addrs, addr)
			}
			all := strings.Join(addrs, ",")
			l := startLocked(t, all, "--ttl", "6s", "job", "--", "sh", "-c", "echo ready; sleep 15; echo done")
			l.says("ready")
			waits := startLocked(t, all, "--wait", "60s", "job", "--", "echo", "it ran")
			time.Sleep(500 * time.Millisecond)
			list[0].Kill()
			time.Sleep(8 * time.Second) // longer than a lease
			list[0].Run()
			list[0].WaitReady()
			list[1].Kill()
			if code := l.code(); code != 0 || !strings.Contains(l.said(), "done") {
				t.Errorf("exit code %d: %s", code, l.said())
			}
			if code := waits.code(); code != 0 || !strings.Contains(waits.said(), "it ran") {
				t.Errorf("who waits: exit code %d: %s", code, waits.said())
			}
		})
	}
}

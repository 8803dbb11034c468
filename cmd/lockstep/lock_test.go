package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/lock"
	"github.com/lockstep-io/lockstep/conformance/environ"
	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/conformance/transcript/redisd"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// locked is a process of `lockstep lock`.
type locked struct {
	t    *testing.T
	cmd  *exec.Cmd
	mu   sync.Mutex
	out  bytes.Buffer
	done chan struct{} // closed when the process has ended
	read chan struct{} // closed when its output has been read, also that of a command that survives
}

// Write takes what the process and its command write.
func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(b)
}

func (l *locked) said() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

// startLocked starts `lockstep lock --addr addr` with further arguments.
func startLocked(t *testing.T, addr string, args ...string) *locked {
	t.Helper()
	l := &locked{t: t, cmd: exec.Command(nodes.Binary(t), append([]string{"lock", "--addr", addr}, args...)...),
		done: make(chan struct{}), read: make(chan struct{})}
	out, in, err := os.Pipe() // a command that survives would keep Wait waiting
	if err != nil {
		t.Fatal(err)
	}
	l.cmd.Stdout, l.cmd.Stderr, l.cmd.Env = in, in, environ.Environ()
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	go l.readFrom(out)
	go func() {
		_ = l.cmd.Wait() // how it ended is in ProcessState
		close(l.done)
	}()
	t.Cleanup(func() {
		_ = l.cmd.Process.Kill()
		<-l.done
	})
	return l
}

func (l *locked) readFrom(out *os.File) {
	defer close(l.read)
	defer out.Close()
	b := make([]byte, 4096)
	for {
		n, err := out.Read(b)
		_, _ = l.Write(bytes.ReplaceAll(b[:n], []byte("\r"), nil)) // a terminal adds them
		if err != nil {
			return
		}
	}
}

// code waits for the end of the process, and returns its exit code.
func (l *locked) code() int {
	l.t.Helper()
	select {
	case <-l.done:
	case <-time.After(60 * time.Second):
		l.t.Fatalf("%q does not end: %s", l.cmd.Args, l.said())
	}
	select {
	case <-l.read:
	case <-time.After(2 * time.Second):
	}
	return l.cmd.ProcessState.ExitCode()
}

func (l *locked) signal(sig syscall.Signal) {
	l.t.Helper()
	if err := l.cmd.Process.Signal(sig); err != nil {
		l.t.Fatal(err)
	}
}

// says waits until the output has a text.
func (l *locked) says(text string) {
	l.t.Helper()
	until(l.t, text+" in the output", func() bool { return strings.Contains(l.said(), text) })
}

// pid waits until the command has written a name and a process id, such as "first=17", and returns that id.
func (l *locked) pid(name string) (pid int) {
	l.t.Helper()
	until(l.t, name+"=PID in the output", func() bool {
		_, rest, found := strings.Cut(l.said(), name+"=")
		number, _, whole := strings.Cut(rest, "\n")
		var err error
		pid, err = strconv.Atoi(number)
		return found && whole && err == nil
	})
	l.t.Cleanup(func() {
		if l.t.Failed() && alive(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // what a broken program has left behind would run for ever
		}
	})
	return pid
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		_, none := os.Stat("/proc/self")
		return none != nil && syscall.Kill(pid, 0) == nil
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && state != "" && state[0] != 'Z' && state[0] != 'X'
}

// lockServers calls a test with lockstep, and with a real Redis.
func lockServers(t *testing.T, test func(t *testing.T, addr string, redis bool)) {
	t.Run("lockstep", func(t *testing.T) { test(t, nodes.Start(t, 1)[0].Addr, false) })
	t.Run("redis", func(t *testing.T) {
		bin, _, err := redisd.Find()
		if err != nil {
			t.Skipf("needs redis-server on PATH: %v", err)
		}
		s, err := redisd.Start(bin)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		test(t, s.Addr(), true)
	})
}

// send sends one command to a server.
func send(t *testing.T, addr string, command ...string) any {
	t.Helper()
	c, err := respclient.Dial(addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	reply, err := c.Do(command...)
	if err != nil {
		t.Fatal(command, err)
	}
	return reply
}

// untilBlocked waits until so many clients of a node wait.
func untilBlocked(t *testing.T, addr string, n int) {
	t.Helper()
	untilClients(t, addr, fmt.Sprintf("blocked_clients:%d\r", n))
}

// untilClients waits until INFO says something about the clients.
func untilClients(t *testing.T, addr, says string) {
	t.Helper()
	until(t, says, func() bool { return strings.Contains(fmt.Sprint(send(t, addr, "INFO", "clients")), says) })
}

// TestLockExitCodes: the command's exit code comes back, and each failure of `lockstep lock` has a code of its own.
func TestLockExitCodes(t *testing.T) {
	lockServers(t, func(t *testing.T, addr string, redis bool) {
		plain := filepath.Join(t.TempDir(), "plain")
		if err := os.WriteFile(plain, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		send(t, addr, "SET", "taken", "somebody")
		sh := func(script string) []string { return []string{"job", "--", "sh", "-c", script} }
		for _, c := range []struct {
			args []string
			code int
			says string
		}{
			{sh("exit 0"), 0, ""},
			{sh("exit 7"), 7, ""},
			{sh("exit 75"), 75, ""},
			{sh("kill -9 $$"), 128 + 9, ""},
			{sh("kill -TERM $$"), 128 + 15, ""},
			{[]string{"--try", "taken", "--", "echo", "it ran"}, lock.ExitTaken, "another owner"},
			{[]string{"--wait", "100ms", "taken", "--", "echo", "it ran"}, lock.ExitTaken, "another owner"},
			{[]string{"--wait", "0s", "taken", "--", "echo", "it ran"}, lock.ExitTaken, "another owner"},
			{[]string{"--addr", "127.0.0.1:1", "--timeout", "300ms", "job", "--", "echo", "it ran"}, lock.ExitUnreachable, "no server answers"},
			{[]string{"--addr", "no-such-host.invalid:1", "--timeout", "300ms", "job", "--", "echo", "it ran"}, lock.ExitUnreachable, "cannot be found"},
			{[]string{"--addr", "127.0.0.1:1," + addr, "job", "--", "true"}, 0, ""},
			{[]string{"job", "--", "/no/such/file"}, lock.ExitNotFound, "no such file"},
			{[]string{"job", "--", "no-such-program"}, lock.ExitNotFound, "not found"},
			{[]string{"job", "--", plain}, lock.ExitNotRun, "permission denied"},
			{[]string{"--requirepass", "wrong", "job", "--", "echo", "it ran"}, lock.ExitRefused, "password"},
		} {
			if l := startLocked(t, addr, c.args...); l.code() != c.code || !strings.Contains(l.said(), c.says) || strings.Contains(l.said(), "it ran") {
				t.Errorf("%q: exit code %d, want %d and %q: %s", c.args, l.code(), c.code, c.says, l.said())
			}
		}
		if got := send(t, addr, "EXISTS", "job"); got != int64(0) {
			t.Errorf("the lock is still there: %v", got)
		}
		if got := send(t, addr, "GET", "taken"); got != "somebody" {
			t.Errorf("somebody else's lock is %v", got)
		}
	})
}

// TestLockUsage: what is wrong in the command line is said before anything is done.
func TestLockUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "want NAME -- COMMAND"},
		{[]string{"job", "true"}, "want NAME -- COMMAND"},
		{[]string{"job", "--"}, "want NAME -- COMMAND"},
		{[]string{"--", "true"}, "want NAME -- COMMAND"},
		{[]string{"a", "b", "--", "true"}, "want NAME -- COMMAND"},
		{[]string{"--ttl", "999ms", "job", "--", "true"}, "--ttl 999ms"},
		{[]string{"--ttl", "30", "job", "--", "true"}, "a duration with its unit"},
		{[]string{"--wait", "-1s", "job", "--", "true"}, "--wait -1s"},
		{[]string{"--try", "--wait", "1s", "job", "--", "true"}, "exclude each other"},
		{[]string{"--permits", "-1", "job", "--", "true"}, "--permits -1"},
		{[]string{"--once-per", "1ms", "job", "--", "true"}, "--once-per 1ms"},
		{[]string{"--timeout", "0s", "job", "--", "true"}, "--timeout must be more than 0"},
		{[]string{"--addr", "nowhere", "job", "--", "true"}, "host:port"},
		{[]string{"--addr", "127.0.0.1:1,", "job", "--", "true"}, "host:port"},
		{[]string{"--cacert", "x", "job", "--", "true"}, "need --tls"},
		{[]string{"--nonsense", "job", "--", "true"}, "no flag --nonsense"},
		{[]string{strings.Repeat("x", 1025), "--", "true"}, "at most 1024"},
	} {
		refused(t, lock.ExitUsage, []string{c.says, "lockstep help lock"}, append([]string{"lock"}, c.args...)...)
	}
	t.Setenv("LOCKSTEP_TTL", "1ms") // each flag is a variable, too
	refused(t, lock.ExitUsage, []string{"--ttl 1ms"}, "lock", "job", "--", "true")
}

// TestLockEnvironment: the command knows its lock. A command that is lockstep itself accepts these variables, and replaces them.
func TestLockEnvironment(t *testing.T) {
	t.Setenv(lock.EnvToken, "of-another-lock") // `lockstep lock` itself may run under a lock
	lockServers(t, func(t *testing.T, addr string, redis bool) {
		const show = `echo "lock=$LOCKSTEP_LOCK owner=$LOCKSTEP_OWNER token=${LOCKSTEP_TOKEN-none}"; cat`
		l := startLocked(t, addr, "--ttl", "20s", "job 1", "--", "sh", "-c", show+"; sleep 30")
		l.says("lock=job 1 owner=")
		l.says("token=")
		until(t, "a whole line", func() bool { return strings.Count(l.said(), "\n") == 1 })
		var owner, token string
		if _, err := fmt.Sscanf(l.said(), "lock=job 1 owner=%s token=%s", &owner, &token); err != nil {
			t.Fatalf("%q: %v", l.said(), err)
		}
		if got := send(t, addr, "GET", "job 1"); got != owner {
			t.Errorf("the owner is %v, and LOCKSTEP_OWNER %s", got, owner)
		}
		want := "none"
		if !redis {
			want = fmt.Sprint(send(t, addr, "LOCK.TOKEN", "job 1", "OWNER", owner))
		}
		if token != want {
			t.Errorf("LOCKSTEP_TOKEN %s, want %s", token, want)
		}
		if ttl := send(t, addr, "PTTL", "job 1").(int64); ttl < 10_000 || ttl > 20_000 {
			t.Errorf("the lease is %d ms", ttl)
		}
		inner := startLocked(t, addr, "outer", "--", nodes.Binary(t), "lock", "--addr", addr, "inner", "--", "sh", "-c", show)
		if inner.code() != 0 || !strings.Contains(inner.said(), "lock=inner ") || (redis && !strings.Contains(inner.said(), "token=none")) {
			t.Errorf("exit code %d: %s", inner.code(), inner.said())
		}
	})
}

// TestLockSignals: signals reach the whole process group of the command, which decides what to do. Before the command runs, they end the
// wait, and no place in the queue is left.
func TestLockSignals(t *testing.T) {
	// Under nohup this process ignores SIGHUP, and so would its children. A process that catches a signal leaves them the default.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	defer signal.Stop(caught)
	lockServers(t, func(t *testing.T, addr string, redis bool) {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
			l := startLocked(t, addr, "job", "--", "sh", "-c", fmt.Sprintf(`trap "echo got it; exit 5" %d; echo ready; while :; do sleep 0.1; done`, sig))
			l.says("ready")
			if l.signal(sig); l.code() != 5 || !strings.Contains(l.said(), "got it") {
				t.Errorf("%v: exit code %d: %s", sig, l.code(), l.said())
			}
		}
		l := startLocked(t, addr, "job", "--", "sh", "-c", "sleep 60 & echo other=$!; wait")
		other := l.pid("other")
		if l.signal(syscall.SIGTERM); l.code() != 128+15 || alive(other) {
			t.Errorf("exit code %d, the other one is alive: %v", l.code(), alive(other))
		}
		holder := startLocked(t, addr, "job", "--", "sh", "-c", "echo ready; sleep 60")
		holder.says("ready")
		waiter := startLocked(t, addr, "job", "--", "echo", "it ran")
		if redis {
			untilClients(t, addr, "connected_clients:3\r") // the third one is this test
		} else {
			untilBlocked(t, addr, 1)
		}
		if waiter.signal(syscall.SIGINT); waiter.code() != 128+2 {
			t.Errorf("exit code %d: %s", waiter.code(), waiter.said())
		}
		holder.signal(syscall.SIGTERM)
		holder.code()
		if got := send(t, addr, "EXISTS", "job"); got != int64(0) {
			t.Error("the lock is still there")
		}
	})
}

// TestLockIgnoredSignals: under nohup, the command goes on after SIGHUP.
func TestLockIgnoredSignals(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	cmd := exec.Command("sh", "-c", `trap "" HUP; exec "$@"`, "sh", nodes.Binary(t), "lock", "--addr", n.Addr, "job", "--", "sh", "-c", "kill -HUP $PPID $$; sleep 0.3; echo went on")
	cmd.Env = environ.Environ()
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "went on") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestLockFiles: the command inherits the files of `lockstep lock`, as under flock, and no other ones.
func TestLockFiles(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("of file 3"), 0o600); err != nil {
		t.Fatal(err)
	}
	const list = `cat <&3; ls /proc/self/fd | tr "\n" " "`
	run := func(args ...string) string {
		cmd := exec.Command("sh", append([]string{"-c", `exec "$@" 3<` + file, "sh"}, args...)...)
		cmd.Env = environ.Environ()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return string(out)
	}
	alone, locked := run("sh", "-c", list), run(nodes.Binary(t), "lock", "--addr", n.Addr, "job", "--", "sh", "-c", list)
	if alone != locked || !strings.HasPrefix(locked, "of file 3") {
		t.Errorf("alone it has %s, under a lock %s", alone, locked)
	}
}

// TestLockWaits: who waits gets the lock when it is free; on lockstep, in the order of arrival.
func TestLockWaits(t *testing.T) {
	lockServers(t, func(t *testing.T, addr string, redis bool) {
		dir := t.TempDir()
		file, held := filepath.Join(dir, "order"), filepath.Join(dir, "held")
		if err := os.WriteFile(held, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		startLocked(t, addr, "job", "--", "sh", "-c", fmt.Sprintf("echo ready; while [ -e %s ]; do sleep 0.02; done", held)).says("ready")
		const waiters = 4
		var list []*locked
		for i := range waiters {
			list = append(list, startLocked(t, addr, "--wait", "20s", "job", "--", "sh", "-c", fmt.Sprintf("echo %d >> %s", i, file)))
			if !redis {
				untilBlocked(t, addr, i+1)
			}
		}
		if err := os.Remove(held); err != nil {
			t.Fatal(err)
		}
		for i, l := range list {
			if l.code() != 0 {
				t.Errorf("waiter %d: exit code %d: %s", i, l.code(), l.said())
			}
		}
		if got := read(t, file); len(got) != 2*waiters || !redis && got != "0\n1\n2\n3\n" {
			t.Errorf("they ran in the order %q", got)
		}
	})
}

// TestLockPermits: so many commands run at once, and no more. A Redis refuses.
func TestLockPermits(t *testing.T) {
	lockServers(t, func(t *testing.T, addr string, redis bool) {
		if redis {
			l := startLocked(t, addr, "--permits", "2", "job", "--", "echo", "it ran")
			if l.code() != lock.ExitRefused || strings.Contains(l.said(), "it ran") || !strings.Contains(l.said(), "LIMIT") {
				t.Errorf("exit code %d: %s", l.code(), l.said())
			}
			return
		}
		dir := t.TempDir()
		script := fmt.Sprintf(`cd %s; touch $$; ls | wc -l; sleep 0.2; rm $$`, dir)
		var list []*locked
		for range 6 {
			list = append(list, startLocked(t, addr, "--permits", "2", "job", "--", "sh", "-c", script))
		}
		most := 0
		for _, l := range list {
			code := l.code()
			n, err := strconv.Atoi(strings.TrimSpace(l.said()))
			if code != 0 || err != nil {
				t.Errorf("exit code %d: %s", code, l.said())
			}
			most = max(most, n)
		}
		if most != 2 {
			t.Errorf("%d ran at once", most)
		}
		other := startLocked(t, addr, "--permits", "2", "job", "--", "sh", "-c", "echo ready; sleep 60")
		other.says("ready")
		if l := startLocked(t, addr, "--permits", "3", "job", "--", "true"); l.code() != lock.ExitRefused || !strings.Contains(l.said(), "LOCKMODE") {
			t.Errorf("another number of permits: exit code %d: %s", l.code(), l.said())
		}
	})
}

// TestLockOncePer: after a success nobody runs the command until the period is over, which counts from the start. After a failure anybody
// may, at once.
func TestLockOncePer(t *testing.T) {
	lockServers(t, func(t *testing.T, addr string, redis bool) {
		cron := func(name, script string) (int, string) {
			l := startLocked(t, addr, "--once-per", "1h", name, "--", "sh", "-c", script)
			return l.code(), l.said()
		}
		if code, out := cron("job", "sleep 1.2; echo ran"); code != 0 || out != "ran\n" {
			t.Errorf("exit code %d: %s", code, out)
		}
		if ttl := send(t, addr, "PTTL", "job").(int64); ttl > 3_598_800 || ttl < 3_590_000 {
			t.Errorf("the lock stays for %d ms", ttl)
		}
		for range 2 {
			if code, out := cron("job", "echo ran"); code != lock.ExitTaken || out != "" {
				t.Errorf("in the same period: exit code %d: %s", code, out)
			}
		}
		for _, script := range []string{"exit 3", "kill -9 $$"} {
			if code, _ := cron("fails", script); code == 0 {
				t.Error(script, "succeeds")
			}
		}
		if code, out := cron("fails", "echo ran"); code != 0 || out != "ran\n" {
			t.Errorf("after a failure: exit code %d: %s", code, out)
		}
		short := startLocked(t, addr, "--once-per", "1s", "short", "--", "sleep", "1.3")
		if code := short.code(); code != 0 || send(t, addr, "EXISTS", "short") != int64(0) {
			t.Errorf("after the period: exit code %d, and the lock is still there", code)
		}
	})
}

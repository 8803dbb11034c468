package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lockstep-io/lockstep/conformance/environ"
	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// terminal returns both ends of a new terminal.
func terminal(t *testing.T) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminals: %v", err)
	}
	raw, err := user.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	number := 0
	if wrong := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}); wrong != nil || err != nil {
		t.Fatal(wrong, err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return user, program
}

// TestLockTerminal: on a terminal the command can read, Ctrl-C reaches it, and Ctrl-Z stops `lockstep lock`, too, until the shell lets it
// go on.
func TestLockTerminal(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	user, program := terminal(t)
	l := &locked{t: t, done: make(chan struct{}), read: make(chan struct{})}
	const script = `trap "echo interrupted; exit 7" INT; echo first=$$; read line; echo "it read $line"; while :; do read line; done`
	l.cmd = exec.Command(nodes.Binary(t), "lock", "--addr", n.Addr, "job", "--", "sh", "-c", script)
	l.cmd.Stdin, l.cmd.Stdout, l.cmd.Stderr, l.cmd.Env = program, program, program, environ.Environ()
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	program.Close()
	go l.readFrom(user)
	go func() {
		_ = l.cmd.Wait() // how it ended is in ProcessState
		close(l.done)
	}()
	t.Cleanup(func() {
		_ = l.cmd.Process.Kill()
		<-l.done
	})
	types := func(keys string) {
		if _, err := user.WriteString(keys); err != nil {
			t.Fatal(err)
		}
	}
	pid := l.pid("first")
	types("hello\n")
	l.says("it read hello")
	types("\x1a") // Ctrl-Z
	until(t, "both stop", func() bool { return stateOf(pid) == "T" && stateOf(l.cmd.Process.Pid) == "T" })
	l.signal(syscall.SIGCONT)
	until(t, "both go on", func() bool { return stateOf(pid) == "S" && stateOf(l.cmd.Process.Pid) == "S" })
	types("\x03") // Ctrl-C
	if code := l.code(); code != 7 || strings.Count(l.said(), "interrupted") != 1 {
		t.Errorf("exit code %d: %s", code, l.said())
	}
}

// stateOf returns the letter of /proc for what a process does.
func stateOf(pid int) string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.SplitN(state, " ", 2)[0]
}

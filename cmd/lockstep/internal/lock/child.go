package lock

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is the command, as the keeper sees it.
type process interface {
	// signal sends a signal to all processes of the group.
	signal(sig syscall.Signal)
	// exited gets the command's status when it has ended. Other processes of its group may still run.
	exited() <-chan syscall.WaitStatus
	// empty reports whether the group has no process any more. It is asked only after the command has ended.
	empty() bool
	// guard tells the guard when the group has to end.
	guard(d deadlines)
}

// child is a command in a process group of its own, whose guard runs.
type child struct {
	cmd      *exec.Cmd
	status   chan syscall.WaitStatus
	guardian *guard
	gate     *os.File // the pipe by which the command is let in
	terminal bool     // the command has the terminal in the foreground
}

// start starts a guard, and a process that waits at a gate before it becomes the command: so the command never runs while the guard does
// not know its group, even if this process is stopped between any two steps.
func start(command, env []string, d deadlines) (*child, error) {
	program, err := ownProgram()
	if err != nil {
		return nil, err
	}
	g, err := newGuard(0, d)
	if err != nil {
		return nil, fmt.Errorf("the guard does not start: %w", err)
	}
	in, gate, err := os.Pipe()
	if err != nil {
		g.dismiss()
		return nil, err
	}
	defer in.Close()
	// The command inherits all files that this process has inherited, so the gate has to keep its number, which none of them has.
	fd := int(in.Fd())
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
		g.dismiss()
		return nil, errors.Join(err, gate.Close())
	}
	args := append([]string{GateCommand, strconv.Itoa(fd)}, command...)
	c := &child{cmd: exec.Command(program, args...), status: make(chan syscall.WaitStatus, 1), guardian: g, gate: gate}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr, c.cmd.Env = os.Stdin, os.Stdout, os.Stderr, env
	c.terminal = inForeground()
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Foreground: c.terminal}
	started := make(chan error)
	go c.run(started)
	if err := <-started; err != nil {
		g.dismiss()
		return nil, errors.Join(err, gate.Close())
	}
	c.guard(d)
	return c, nil
}

// open lets the command begin.
func (c *child) open() { _, _ = c.gate.Write([]byte{'\n'}) } // an error means that it has been killed

// GateCommand is the argument with which this program waits at the gate.
const GateCommand = "lock-gate"

// Gate waits for a byte from the process that has the lock, and then becomes the command: args are the number of a file, and the command.
func Gate(args []string) error {
	if len(args) < 2 {
		return ExitError{ExitUsage, errors.New("this is for lockstep lock only")}
	}
	fd, err := strconv.Atoi(args[0])
	if err != nil {
		return ExitError{ExitUsage, err}
	}
	command := args[1:]
	unix.CloseOnExec(fd)
	runtime.LockOSThread() // until exec
	if err := dieWithParent(); err != nil {
		return ExitError{ExitFailed, err}
	}
	// If the other process has gone before, there is no byte.
	if _, err := os.NewFile(uintptr(fd), "gate").Read(make([]byte, 1)); err != nil {
		return ExitError{ExitFailed, errors.New("whoever has the lock is gone")}
	}
	path, err := exec.LookPath(command[0])
	if err == nil {
		err = &os.PathError{Op: "exec", Path: path, Err: syscall.Exec(path, command, os.Environ())}
	}
	return startError(err)
}

// run starts the command and waits for its end. It keeps its thread: on Linux the kernel kills the command when the thread that has
// started it ends, which is to happen only with this process (dieWithParent).
func (c *child) run(started chan<- error) {
	runtime.LockOSThread()
	err := c.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	for {
		var status syscall.WaitStatus
		// A command that stops by the terminal's Ctrl-Z is reported, too.
		_, err := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err == nil && status.Stopped():
			if c.terminal {
				c.suspend()
			}
		default:
			c.status <- status
			return
		}
	}
}

// suspend stops this process, too, so that the shell gets its terminal back. It returns when the shell lets the process go on. The guard
// is in no job of the shell, and ends the command in time.
func (c *child) suspend() {
	c.takeTerminal(unix.Getpgrp())
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, syscall.SIGCONT)
	defer signal.Stop(goOn)
	_ = syscall.Kill(unix.Getpid(), syscall.SIGSTOP)
	<-goOn // this thread may run on for a moment
	c.takeTerminal(c.cmd.Process.Pid)
	c.signal(syscall.SIGCONT)
}

// takeTerminal puts a process group into the terminal's foreground.
func (c *child) takeTerminal(group int) {
	if c.terminal {
		signal.Ignore(syscall.SIGTTOU) // the command has started, so it does not inherit this
		_ = unix.IoctlSetPointerInt(int(os.Stdin.Fd()), unix.TIOCSPGRP, group)
	}
}

// inForeground reports whether this process has a terminal to itself. Beside a pipe, the terminal belongs to all programs of the pipeline.
func inForeground() bool {
	for _, f := range []*os.File{os.Stdin, os.Stdout} {
		if group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
			return false
		}
	}
	return true
}

func (c *child) signal(sig syscall.Signal) {
	_ = syscall.Kill(-c.cmd.Process.Pid, sig) // an error means that the group is gone, or belongs to another user
}

func (c *child) exited() <-chan syscall.WaitStatus { return c.status }

func (c *child) empty() bool {
	// In a container this process may be the one that inherits orphans.
	for {
		if pid, err := syscall.Wait4(-c.cmd.Process.Pid, nil, syscall.WNOHANG, nil); pid <= 0 && !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	return syscall.Kill(-c.cmd.Process.Pid, 0) != nil
}

func (c *child) guard(d deadlines) { c.guardian.tell(c.cmd.Process.Pid, d) }

// end follows the end of the whole group.
func (c *child) end() {
	_ = c.gate.Close()
	c.takeTerminal(unix.Getpgrp())
	c.guardian.dismiss()
}

// exitCode is the exit code that stands for a status, as in a shell.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

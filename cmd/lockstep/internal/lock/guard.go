package lock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The guard is a second process of this program, in a session of its own. It kills the command's process group when the lease is over, or
// when the process that started it has gone. A process that is stopped (SIGSTOP, a debugger, Ctrl-Z) can end nothing, and one that is
// killed leaves behind what its child has started.
//
// It reads lines from a pipe: the process group, and when it has to end. The pipe ends with the process at its other end.

// GuardCommand is the argument with which this program is a guard.
const GuardCommand = "lock-guard"

// deadlines say when a process group gets SIGTERM and SIGKILL.
type deadlines struct{ term, kill time.Duration }

// guard is the pipe to the guard's process.
type guard struct {
	cmd  *exec.Cmd
	pipe *os.File
}

// guardReady is how long a guard may take to start.
const guardReady = 5 * time.Second

// newGuard starts a guard, and waits until it is one: in its first moments a signal could still end it. If there is a group already, the
// guard has its orders from the beginning.
func newGuard(group int, d deadlines) (*guard, error) {
	program, err := ownProgram()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command(program, GuardCommand)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Dir, cmd.Env = r, "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	ready, err := cmd.StdoutPipe()
	g := &guard{cmd, w}
	if err == nil && group != 0 {
		err = g.write(group, d)
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	late := time.AfterFunc(guardReady, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	if _, err := io.ReadFull(ready, make([]byte, 1)); err != nil {
		return nil, errors.Join(err, w.Close(), cmd.Wait())
	}
	return g, nil
}

// tell sends the deadlines. It never waits: if the guard is stopped and the pipe full, the guard ends the command too early.
func (g *guard) tell(group int, d deadlines) {
	if g.write(group, d) == nil {
		return
	}
	again, err := newGuard(group, d) // somebody has killed it
	if err != nil {
		return // this process ends the command in time, too
	}
	g.dismiss()
	*g = *again
}

func (g *guard) write(group int, d deadlines) error {
	raw, err := g.pipe.SyscallConn()
	if err != nil {
		return err
	}
	line := fmt.Appendf(nil, "%d %d %d\n", group, d.term, d.kill)
	wrong := raw.Write(func(fd uintptr) bool {
		if _, err = unix.Write(int(fd), line); errors.Is(err, unix.EAGAIN) {
			err = nil
		}
		return true
	})
	return errors.Join(err, wrong)
}

// dismiss ends the guard. The group must have ended, because its number may become that of others.
func (g *guard) dismiss() {
	_ = g.write(0, deadlines{})
	_ = g.pipe.Close()
	// A guard that is stopped cannot end by itself.
	_ = g.cmd.Process.Signal(syscall.SIGCONT)
	_ = g.cmd.Wait()
}

// Guard is the guard's own process. It ends when it is dismissed, and otherwise not before it has killed the group.
func Guard(in, out *os.File) error {
	// What ends this process's parent, such as a service manager that sends SIGTERM to all processes, must not end the guard first.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	timer, err := newGuardTimer()
	if err != nil {
		return err
	}
	if _, err := out.Write([]byte{'\n'}); err != nil {
		return err
	}
	w := &watch{d: deadlines{never, never}, send: func(group int, sig syscall.Signal) { _ = syscall.Kill(-group, sig) }}
	line := make([]byte, 64<<10) // as much as a pipe holds
	for {
		readable, err := timer.wait(int(in.Fd()), w.next())
		if err != nil {
			return err
		}
		// Whatever has come since counts, before the clock does: this process may have been stopped as well.
		if readable {
			n, err := unix.Read(int(in.Fd()), line)
			switch {
			case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN):
			case err != nil || n == 0:
				w.orphaned()
				return nil
			case !w.told(line[:n]):
				return nil
			}
		}
		w.look(System{}.Now())
	}
}

// watch is what the guard knows.
type watch struct {
	group  int // 0: there is none yet
	d      deadlines
	termed bool
	killed bool
	send   func(group int, sig syscall.Signal)
}

// told takes lines, of which the last one counts, and reports whether the guard is still needed.
func (w *watch) told(lines []byte) bool {
	lines = bytes.TrimSuffix(lines, []byte("\n"))
	last := lines[bytes.LastIndexByte(lines, '\n')+1:]
	group, d := 0, deadlines{}
	if n, err := fmt.Sscan(string(last), &group, (*int64)(&d.term), (*int64)(&d.kill)); n != 3 || err != nil && err != io.EOF || group < 0 {
		return true
	}
	w.group, w.d = group, d
	return group != 0
}

// next returns when the guard has to look at the clock.
func (w *watch) next() time.Duration {
	switch {
	case w.killed:
		return never
	case w.termed:
		return w.d.kill
	}
	return min(w.d.term, w.d.kill)
}

// look does what is due. Another signal than SIGKILL may not reach a group that is stopped, so it is told to go on.
func (w *watch) look(now time.Duration) {
	switch {
	case w.group == 0 || w.killed:
	case now >= w.d.kill:
		w.killed = true
		w.send(w.group, syscall.SIGKILL)
	case now >= w.d.term && !w.termed:
		w.termed = true
		w.send(w.group, syscall.SIGTERM)
		w.send(w.group, syscall.SIGCONT)
	}
}

// orphaned kills the group: whoever renews the lock is gone.
func (w *watch) orphaned() {
	if w.group != 0 {
		w.send(w.group, syscall.SIGKILL)
	}
}

// poll waits until one of the files is readable.
func poll(files []unix.PollFd, wait time.Duration) (first bool, err error) {
	ms := -1
	if wait < never {
		ms = int(min(max(wait.Milliseconds()+1, 0), math.MaxInt32))
	}
	if _, err := unix.Poll(files, ms); err != nil && !errors.Is(err, unix.EINTR) {
		return false, os.NewSyscallError("poll", err)
	}
	return files[0].Revents != 0, nil
}

package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Config says what to run, and under which lock.
type Config struct {
	Name    string
	Command []string
	TTL     time.Duration
	Wait    time.Duration // how long to wait for the lock; a negative time has no end
	Permits int           // how many owners may have the lock at once; 0: one, and nobody beside it
	OncePer time.Duration // how long the lock is kept after a success, from the command's start; 0: it is released
	Addrs   []string
	Timeout time.Duration // how long to look for a server that answers
	Dial    Dial
	Clock   Clock
	Say     func(format string, args ...any)
}

// These are the exit codes besides those of the command. 124 to 127 are those of timeout(1) and env(1), the others those of sysexits.h.
const (
	ExitUsage       = 64  // the command line is wrong
	ExitUnreachable = 69  // no server answers
	ExitTaken       = 75  // another owner has the lock
	ExitRefused     = 76  // a server refuses, for example because the password is wrong
	ExitLost        = 124 // the lock was lost, or nearly lost, and the command was ended
	ExitFailed      = 125 // this program itself failed
	ExitNotRun      = 126 // the command cannot be run
	ExitNotFound    = 127 // the command cannot be found
)

// These variables tell the command which lock it has.
const (
	EnvName  = "LOCKSTEP_LOCK"
	EnvOwner = "LOCKSTEP_OWNER"
	EnvToken = "LOCKSTEP_TOKEN"
)

// ExitError is an end with an exit code. Without an error inside there is nothing to say.
type ExitError struct {
	Code int
	Err  error
}

func (e ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e ExitError) Unwrap() error { return e.Err }

// Run takes the lock, runs the command and ends the lock. Its error is nil or an ExitError.
func Run(c Config) error {
	if _, err := exec.LookPath(c.Command[0]); err != nil {
		return startError(err) // nobody has to wait for a lock for this
	}
	r := &remote{servers: servers{dial: c.Dial, addrs: c.Addrs}, clock: c.Clock, name: c.Name, ttl: c.TTL, permits: c.Permits, timeout: c.Timeout}
	signals := make(chan os.Signal, 16)
	catch(signals, ending)
	// The command is to die of a reader that has gone, and not this process, which writes messages only.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	g, err := c.acquire(r, signals)
	if err != nil {
		return err
	}
	return c.hold(r, g, signals)
}

// acquire takes the lock, unless a signal ends that.
func (c *Config) acquire(r *remote, signals <-chan os.Signal) (grant, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type result struct {
		grant
		err error
	}
	done := make(chan result, 1)
	go func() {
		g, err := r.acquire(ctx, c.Wait)
		done <- result{g, err}
	}()
	var got result
	select {
	case got = <-done:
	case sig := <-signals:
		cancel()
		got = <-done
		if got.err == nil {
			_ = r.release(context.Background(), r.patience())
		}
		return grant{}, ExitError{128 + int(sig.(syscall.Signal)), fmt.Errorf("%v: %s is not waited for any more", sig, c.Name)}
	}
	switch err := got.err; {
	case err == nil:
		return got.grant, nil
	case errors.Is(err, errTaken) && c.OncePer > 0:
		return grant{}, ExitError{Code: ExitTaken} // as it should be on all hosts but one: cron need not send mail about it
	case errors.Is(err, errTaken):
		return grant{}, ExitError{ExitTaken, fmt.Errorf("%s: %w", c.Name, err)}
	case refused(err):
		return grant{}, ExitError{ExitRefused, fmt.Errorf("%s: %w", c.Name, err)}
	default:
		return grant{}, ExitError{ExitUnreachable, fmt.Errorf("%s: %w", c.Name, err)}
	}
}

// hold runs the command under the lock, and ends the lock.
func (c *Config) hold(r *remote, g grant, signals chan os.Signal) error {
	k := &keeper{clock: c.Clock, remote: r, timeout: c.Timeout, say: c.Say, lease: g.lease}
	started := c.Clock.Now()
	job, err := start(c.Command, environment(os.Environ(), c.Name, g), k.deadlines())
	if err != nil {
		c.release(r, g.lease)
		return startError(err)
	}
	catch(signals, passed)
	if c.Clock.Now() < k.lease.termAt() {
		job.open()
	}
	k.job = job
	status, err := k.keep(signals)
	job.end()
	code := exitCode(status)
	switch {
	case k.gone:
	case c.OncePer > 0 && code == 0 && !k.lost && err == nil:
		c.keepUntil(r, k.lease, started+c.OncePer)
	default:
		c.release(r, k.lease)
	}
	switch {
	case err != nil:
		return ExitError{ExitFailed, err}
	case k.lost:
		return ExitError{ExitLost, fmt.Errorf("%s: the lock was lost, so the command was ended: its exit code would be %d", c.Name, code)}
	case code != 0:
		return ExitError{Code: code}
	}
	return nil
}

// release gives the lock back. If no server answers, the lock ends with its lease.
func (c *Config) release(r *remote, l lease) {
	if err := c.last(l, r, func(within time.Duration) error { return r.release(context.Background(), within) }); err != nil {
		c.Say("the lock could not be released; it ends by itself: %v", err)
	}
}

// keepUntil lets the lock end at a time, without this process.
func (c *Config) keepUntil(r *remote, l lease, end time.Duration) {
	rest := end - c.Clock.Now()
	if rest < time.Millisecond {
		c.release(r, l)
		return
	}
	err := c.last(l, r, func(within time.Duration) error {
		n, err := r.renew(context.Background(), max(end-c.Clock.Now(), time.Millisecond), within)
		if err == nil && n == 0 {
			return errors.New("it is not ours any more")
		}
		return err
	})
	if err != nil {
		c.Say("the lock could not be kept for the rest of the period, so the command may run once more in it: %v", err)
	}
}

// last tries something with the lock until a server has answered, or until the lease is over.
func (c *Config) last(l lease, r *remote, try func(within time.Duration) error) error {
	until := min(l.end(), c.Clock.Now()+c.Timeout)
	for {
		err := try(l.attempt(r.patience()))
		if err == nil || refused(err) || c.Clock.Now()+l.pause() >= until {
			return err
		}
		time.Sleep(l.pause())
	}
}

// startError is the end for a command that cannot be started.
func startError(err error) error {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return ExitError{ExitNotFound, err}
	case errors.As(err, new(*exec.Error)), errors.As(err, new(*os.PathError)):
		return ExitError{ExitNotRun, err}
	}
	return ExitError{ExitFailed, err}
}

// environment is the command's: this process's, and which lock it has. This process may run under another lock, so older ones go.
func environment(own []string, name string, g grant) []string {
	var env []string
	for _, v := range own {
		if key, _, _ := strings.Cut(v, "="); key != EnvName && key != EnvOwner && key != EnvToken {
			env = append(env, v)
		}
	}
	env = append(env, EnvName+"="+name, EnvOwner+"="+g.owner)
	if g.token != "" {
		env = append(env, EnvToken+"="+g.token)
	}
	return env
}

var (
	// ending are the signals that end the wait for the lock.
	ending = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}
	// passed are the others that are passed on to the command.
	passed = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT}
)

// catch lets signals come through a channel, except those that were ignored before, as under nohup: the command is to ignore them, too.
func catch(c chan<- os.Signal, list []os.Signal) {
	for _, sig := range list {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/lock"
	"github.com/lockstep-io/lockstep/conformance/environ"
	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// jobVariable makes the test's own program the job of TestHosts: it names the directory in which the job works.
const jobVariable = "LOCK_JOB"

// longJob, if it is set, lets the job take longer than a lease.
const longJob = "LOCK_LONG_JOB"

// hostLease is the lease of the job. A tenth of it must be longer than a process of a busy machine waits for a processor.
const (
	hostLease   = 2 * time.Second
	beyondLease = hostLease + 500*time.Millisecond
)

// job is what two hosts run under one lock. The kernel says whether two run at once: it ends the lock of a file with its process.
func job(dir string) int {
	f, err := os.OpenFile(filepath.Join(dir, "one"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return 41
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		note, err := os.OpenFile(filepath.Join(dir, "both"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err == nil {
			fmt.Fprintf(note, "%s has it, too\n", os.Getenv(lock.EnvOwner))
			err = note.Close()
		}
		if err != nil {
			return 41
		}
		return 42
	}
	fmt.Fprintf(f, "%s %s\n", os.Getenv(lock.EnvOwner), os.Getenv(lock.EnvToken))
	if os.Getenv(longJob) != "" {
		time.Sleep(beyondLease)
	}
	time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
	return 0
}

// contest lets two hosts run the same job at once, again and again.
type contest struct {
	t     *testing.T
	dir   string
	addrs string
	start [2]func(*exec.Cmd) error // how a process is started on each host
	// disturb, unless nil, makes a fault while a job runs. holder is its `lockstep lock`.
	disturb func(rng *rand.Rand, holder *os.Process)

	mu    sync.Mutex
	codes map[int]int // how often each exit code came
	other string      // what was said with an exit code that may not come
}

// faults are the exit codes that may come if servers or processes fail.
var faults = map[int]bool{lock.ExitUnreachable: true, lock.ExitTaken: true, lock.ExitLost: true}

func (c *contest) play(rounds int, seed uint64) {
	c.t.Helper()
	c.codes = map[int]int{}
	rng := rand.New(rand.NewPCG(seed, 1))
	for round := range rounds {
		disturbed := c.disturb != nil && round%3 == 0
		before := c.jobs()
		var ends sync.WaitGroup
		var list []*exec.Cmd
		for host := range c.start {
			cmd := exec.Command(nodes.Binary(c.t), "lock", "--addr", c.addrs, "--ttl", hostLease.String(), "--timeout", "3s", "--wait", "10s", "job", "--", os.Args[0])
			cmd.Env = append(environ.Environ(), jobVariable+"="+c.dir)
			if disturbed {
				cmd.Env = append(cmd.Env, longJob+"=1")
			}
			var out bytes.Buffer
			cmd.Stderr = &out
			if err := c.start[host](cmd); err != nil {
				c.t.Fatal(err)
			}
			list = append(list, cmd)
			ends.Go(func() {
				_ = cmd.Wait() // how it ended is in ProcessState
				code := cmd.ProcessState.ExitCode()
				c.mu.Lock()
				defer c.mu.Unlock()
				c.codes[code]++
				if code != 0 && (c.disturb == nil || !faults[code]) {
					c.other = fmt.Sprintf("exit code %d: %s", code, out.String())
				}
			})
		}
		if disturbed {
			c.disturb(rng, c.holder(before, list))
		}
		ends.Wait()
	}
	c.judge(rounds)
}

// jobs returns what the jobs have written: a line each, with the owner of the lock and its token.
func (c *contest) jobs() []string {
	text, err := os.ReadFile(filepath.Join(c.dir, "one"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Error(err)
	}
	return slices.Collect(strings.Lines(string(text)))
}

// holder waits until another job runs, and returns its `lockstep lock`, whose process id is in the owner's name.
func (c *contest) holder(before []string, list []*exec.Cmd) *os.Process {
	c.t.Helper()
	var lines []string
	until(c.t, "a job", func() bool { lines = c.jobs(); return len(lines) > len(before) })
	for _, cmd := range list {
		if strings.Contains(lines[len(before)], fmt.Sprintf(":%d:", cmd.Process.Pid)) {
			return cmd.Process
		}
	}
	c.t.Fatalf("whose is %q?", lines[len(before)])
	return nil
}

// judge checks that no two jobs ran at once, and that tokens, if there are any, rise.
func (c *contest) judge(rounds int) {
	c.t.Helper()
	if both, err := os.ReadFile(filepath.Join(c.dir, "both")); err == nil {
		c.t.Errorf("two jobs ran at once:\n%s", both)
	}
	if c.other != "" {
		c.t.Error(c.other)
	}
	last, jobs := 0, c.jobs()
	for _, line := range jobs {
		if words := strings.Fields(line); len(words) == 2 {
			token, err := strconv.Atoi(words[1])
			if err != nil || token <= last {
				c.t.Errorf("%q after token %d", line, last)
			}
			last = token
		}
	}
	c.t.Logf("%d rounds: %d jobs ran; exit codes and how often each came: %v", rounds, len(jobs), c.codes)
	if c.disturb == nil && len(jobs) != 2*rounds || len(jobs) < rounds {
		c.t.Errorf("%d jobs ran in %d rounds", len(jobs), rounds)
	}
}

// stopHolder stops a process for longer than its lease.
func stopHolder(_ *rand.Rand, holder *os.Process) {
	_ = holder.Signal(syscall.SIGSTOP) // an error means that it has ended
	time.Sleep(beyondLease)
	_ = holder.Signal(syscall.SIGCONT)
}

// TestHosts: two hosts that run the same job at once never run it together, also if `lockstep lock` is stopped for longer than its lease.
// TestHostsInTwoNetworks (`make hosts`) does it a thousand times, in networks of their own that fail.
func TestHosts(t *testing.T) {
	lockServers(t, func(t *testing.T, addr string, _ bool) {
		local := (*exec.Cmd).Start
		for name, disturb := range map[string]func(*rand.Rand, *os.Process){"undisturbed": nil, "stopped": stopHolder} {
			t.Run(name, func(t *testing.T) {
				c := contest{t: t, dir: t.TempDir(), addrs: addr, start: [2]func(*exec.Cmd) error{local, local}, disturb: disturb}
				c.play(6, rand.Uint64())
			})
		}
	})
}

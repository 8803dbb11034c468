package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/lock"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/show"
	"github.com/lockstep-io/lockstep/server/respclient"
	"github.com/lockstep-io/lockstep/store"
)

// lockOptions are the flags of `lockstep lock`, besides those of all commands that talk to a node.
type lockOptions struct {
	wait, ttl, oncePer time.Duration
	try                bool
	permits            int
}

func (o *lockOptions) define(fs *flag.FlagSet) {
	fs.DurationVar(&o.wait, "wait", 0, "how long to wait for the lock; 0s: as --try (default: without end; with --once-per: not at all)")
	fs.BoolVar(&o.try, "try", false, "do not wait for the lock")
	fs.DurationVar(&o.ttl, "ttl", 30*time.Second, "how long the lock stays if this machine is gone; COMMAND gets SIGTERM after two thirds without a renewal, SIGKILL after nine tenths")
	fs.IntVar(&o.permits, "permits", 0, "`number` of owners that may hold the lock at once, the same for all of them; not on a Redis (default: one, which excludes all others)")
	fs.DurationVar(&o.oncePer, "once-per", 0, "after a success keep the lock until so long after COMMAND's start, so that no other host runs it in that time; after a failure release it (default: release it)")
}

const lockHelp = `
COMMAND runs in a process group of its own, gets the signals that lockstep lock
gets, and finds LOCKSTEP_LOCK, LOCKSTEP_OWNER and, unless the server is a Redis,
LOCKSTEP_TOKEN (docs/fencing.md) in its environment.

Exit codes: that of COMMAND, 128 + n if signal n ended it, and
   64  wrong usage
   69  no server answers (--timeout)
   75  another owner has the lock (--wait, --try, --once-per)
   76  a server refuses, for example the password
  124  the lock was lost or could not be renewed: COMMAND was ended
  125  lockstep itself failed
  126  COMMAND cannot be run
  127  COMMAND is not found
`

// leastTTL leaves COMMAND a quarter of a second to end in.
const leastTTL = time.Second

// runLocked runs a command under a lock.
func runLocked(args []string, stdout, stderr io.Writer) error {
	c, err := lockConfig(args, stdout)
	var usage usageError
	if errors.As(err, &usage) {
		return lock.ExitError{Code: lock.ExitUsage, Err: fmt.Errorf("lock: %w\nSee `lockstep help lock`", err)}
	}
	if err != nil {
		return err
	}
	c.Clock = lock.System{}
	c.Say = func(format string, args ...any) {
		fmt.Fprintf(stderr, "lockstep: %s: %s\n", show.Visible(c.Name), show.Visible(fmt.Sprintf(format, args...)))
	}
	return lock.Run(c)
}

// lockConfig parses the command line: flags and a name, and after "--" the command.
func lockConfig(args []string, stdout io.Writer) (c lock.Config, err error) {
	var o lockOptions
	var admin adminOptions
	fs := flag.NewFlagSet("lock", flag.ContinueOnError)
	admin.define(fs)
	o.define(fs)
	at := slices.Index(args, "--")
	own := args
	if at >= 0 {
		own, c.Command = args[:at], args[at+1:]
	}
	rest, err := parseMixed(fs, own, stdout)
	if err != nil {
		return c, err
	}
	if len(rest) != 1 || rest[0] == "" || len(c.Command) == 0 || c.Command[0] == "" {
		return c, usageError{errors.New("want NAME -- COMMAND, such as: lockstep lock --wait 10s nightly-backup -- /usr/local/bin/backup --full")}
	}
	c.Name, c.TTL, c.OncePer, c.Permits, c.Timeout = rest[0], o.ttl, o.oncePer, o.permits, admin.timeout
	waits := false
	fs.Visit(func(f *flag.Flag) { waits = waits || f.Name == "wait" })
	if c.Wait = o.wait; !waits && !o.try && o.oncePer == 0 {
		c.Wait = -1
	}
	if c.Addrs, err = lockAddrs(admin); err != nil {
		return c, err
	}
	c.Dial = func(addr string, within time.Duration) (*respclient.Conn, error) {
		to := admin
		to.addr, to.timeout = addr, within
		return dialNode(to)
	}
	return c, o.validate(c.Name, waits, admin.timeout)
}

// lockAddrs returns the addresses of --addr, and checks what depends on them.
func lockAddrs(admin adminOptions) (addrs []string, err error) {
	for addr := range strings.SplitSeq(admin.addr, ",") {
		admin.addr = strings.TrimSpace(addr)
		if err := admin.checkAddr(); err != nil {
			return nil, err
		}
		if _, err := admin.tlsConfig(); err != nil {
			return nil, usageError{err} // no server will do with a file that cannot be read
		}
		addrs = append(addrs, admin.addr)
	}
	return addrs, nil
}

func (o *lockOptions) validate(name string, waits bool, timeout time.Duration) error {
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(len(name) > store.MaxLockName, "the name has %d bytes: use one of at most %d", len(name), store.MaxLockName)
	fault(o.try && waits && o.wait > 0, "--try and --wait exclude each other: leave one out")
	fault(o.wait < 0, "--wait %v: want a time from 0s on; leave it out to wait without end", o.wait)
	fault(o.ttl < leastTTL, "--ttl %v: want %v or more", o.ttl, leastTTL)
	fault(o.permits < 0, "--permits %d: want a number from 1 on", o.permits)
	fault(o.oncePer != 0 && o.oncePer < leastTTL, "--once-per %v: want %v or more", o.oncePer, leastTTL)
	fault(timeout <= 0, "--timeout must be more than 0, such as 10s")
	if len(faults) > 0 {
		return usageError{errors.Join(faults...)}
	}
	return nil
}

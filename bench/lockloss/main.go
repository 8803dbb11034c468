// Lockloss counts the locks that each system loses when a server fails. The same client code takes locks from Redis with Sentinel,
// from Redlock and from lockstep.
//
//	make lockloss
//	cd bench/lockloss && go run . -lockstep ../../lockstep -rounds 20
//
// It starts and ends the servers itself, in a directory of its own. It prints a table and, with -json, everything that it has
// measured. docs/lock-loss.md says what is measured, and what that means. This program is in the module of bench, because its
// client is a library that lockstep does not need.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "lockloss:", err)
		os.Exit(1)
	}
}

// options are the flags of the command line.
type options struct {
	plan
	systems, faults, json string
	base                  int
	netns, keep           bool
}

func (o *options) define(fs *flag.FlagSet) {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	fs.StringVar(&o.lockstep, "lockstep", "../../lockstep", "the lockstep `program`")
	fs.StringVar(&o.systems, "systems", strings.Join(names, ","), "which systems")
	fs.StringVar(&o.plan.dir, "dir", "", "`directory` for the servers' data (default: a temporary one)")
	fs.StringVar(&o.faults, "faults", faultKill, "kill, pause, cut; several take turns. cut needs -netns")
	fs.IntVar(&o.rounds, "rounds", 20, "faults for each system")
	fs.IntVar(&o.Clients, "clients", 50, "clients")
	fs.IntVar(&o.Locks, "locks", 20000, "locks that they contend for")
	fs.DurationVar(&o.Lease, "lease", 10*time.Second, "lease")
	fs.DurationVar(&o.MinHold, "min-hold", 500*time.Millisecond, "an owner holds a lock at least so long")
	fs.DurationVar(&o.MaxHold, "max-hold", 6*time.Second, "and at most so long")
	fs.IntVar(&o.base, "port", 21000, "first port")
	fs.BoolVar(&o.netns, "netns", false, "each host in a network namespace of its own (needs root)")
	fs.BoolVar(&o.keep, "keep", false, "leave data and logs of the servers")
	fs.StringVar(&o.json, "json", "", "write the results to this `file`, too")
}

func run(args []string, w io.Writer) (err error) {
	var o options
	fs := flag.NewFlagSet("lockloss", flag.ExitOnError)
	o.define(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	chosen, err := o.choose()
	if err != nil {
		return err
	}
	// Without this call, go-redis would log each lost connection. The counts already include these.
	logging.Disable()
	o.plan.site = loopback{o.base}
	if o.netns {
		n, err := newNamespaces(o.base, os.Getpid()%100000)
		if err != nil {
			return err
		}
		o.plan.site = n
	}
	defer func() { err = errors.Join(err, o.plan.site.close()) }()
	if o.plan.dir == "" {
		if o.plan.dir, err = os.MkdirTemp("", "lockloss"); err != nil {
			return err
		}
		if !o.keep {
			defer os.RemoveAll(o.plan.dir)
		}
	}
	var results []result
	for _, k := range chosen {
		r, err := o.plan.run(k)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		results = append(results, r)
	}
	if o.json != "" {
		if err := o.writeJSON(results); err != nil {
			return err
		}
	}
	return printTable(w, results)
}

// choose checks the flags and returns the systems.
func (o *options) choose() (chosen []kind, err error) {
	for _, name := range strings.Split(o.systems, ",") {
		i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-systems: there is no %q", name)
		}
		chosen = append(chosen, kinds[i])
	}
	o.plan.faults = strings.Split(o.faults, ",")
	for _, f := range o.plan.faults {
		if !slices.Contains(everyFault, f) {
			return nil, fmt.Errorf("-faults: there is no %q", f)
		}
		if f == faultCut && !o.netns {
			return nil, errLoopback
		}
	}
	if o.MinHold <= 0 || o.MaxHold < o.MinHold || o.Lease <= o.MaxHold || o.Clients < 2 || o.Locks < 1 || o.rounds < 1 {
		return nil, errors.New("want 0 < min-hold <= max-hold < lease, two clients, a lock and a round")
	}
	if o.lockstep, err = filepath.Abs(o.lockstep); err != nil { // servers run in their own directories
		return nil, err
	}
	for _, program := range []string{o.lockstep, "redis-server", "redis-sentinel"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%w: `make build` makes lockstep; Redis is in the packages redis-server and redis-sentinel", err)
		}
	}
	return chosen, nil
}

func (o *options) writeJSON(results []result) error {
	b, err := json.MarshalIndent(map[string]any{"load": o.load, "faults": o.plan.faults, "netns": o.netns, "results": results}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.json, append(b, '\n'), 0o600)
}

// printTable prints a line for each system. Below the table it explains what each system is.
func printTable(w io.Writer, results []result) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "system\tfaults\tgranted\tlost\theld twice\tnot checked\terrors\twithout service p50/max ms")
	for _, r := range results {
		failures, total := 0, 0
		for _, n := range r.Errors {
			failures += n
		}
		var gaps []string
		for _, f := range everyFault {
			if g, ok := r.WithoutService[f]; ok {
				total += r.Faults[f]
				gaps = append(gaps, fmt.Sprintf("%s %d/%d", f, g.Median, g.Max))
			}
		}
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", r.System, total, r.Granted, r.Lost, r.HeldTwice, r.NotChecked,
			failures, strings.Join(gaps, ", "))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		fmt.Fprintf(w, "%s: %s\n", r.System, r.About)
		if r.Equal != nil {
			fmt.Fprintf(w, "  states of the three nodes equal at the end: %v\n", *r.Equal)
		}
	}
	return nil
}

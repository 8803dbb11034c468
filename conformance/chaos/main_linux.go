package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

type options struct {
	total    time.Duration
	seed     uint64
	binary   string
	nodes    int
	out      string
	only     string
	busy     time.Duration
	first    int
	logStore string

	leaseReads bool
}

func main() {
	var o options
	flag.DurationVar(&o.total, "for", time.Minute, "how long to go on")
	flag.Uint64Var(&o.seed, "seed", 0, "what decides which faults come when; 0 chooses one")
	flag.StringVar(&o.binary, "lockstep", "", "`program` to test, its clocks left alone (default: a test build of this tree)")
	flag.IntVar(&o.nodes, "nodes", 3, "size of the cluster")
	flag.StringVar(&o.out, "out", "", "`directory` for data and histories (default: a temporary one)")
	flag.StringVar(&o.only, "only", "", "`names` of faults or areas, separated by commas; all others are left out")
	flag.DurationVar(&o.busy, "busy", 10*time.Second, "how long faults go on in each epoch")
	flag.IntVar(&o.first, "epoch", 0, "the first epoch: it decides with the seed what happens")
	flag.StringVar(&o.logStore, "log-store", "wal", "`wal|bolt`: how the nodes keep their logs")
	flag.BoolVar(&o.leaseReads, "lease-reads", false, "start the nodes with --lease-reads")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "chaos: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	if err := chaos(o); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func chaos(o options) (err error) {
	if o.seed == 0 {
		o.seed = rand.Uint64N(1e6) + 1
	}
	if o.out == "" {
		if o.out, err = os.MkdirTemp("", "lockstep-chaos-"); err != nil {
			return err
		}
	} else if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	s := &suite{seed: o.seed, dir: o.out, out: os.Stdout, busy: o.busy}
	clocks := o.binary == ""
	if clocks {
		if o.binary, err = build(o.out, testEdits()); err != nil {
			return err
		}
	} else if o.binary, err = filepath.Abs(o.binary); err != nil {
		return err
	}
	if s.f, err = newFleet(fleetConfig{nodes: o.nodes, binary: o.binary, dir: o.out, seed: o.seed, flags: []string{"--log-store", o.logStore, fmt.Sprintf("--lease-reads=%t", o.leaseReads)}}); err != nil {
		return err
	}
	if s.f.noDisks != nil {
		fmt.Printf("without faults of disks: %v\n", s.f.noDisks)
	}
	if s.kinds, err = chosen(allFaults(), o.only, clocks, s.f.noDisks == nil); err != nil {
		return errors.Join(err, s.f.close())
	}
	fmt.Printf("seed %d, %d nodes, data in %s\n", o.seed, o.nodes, o.out)
	err = s.run(o.total, o.first)
	s.summary()
	if e := s.f.close(); e != nil {
		err = errors.Join(err, e)
	}
	if len(s.failures) > 0 {
		err = errors.Join(err, fmt.Errorf("%d failures; histories, logs and faults are in %s", len(s.failures), o.out))
	}
	if err != nil {
		return err
	}
	return s.clean()
}

// chosen returns the faults that "only" lists by name or area (empty: all). Without clocks or disks, it leaves out their faults.
func chosen(all []*fault, only string, clocks, disks bool) ([]*fault, error) {
	names := strings.Split(only, ",")
	used := map[string]bool{"": true}
	list := slices.DeleteFunc(all, func(f *fault) bool {
		byName, byArea := slices.Contains(names, f.name), slices.Contains(names, f.area)
		used[f.name], used[f.area] = true, true
		return only != "" && !byName && !byArea || f.area == "clock" && !clocks || f.area == "disk" && !disks
	})
	for _, name := range names {
		if !used[name] {
			return nil, fmt.Errorf("-only: there is no fault and no area %q", name)
		}
	}
	return list, nil
}

package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// suite is a run of many epochs on one cluster, one after another.
type suite struct {
	f      *fleet
	seed   uint64
	dir    string
	out    io.Writer
	begun  time.Time
	kinds  []*fault
	audits audits
	busy   time.Duration // how long the faults of an epoch go on

	mu       sync.Mutex
	ops      map[string]int
	faults   map[string]int
	failures []string
	epochs   int
}

// errUnhealed says that a cluster did not come back. The run then ends, because every later epoch would fail, too.
var errUnhealed = errors.New("the cluster did not come back")

// failureLimit is how many failures end a run: more of them would tell little that is new.
const failureLimit = 20

// now returns the time that histories use: nanoseconds since the run began.
func (s *suite) now() int64 { return int64(time.Since(s.begun)) }

// run runs one epoch after the other until the time is over. It judges an epoch while the next one
// runs.
func (s *suite) run(total time.Duration, first int) error {
	s.begun, s.ops, s.faults = time.Now(), map[string]int{}, map[string]int{}
	if err := s.f.startAll(); err != nil {
		return err
	}
	if err := s.f.waitReady(readyLimit); err != nil {
		return err
	}
	judged := make(chan error, 1)
	judged <- nil
	var fault error
	for n := first; fault == nil && (n == first || time.Since(s.begun) < total); n++ {
		e, err := s.runEpoch(n)
		if e == nil {
			fault = err
			break
		}
		fault = errors.Join(<-judged, err)
		go func() {
			err := e.judge()
			s.report(e)
			judged <- err
		}()
		if s.failed() >= failureLimit {
			fault = fmt.Errorf("%d failures", s.failed())
		}
	}
	if fault = errors.Join(fault, <-judged); fault != nil || s.failed() > 0 {
		return fault
	}
	return s.checkAudits()
}

func (s *suite) failed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.failures)
}

// report prints a line for an epoch, and more if something was wrong.
func (s *suite) report(e *epoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epochs++
	for name, n := range e.ops {
		s.ops[name] += n
	}
	fmt.Fprintf(s.out, "%7.0fs  epoch %d: %d operations, %d of unknown outcome, %d refused; %d failures\n", time.Since(s.begun).Seconds(), e.n,
		e.ops["known"]+e.ops["unknown"], e.ops["unknown"], e.ops["refused"], len(e.failures))
	for _, line := range e.failures {
		fmt.Fprintln(s.out, "FAILED", line)
	}
	s.failures = append(s.failures, e.failures...)
}

// summary says what was checked.
func (s *suite) summary() {
	carried, dropped := s.f.net.Packets()
	fmt.Fprintf(s.out, "seed %d: %d epochs in %v, %d failures\n", s.seed, s.epochs, time.Since(s.begun).Round(time.Second), len(s.failures))
	fmt.Fprintf(s.out, "operations checked: %d with a reply, %d of unknown outcome; not executed and so not in the histories: %d refused, %d aborted, %d unsent\n",
		s.ops["known"], s.ops["unknown"], s.ops["refused"], s.ops["aborted"], s.ops["unsent"])
	var parts []string
	for _, kind := range []string{"lock", "hash", "register", "counter", "list", "queue", "message"} {
		parts = append(parts, fmt.Sprintf("%s %d", kind, s.ops[kind]))
	}
	fmt.Fprintf(s.out, "by kind: %s\n", strings.Join(parts, ", "))
	parts = nil
	for _, name := range slices.Sorted(maps.Keys(s.faults)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, s.faults[name]))
	}
	fmt.Fprintf(s.out, "faults: %s\npackets: %d carried, %d lost\n", strings.Join(parts, ", "), carried, dropped)
}

// clean removes the nodes' disks. It removes all other files only if the run had no failures.
func (s *suite) clean() error {
	var faults []error
	for _, n := range s.f.nodes {
		faults = append(faults, os.RemoveAll(n.diskPath()), os.RemoveAll(n.diskPath()+".img"))
	}
	if len(s.failures) == 0 {
		faults = append(faults, os.RemoveAll(s.dir))
	}
	return errors.Join(faults...)
}

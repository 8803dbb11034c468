package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// plan says what happens to each system.
type plan struct {
	load
	lockstep string // path of the lockstep program
	faults   []string
	rounds   int
	site     site
	dir      string
}

// result is what a run has shown about a system.
type result struct {
	System string         `json:"system"`
	About  string         `json:"about"`
	Faults map[string]int `json:"faults"`
	counts
	Refused int            `json:"refused"`
	Errors  map[string]int `json:"errors,omitempty"`
	Seconds float64        `json:"seconds"`
	// WithoutService says for each kind of fault how long no client got a lock after such a fault, in ms.
	WithoutService map[string]gap `json:"without_service_ms"`
	Equal          *bool          `json:"states_equal,omitempty"`
}

type gap struct {
	Median int64 `json:"p50"`
	Max    int64 `json:"max"`
}

// struck is a fault that was carried out.
type struck struct {
	fault string
	at    time.Duration
}

// run carries out the plan on one system.
func (p plan) run(k kind) (r result, err error) {
	f := &farm{site: p.site, dir: filepath.Join(p.dir, k.name)}
	s, err := k.make(f, p.lockstep)
	if err != nil {
		return r, err
	}
	defer func() {
		if stopErr := s.stop(); err == nil {
			err = stopErr
		}
	}()
	if err := s.start(); err != nil {
		return r, err
	}
	if err := eventually(readyTimeout, s.whole); err != nil {
		return r, errors.Join(err, s.fallen())
	}
	h := startHerd(p.load, s.open)
	done, strikeErr := p.strikeAll(s, k, h)
	history, refused, failures, err := h.stop()
	end := time.Since(h.since)
	if strikeErr != nil {
		return r, strikeErr
	}
	if err != nil {
		return r, err
	}
	r = result{System: k.name, About: k.about, counts: count(history), Refused: refused, Errors: failures, Seconds: end.Seconds()}
	r.summarize(history, done, end)
	if l, ok := s.(*lockstep); ok {
		err := eventually(10*time.Second, l.equal)
		equal := err == nil
		r.Equal = &equal
	}
	return r, nil
}

// strikeAll carries out the faults that can happen to the system, one after the other. After each fault, it waits until the system
// is whole again.
func (p plan) strikeAll(s system, k kind, h *herd) (done []struck, err error) {
	faults := slices.DeleteFunc(slices.Clone(p.faults), func(f string) bool { return !slices.Contains(k.faults, f) })
	time.Sleep(k.settle)
	for round := 0; round < p.rounds && len(faults) > 0; round++ {
		fault := faults[round%len(faults)]
		target, err := s.target(round)
		if err != nil {
			return done, fmt.Errorf("round %d: %w", round+1, err)
		}
		done = append(done, struck{fault, time.Since(h.since)})
		if err := p.strike(target, fault, k.down); err != nil {
			return done, fmt.Errorf("round %d: %s: %w", round+1, fault, err)
		}
		if err := eventually(readyTimeout, s.whole); err != nil {
			return done, fmt.Errorf("round %d: not whole %v after a %s: %w", round+1, readyTimeout, fault, errors.Join(err, s.fallen()))
		}
		fmt.Fprintf(os.Stderr, "%s: %s %d of %d\n", k.name, fault, round+1, p.rounds)
		time.Sleep(k.settle)
	}
	return done, nil
}

// strike carries out one fault, and undoes it after the duration "down".
func (p plan) strike(target *process, fault string, down time.Duration) error {
	var undo func() error
	switch fault {
	case faultKill:
		if err := target.kill(); err != nil {
			return err
		}
		undo = target.start
	case faultPause:
		if err := target.signal(syscall.SIGSTOP); err != nil {
			return err
		}
		undo = func() error { return target.signal(syscall.SIGCONT) }
	case faultCut:
		if err := p.site.cut(target.host); err != nil {
			return err
		}
		undo = func() error { return p.site.heal(target.host) }
	}
	time.Sleep(down)
	return undo()
}

// summarize counts the faults. For each kind of fault, it computes the median and the maximum of the times without service.
func (r *result) summarize(history []grant, done []struck, end time.Duration) {
	times := make([]time.Duration, len(done))
	for i, d := range done {
		times[i] = d.at
	}
	byFault := map[string][]time.Duration{}
	for i, gap := range withoutService(history, times, end) {
		byFault[done[i].fault] = append(byFault[done[i].fault], gap)
	}
	r.Faults, r.WithoutService = map[string]int{}, map[string]gap{}
	for fault, gaps := range byFault {
		r.Faults[fault] = len(gaps)
		r.WithoutService[fault] = gap{quantile(gaps, 0.5).Milliseconds(), quantile(gaps, 1).Milliseconds()}
	}
}

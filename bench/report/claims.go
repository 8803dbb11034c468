package report

import (
	"fmt"
	"strings"

	"github.com/lockstep-io/lockstep/bench/load"
)

// Claim is a promise of lockstep: in one run, Left is at least (or at most, if AtMost) Want times Right.
type Claim struct {
	Point       int // number in the list of promises
	Left, Right Term
	AtMost      bool
	Want        float64
	disk        disk
}

// Term is a figure of a peer in a case. A term without a peer is a figure of the whole run.
type Term struct {
	Peer string
	Case load.Case
	what *quantity
}

// disk is the kind of disk for which a claim is made.
type disk int

const (
	anyDisk disk = iota
	durable
	inMemory
)

// quantity is a kind of figure that claims compare.
type quantity struct {
	name string
	of   func(*Figure) *float64  // the value for a peer in a case
	once func(r *Report) float64 // the value for a whole run
	show func(v float64) string
}

var (
	opsPerSecond = &quantity{name: "ops/s", of: func(f *Figure) *float64 { return &f.Rate }, show: count}
	p50          = &quantity{name: "p50", of: func(f *Figure) *float64 { return &f.P50 }, show: micros}
	p99          = &quantity{name: "p99", of: func(f *Figure) *float64 { return &f.P99 }, show: micros}
	calmP99      = &quantity{name: "p99 before the leases end", of: func(f *Figure) *float64 { return &f.Calm }, show: micros}
	untilGone    = &quantity{name: "time until all leases are gone", of: func(f *Figure) *float64 { return &f.Gone }, show: micros}
	waitMean     = &quantity{name: "mean of the wait", of: func(f *Figure) *float64 { return &f.Wait }, show: micros}
	waitP99      = &quantity{name: "p99 of the wait", of: func(f *Figure) *float64 { return &f.WaitP99 }, show: micros}
	fairness     = &quantity{name: "fairness", of: func(f *Figure) *float64 { return &f.Fairness }, show: share}
	cpu          = &quantity{name: "CPU of the servers", of: func(f *Figure) *float64 { return &f.ServerCPU }, show: micros}
	memory       = &quantity{name: "memory for a lock", of: func(f *Figure) *float64 { return &f.Memory },
		show: func(v float64) string { return count(v) + " bytes" }}
	fdatasync = &quantity{name: "fdatasync p50", once: func(r *Report) float64 { return r.Fsync.P50 }, show: micros}
	second    = &quantity{name: "1 s", once: func(*Report) float64 { return 1e6 }, show: micros}
	equal     = &quantity{name: "1", once: func(*Report) float64 { return 1 }, show: share} // the fairness if all clients get the same
)

func share(v float64) string { return fmt.Sprintf("%.3f", v) }

func (t Term) String() string {
	if t.Peer == "" {
		return t.what.name
	}
	return t.Peer + " " + t.what.name
}

// in finds the term's value in a report.
func (t Term) in(r *Report) (v float64, ok bool) {
	if t.what.once != nil {
		return t.what.once(r), true
	}
	m := r.median(t.Peer, t.Case)
	if m == nil {
		return 0, false
	}
	v = *t.what.of(m)
	return v, v >= 0
}

func (c Claim) String() string {
	sign, factor := ">=", ""
	if c.AtMost {
		sign = "<="
	}
	if c.Want != 1 {
		factor = fmt.Sprintf("%g x ", c.Want)
	}
	right := c.Right.String()
	switch {
	case c.Right.Peer == c.Left.Peer && c.Right.Case.Workload != c.Left.Case.Workload:
		right = fmt.Sprintf("%s of %s", c.Right.what.name, c.Right.Case.Workload)
	case c.Right.Peer == c.Left.Peer && c.Right.Case != c.Left.Case:
		right = fmt.Sprintf("%s with %d locks", c.Right.what.name, c.Right.Case.Alive)
	case c.Right.Peer == c.Left.Peer:
		right = c.Right.what.name
	case c.Right.what == c.Left.what:
		right = c.Right.Peer
	}
	return fmt.Sprintf("%v %s %s%s (%v)", c.Left, sign, factor, right, c.Left.Case)
}

func workload(name string, clients int) load.Case {
	return load.Case{Workload: name, Clients: clients, Pipeline: 1}
}

// than makes a claim that compares a quantity of two peers in a case.
func than(point int, on disk, what *quantity, c load.Case, left string, want float64, right string) Claim {
	return Claim{Point: point, Left: Term{left, c, what}, Right: Term{right, c, what}, Want: want, disk: on,
		AtMost: what != opsPerSecond}
}

// Claims returns all claims, in the order of their points.
func Claims() (list []Claim) {
	cycle50, lock1, contended, miss := workload("cycle", 50), workload("set", 1), workload("contended", 50), workload("miss", 50)
	list = append(list,
		than(1, durable, opsPerSecond, cycle50, "lockstep-3", 10, "etcd"),
		than(1, durable, opsPerSecond, cycle50, "lockstep-3", 10, "zookeeper"),
		than(1, durable, opsPerSecond, cycle50, "lockstep-3", 2.5, "redlock"),
		than(1, durable, opsPerSecond, cycle50, "lockstep-3", 0.5, "redis-always"),
		than(1, inMemory, opsPerSecond, cycle50, "lockstep-3", 10, "etcd"),
		than(2, durable, opsPerSecond, cycle50, "lockstep-1", 1, "redis-always"),
		than(2, durable, opsPerSecond, workload("cycle", 200), "lockstep-1", 1, "redis-always"))
	for _, name := range []string{"set", "unlock", "rlock"} {
		for _, depth := range []int{1, 16} {
			c := workload(name, 50)
			c.Pipeline = depth
			list = append(list, than(2, anyDisk, opsPerSecond, c, "lockstep-ephemeral", 1, "redis"))
		}
	}
	list = append(list,
		Claim{Point: 3, Left: Term{"lockstep-3", lock1, p50}, Right: Term{what: fdatasync}, AtMost: true, Want: 4, disk: durable},
		than(3, durable, p50, lock1, "lockstep-3", 1, "etcd"),
		than(3, durable, p50, lock1, "lockstep-3", 1, "zookeeper"),
		than(4, durable, opsPerSecond, contended, "lockstep-3", 0.5, "redis"),
		than(4, durable, opsPerSecond, contended, "lockstep-3", 0.5, "redis-always"),
		than(4, durable, opsPerSecond, contended, "lockstep-3", 10, "etcd"),
		than(4, durable, opsPerSecond, contended, "lockstep-3", 10, "zookeeper"),
		than(5, durable, opsPerSecond, miss, "lockstep-3", 0.8, "redis"),
		than(5, durable, opsPerSecond, miss, "lockstep-3-lease", 0.8, "redis"))
	list = append(list, manyLocks()...)
	list = append(list,
		than(7, durable, cpu, cycle50, "lockstep-3", 0.125, "etcd"),
		than(7, durable, cpu, cycle50, "lockstep-3", 0.125, "zookeeper"))
	return append(list, nativeLocks()...)
}

// nativeLocks returns the claims about lockstep's own commands for locks. In the workload native, the other peers do what they do
// in contended.
func nativeLocks() []Claim {
	native, nativeCycle := workload("native", 50), workload("native-cycle", 50)
	const who = "lockstep-3"
	return []Claim{
		than(8, durable, opsPerSecond, native, who, 5, "etcd"),
		than(8, durable, opsPerSecond, native, who, 3, "zookeeper"),
		than(8, durable, opsPerSecond, native, who, 1, "redis-always"),
		{Point: 8, Left: Term{who, native, opsPerSecond}, Right: Term{who, workload("contended", 50), opsPerSecond}, Want: 2, disk: durable},
		{Point: 8, Left: Term{who, native, fairness}, Right: Term{what: equal}, Want: 0.99, disk: durable},
		{Point: 8, Left: Term{who, native, waitP99}, Right: Term{who, native, waitMean}, AtMost: true, Want: 2, disk: durable},
		{Point: 8, Left: Term{who, nativeCycle, opsPerSecond}, Right: Term{who, workload("cycle", 50), opsPerSecond}, Want: 0.95, disk: durable},
	}
}

// manyLocks returns the claims about a million locks, and about a hundred thousand leases that end within a second.
func manyLocks() []Claim {
	few, many, expire := workload("set", 50), workload("set", 50), workload("expire", 50)
	few.Alive, many.Alive = 1000, 1_000_000
	const who = "lockstep-3"
	return []Claim{
		than(6, durable, memory, many, who, 1.5, "redis-always"),
		{Point: 6, Left: Term{who, many, p99}, Right: Term{who, few, p99}, AtMost: true, Want: 2, disk: durable},
		{Point: 6, Left: Term{who, expire, untilGone}, Right: Term{what: second}, AtMost: true, Want: 1, disk: durable},
		{Point: 6, Left: Term{who, expire, p99}, Right: Term{who, expire, calmP99}, AtMost: true, Want: 3, disk: durable},
	}
}

// On reports whether the claim is made for a kind of disk: for a RAM disk if memory is true, and else for a real one.
func (c Claim) On(memory bool) bool {
	return c.disk == anyDisk || (c.disk == inMemory) == memory
}

// Needs returns the terms that must be measured for the claim.
func (c Claim) Needs() (terms []Term) {
	for _, t := range []Term{c.Left, c.Right} {
		if t.Peer != "" {
			terms = append(terms, t)
		}
	}
	return terms
}

// Verdict says whether a claim holds in a run.
type Verdict struct {
	Claim
	LeftValue, RightValue float64
	Got                   float64 // the left value divided by the right one
	Kept                  bool
}

// judge judges a claim. ok is false if the report lacks a figure for that.
func (c Claim) judge(r *Report) (v Verdict, ok bool) {
	left, there := c.Left.in(r)
	right, too := c.Right.in(r)
	if !there || !too || right == 0 {
		return Verdict{}, false
	}
	v = Verdict{Claim: c, LeftValue: left, RightValue: right, Got: left / right}
	v.Kept = v.Got >= c.Want
	if c.AtMost {
		v.Kept = v.Got <= c.Want
	}
	return v, true
}

// check judges the claims that are made for this run's kind of disk. rest has those that it cannot judge.
func (r *Report) check() (verdicts []Verdict, rest []Claim) {
	for _, c := range Claims() {
		if !c.On(r.Machine.Memory()) {
			continue
		}
		if v, ok := c.judge(r); ok {
			verdicts = append(verdicts, v)
		} else {
			rest = append(rest, c)
		}
	}
	return verdicts, rest
}

func (r *Report) unmeasured() []Claim {
	_, rest := r.check()
	return rest
}

// checkTable returns a table with a row for each claim that can be judged.
func (r *Report) checkTable() (t table) {
	verdicts, _ := r.check()
	if len(verdicts) == 0 {
		return t
	}
	t.head = []string{"", "want", "got", "figures", ""}
	for _, v := range verdicts {
		word := "kept"
		if !v.Kept {
			word = "MISSED"
		}
		got := fmt.Sprintf("%.2f", v.Got)
		if v.Want < 1 {
			got = fmt.Sprintf("%.3f", v.Got)
		}
		t.rows = append(t.rows, []string{fmt.Sprint(v.Point), v.Claim.String(), got,
			v.Left.what.show(v.LeftValue) + " to " + v.Right.what.show(v.RightValue), word})
	}
	return t
}

// Missed returns an error that names the claims that do not hold; nil if all hold.
func (r *Report) Missed() error {
	verdicts, _ := r.check()
	var missed []string
	for _, v := range verdicts {
		if !v.Kept {
			missed = append(missed, v.Claim.String())
		}
	}
	if len(missed) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d claims do not hold: %s", len(missed), len(verdicts), strings.Join(missed, "; "))
}

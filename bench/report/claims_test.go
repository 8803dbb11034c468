package report

import (
	"strings"
	"testing"
)

// everything returns a report in which every figure of lockstep is the argument left, and every other figure 100.
func everything(fileSystem string, left float64) *Report {
	r := &Report{Machine: Machine{FileSystem: fileSystem}, Fsync: Fsync{P50: 100}}
	r.Command = "lockstep bench --check"
	for _, c := range Claims() {
		for _, t := range c.Needs() {
			if r.median(t.Peer, t.Case) != nil {
				continue
			}
			v := 100.0
			if ours(t.Peer) {
				v = left
			}
			f := &Figure{}
			for _, p := range f.parts() {
				*p = v
			}
			r.Results = append(r.Results, &Result{Case: t.Case, Peer: t.Peer, Median: f})
		}
	}
	return r
}

func TestEveryClaimCanBeJudged(t *testing.T) {
	for fileSystem, want := range map[string]int{"ext4": 34, "tmpfs: memory": 7} {
		verdicts, rest := everything(fileSystem, 100).check()
		if len(verdicts) != want || len(rest) > 0 {
			t.Errorf("%s: %d verdicts, want %d; not judged: %v", fileSystem, len(verdicts), want, rest)
		}
	}
}

// Each claim holds at its limit, and fails just beyond it.
func TestVerdicts(t *testing.T) {
	for _, c := range Claims() {
		for _, v := range []struct {
			factor float64
			want   bool
		}{{0.99, c.AtMost}, {1, true}, {1.01, !c.AtMost}} {
			r := &Report{Fsync: Fsync{P50: 100}}
			right, ok := c.Right.in(r)
			if !ok {
				right = 100
			}
			set(r, c.Right, right)
			set(r, c.Left, right*c.Want*v.factor)
			got, judged := c.judge(r)
			if !judged || got.Kept != v.want {
				t.Errorf("%v: %g times that: %+v, %v", c, v.factor, got, judged)
			}
		}
	}
}

// set gives a term its value, and every other figure of its case a wrong one.
func set(r *Report, term Term, v float64) {
	if term.Peer == "" {
		return
	}
	m := r.median(term.Peer, term.Case)
	if m == nil {
		m = &Figure{Rate: -7, P50: -7, P99: -7, Calm: -7, Gone: -7, Wait: -7, WaitP99: -7, Fairness: -7, ServerCPU: -7, Memory: -7}
		r.Results = append(r.Results, &Result{Case: term.Case, Peer: term.Peer, Median: m})
	}
	*term.what.of(m) = v
}

// A claim is not judged if one of its figures was not measured, or could not be measured.
func TestUnmeasured(t *testing.T) {
	r := &Report{Machine: Machine{FileSystem: "ext4"}, Fsync: Fsync{P50: 250}}
	if verdicts, rest := r.check(); len(verdicts) != 0 || len(rest) != 34 || r.Missed() != nil {
		t.Errorf("of nothing: %v, and %d are left", verdicts, len(rest))
	}
	r = everything("ext4", 100)
	for _, res := range r.Results {
		res.Median.ServerCPU = -1
	}
	if _, rest := r.check(); len(rest) != 2 || rest[0].Left.what != cpu {
		t.Errorf("without CPU times %v are left", rest)
	}
	// Nor is a claim judged if its case failed for a peer, even in a later round than the first.
	r = everything("ext4", 100)
	for _, res := range r.Results {
		if res.Peer == "zookeeper" && res.Workload == "contended" {
			res.Failed = "EOF"
		}
	}
	if _, rest := r.check(); len(rest) != 1 || rest[0].Right.Peer != "zookeeper" {
		t.Errorf("of what failed %v are left", rest)
	}
}

func TestMissed(t *testing.T) {
	err := everything("ext4", 100).Missed()
	if err == nil || !strings.Contains(err.Error(), "lockstep-3 ops/s >= 10 x etcd (cycle, 50 clients)") || strings.Contains(err.Error(), "lockstep-1 ops/s >= redis-always") {
		t.Errorf("got %v", err)
	}
	r := everything("tmpfs: memory", 1000)
	if err := r.Missed(); err != nil {
		t.Error(err)
	}
}

// These are the claims as the report words them.
func TestClaimText(t *testing.T) {
	var all []string
	for _, c := range Claims() {
		all = append(all, c.String())
	}
	text := strings.Join(all, "\n")
	for _, want := range []string{
		"lockstep-3 ops/s >= 2.5 x redlock (cycle, 50 clients)",
		"lockstep-1 ops/s >= redis-always (cycle, 200 clients)",
		"lockstep-ephemeral ops/s >= redis (rlock, 50 clients, pipelined 16)",
		"lockstep-3 p50 <= 4 x fdatasync p50 (set, 1 client)",
		"lockstep-3 p50 <= zookeeper (set, 1 client)",
		"lockstep-3 CPU of the servers <= 0.125 x etcd (cycle, 50 clients)",
		"lockstep-3 p99 <= 2 x p99 with 1000 locks (set, 50 clients, 1000000 locks held beside)",
		"lockstep-3 time until all leases are gone <= 1 s (expire, 50 clients)",
		"lockstep-3 p99 <= 3 x p99 before the leases end (expire, 50 clients)",
		"lockstep-3 ops/s >= 5 x etcd (native, 50 clients)",
		"lockstep-3 ops/s >= redis-always (native, 50 clients)",
		"lockstep-3 ops/s >= 2 x ops/s of contended (native, 50 clients)",
		"lockstep-3 fairness >= 0.99 x 1 (native, 50 clients)",
		"lockstep-3 p99 of the wait <= 2 x mean of the wait (native, 50 clients)",
		"lockstep-3 ops/s >= 0.95 x ops/s of cycle (native-cycle, 50 clients)",
	} {
		if !strings.Contains(text+"\n", want+"\n") {
			t.Errorf("no claim says %q:\n%s", want, text)
		}
	}
}

// The table ends with the verdicts, and with the number of the claims that could not be judged.
func TestVerdictsInTable(t *testing.T) {
	r := everything("ext4", 100)
	r.Results = r.Results[:2]
	var b strings.Builder
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1  lockstep-3 ops/s >= 10 x etcd (cycle, 50 clients)                  1.00   100 to 100      MISSED\n", "\n32 more claims were not measured\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, b.String())
		}
	}
}

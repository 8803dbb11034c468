package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/cluster/tally"
)

// measureCollector collects what a node measures, and what happens to locks.
type measureCollector struct {
	p *parts

	commit, sync, apply, batch                     *prometheus.Desc
	grants, renewals, misses, ends, waits, waiters *prometheus.Desc
	lockWait, lockHold                             *prometheus.Desc
}

const unlessOff = "; nothing while lock-audit is no."

func newMeasureCollector(p *parts) *measureCollector {
	return &measureCollector{p: p,
		commit: describe("commit_seconds", "Time from the end of a batch's evaluation on this leader to the answer: log, majority and state."),
		sync:   describe("log_sync_seconds", "Time that a write of the Raft log takes, with its sync to the disk."),
		apply:  describe("apply_seconds", "Time in which an entry is applied to the state; not on a node with --ephemeral."),
		batch:  describe("batch_requests", "Requests that this leader has evaluated together."),

		grants:   describe("lock_grants_total", "Locks that owners have got, while this node led"+unlessOff, "kind"),
		renewals: describe("lock_renewals_total", "Leases that have got a later end, while this node led"+unlessOff, "kind"),
		misses:   describe("lock_misses_total", "Commands that found a lock held, and did not wait: SET with NX, SETNX, LOCK.ACQUIRE without WAIT.", "kind"),
		ends:     describe("lock_ends_total", "Locks that owners hold no more, while this node led"+unlessOff, "kind", "how"),
		lockHold: describe("lock_hold_seconds", "Time for which owners have held their locks, counted at its end, while this node led; of a part of the locks if more than 65,536 are held"+unlessOff, "kind"),
		waits:    describe("lock_waits_total", "Calls of LOCK.ACQUIRE with WAIT by clients of this node that have ended.", "kind", "outcome"),
		waiters:  describe("lock_waiters", "Clients of this node that wait in LOCK.ACQUIRE now.", "kind"),
		lockWait: describe("lock_wait_seconds", "Time that LOCK.ACQUIRE with WAIT took for clients of this node, whatever its outcome.", "kind"),
	}
}

func (c *measureCollector) Describe(out chan<- *prometheus.Desc) {
	tell(out, []*prometheus.Desc{c.commit, c.sync, c.apply, c.batch, c.grants, c.renewals, c.misses, c.ends, c.lockHold, c.waits, c.waiters, c.lockWait})
}

func (c *measureCollector) Collect(out chan<- prometheus.Metric) {
	m := c.p.node.Measures()
	seconds := func(desc *prometheus.Desc, h *tally.Histogram, labels ...string) {
		out <- histogram(desc, h.Load(), h.Scale().Bounds(float64(time.Second)), float64(time.Second), labels...)
	}
	count := func(desc *prometheus.Desc, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	seconds(c.commit, m.Commit)
	seconds(c.sync, m.LogSync)
	seconds(c.apply, m.Apply)
	out <- histogram(c.batch, m.Batch.Load(), m.Batch.Scale().Bounds(1), 1)
	first := true
	m.Locks.Each(func(kind string, k *tally.LockKind) {
		count(c.grants, k.Granted.Load(), kind)
		count(c.renewals, k.Renewed.Load(), kind)
		count(c.misses, k.Missed.Load(), kind)
		for how := range k.Ended {
			count(c.ends, k.Ended[how].Load(), kind, tally.Ends[how])
		}
		for outcome := range k.Waited {
			count(c.waits, k.Waited[outcome].Load(), kind, tally.Outcomes[outcome])
		}
		out <- prometheus.MustNewConstMetric(c.waiters, prometheus.GaugeValue, float64(k.Waiting.Load()), kind)
		// Of most kinds there are no locks, and a histogram has many lines. The first kind is always there, so that each metric is.
		if first || k.Held.Any() {
			seconds(c.lockHold, k.Held, kind)
		}
		if first || k.Wait.Any() {
			seconds(c.lockWait, k.Wait, kind)
		}
		first = false
	})
}

// raftCollector collects the metrics of hashicorp/raft.
type raftCollector struct{ descs []*prometheus.Desc }

func newRaftCollector() *raftCollector {
	c := &raftCollector{}
	for _, m := range cluster.RaftMetrics() {
		c.descs = append(c.descs, describe("raft_"+m.Name, m.Help))
	}
	return c
}

func (c *raftCollector) Describe(out chan<- *prometheus.Desc) { tell(out, c.descs) }

func (c *raftCollector) Collect(out chan<- prometheus.Metric) {
	for i, m := range cluster.RaftMetrics() {
		switch m.Kind {
		case cluster.RaftSummary:
			out <- prometheus.MustNewConstSummary(c.descs[i], m.Count, m.Value, nil)
		case cluster.RaftGauge:
			out <- prometheus.MustNewConstMetric(c.descs[i], prometheus.GaugeValue, m.Value)
		default:
			out <- prometheus.MustNewConstMetric(c.descs[i], prometheus.CounterValue, m.Value)
		}
	}
}

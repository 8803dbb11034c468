package cluster

import (
	"time"

	"lockstep/cluster/internal/fair"
)

// The time that the evaluation of a request takes decides whether the request is heavy work, and the client of heavy work waits
// for others (package fair). On a busy machine, the system may stop this process for tens of milliseconds while it evaluates a
// GET. So an evaluation counts with the time that the clock shows, or with the processor time that the process has used
// meanwhile, if that is less.

// workTime is what the sequencer knows of the processor time that this process has used.
type workTime struct {
	time TimeSource
	at   time.Duration // monotonic time of the last reading of the processor time
	busy time.Duration // the reading: the processor time that the process had used
}

// busyEvery is the least time between two readings of the processor time. Each reading is a system call, and takes as long as a quick
// evaluation.
const busyEvery = time.Millisecond

// mostUse bounds the time of an evaluation where the system does not tell the processor time: the process may have been stopped.
const mostUse = 10 * time.Second

// begins must be called before each evaluation. The parameter now is the monotonic time.
func (w *workTime) begins(now time.Duration) {
	if now-w.at >= busyEvery {
		w.at, w.busy = now, w.time.Busy()
	}
}

// workTime.of returns how long the evaluation of a request has taken until the monotonic time in the parameter now. For a long
// evaluation, the result may include up to busyEvery of earlier evaluations.
func (w *workTime) of(r *request, now time.Duration) time.Duration {
	took := now - r.began
	if took >= 2*busyEvery {
		took = min(took, w.time.Busy()-w.busy, mostUse)
	}
	return took
}

// ran notes that the evaluation of a request has ended.
func (w *workTime) ran(r *request, now time.Duration) {
	took := w.of(r, now)
	if took > fair.HeavyTime {
		r.cost += took
	}
	r.used = took + r.spread
}

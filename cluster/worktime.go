package cluster

import (
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/fair"
)

// Long evaluations make requests heavy work (package fair). The process's processor time counts if it is less: a busy machine may have
// stopped the process.

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

// workTime.of returns how long an evaluation has taken until now. A long one may include up to busyEvery of earlier evaluations.
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

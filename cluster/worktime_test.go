package cluster

import (
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/store"
)

// stopped is the clock of a process that uses no processor time: the system has stopped it.
type stopped struct{ TimeSource }

func (stopped) Busy() time.Duration { return 0 }

// TestStoppedProcessDoesNoHeavyWork: a command during which the system stops the process does not count as heavy work.
func TestStoppedProcessDoesNoHeavyWork(t *testing.T) {
	for _, heavy := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			step := store.Command{Name: "step", Arity: 2, Run: func(c *store.Ctx) store.Reply {
				d, err := time.ParseDuration(string(c.Args[1]))
				if err != nil {
					t.Error(err)
				}
				time.Sleep(d)
				return store.OK
			}}
			var src TimeSource = clustertest.NewClock()
			if !heavy {
				src = stopped{src}
			}
			n := newTestNodeOn(t, src, step)
			n.lead()
			c := n.NewClient(heavyHost)
			for _, d := range []string{"50ms", "200ms"} {
				n.run(c, false, "STEP "+d)
				if got := n.gate.IsHeavy(c); got != heavy {
					t.Errorf("after STEP %s its client counts as heavy: %v, want %v", d, got, heavy)
				}
			}
		})
	}
}

// TestWorkTime: an evaluation counts with its time on the clock, or with the processor time since the last reading before it,
// if that is less.
func TestWorkTime(t *testing.T) {
	src := &readings{}
	w := workTime{time: src}
	at := func(now, busy time.Duration) (r *request) {
		src.busy = busy
		w.begins(now)
		return &request{began: now}
	}
	r := at(100*ms, 10*ms)
	src.busy = 11 * ms
	for took, want := range map[time.Duration]time.Duration{ms: ms, 2 * ms: ms, 40 * ms: ms} {
		if got := w.of(r, 100*ms+took); got != want {
			t.Errorf("after %v with 1 ms of processor time: %v, want %v", took, got, want)
		}
	}
	src.busy = 100 * ms // other threads of the process work, too
	if got := w.of(r, 140*ms); got != 40*ms {
		t.Errorf("an evaluation of 40 ms counts as %v", got)
	}
	at(200*ms, 200*ms)
	r = at(200*ms+busyEvery/2, 201*ms) // no new reading yet
	src.busy = 203 * ms
	if got := w.of(r, 210*ms); got != 3*ms {
		t.Errorf("it counts as %v, want what was used since the last reading", got)
	}
}

// readings is a clock that shows a processor time.
type readings struct {
	clustertest.Clock
	busy time.Duration
}

func (r *readings) Busy() time.Duration { return r.busy }

package load

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stormSpec describes a measurement with a thousand leases that end within half a second.
func stormSpec(t *testing.T) Spec {
	s := spec(t, "expire", 4, 1)
	s.Within = 500 * time.Millisecond
	return s
}

// Gone is the time from the end of the last lease until the peer has deleted its lock.
func TestStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		f.lag = 700 * time.Millisecond
		f.delay = func() time.Duration {
			if f.ended > 0 {
				return 50 * time.Millisecond
			}
			return 5 * time.Millisecond
		}
		out, err := Run(stormSpec(t), f, noMeter, noMeter)
		if err != nil {
			t.Fatal(err)
		}
		// The last hundred of a thousand leases end 450 ms after the first.
		if out.Gone < 700*time.Millisecond || out.Gone > 710*time.Millisecond {
			t.Errorf("gone after %v", out.Gone)
		}
		if out.Elapsed < 1150*time.Millisecond || out.Elapsed > 1160*time.Millisecond {
			t.Errorf("measured for %v", out.Elapsed)
		}
		if n := len(out.Calm); n < 4*98 || n > 4*102 || out.Calm[0] != 10*time.Millisecond || out.Calm[n-1] != 10*time.Millisecond {
			t.Errorf("%d steps before, from %v to %v", n, out.Calm[0], out.Calm[n-1])
		}
		if n := len(out.Latencies); n != out.Ops || out.Latencies[n-1] != 100*time.Millisecond {
			t.Errorf("%d steps, %d operations, the last took %v", n, out.Ops, out.Latencies[n-1])
		}
		if f.opened != 5 || f.closed != 5 {
			t.Errorf("%d sessions were opened and %d closed", f.opened, f.closed)
		}
	})
}

// The clients are measured for stormWindow, even if all locks are gone at once.
func TestStormIsMeasuredForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stormSpec(t)
		s.Within = 0
		out, err := Run(s, newFake(time.Millisecond), noMeter, noMeter)
		if err != nil || out.Elapsed != stormWindow || out.Gone > 2*stormPoll || out.Ops < 1990 {
			t.Errorf("%d operations in %v, gone after %v, %v", out.Ops, out.Elapsed, out.Gone, err)
		}
	})
}

func TestStormFaults(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*fake)
		want  string
	}{
		"a lease that ends early is a lock that is lost": {func(f *fake) { f.lag = -200 * time.Millisecond }, errWrong.Error()},
		"a peer that never deletes them":                 {func(f *fake) { f.lag = time.Hour }, "1000 of 1000 leases are still there"},
		"a peer that is too slow to take them":           {func(f *fake) { f.delay = func() time.Duration { return time.Second } }, "of 1000 leases were taken"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(time.Millisecond)
				c.spoil(f)
				if _, err := Run(stormSpec(t), f, noMeter, noMeter); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// If the clients have given up, the storm is over.
func TestStormWithoutClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(time.Millisecond)
		f.lag = time.Hour
		f.locks["lock:2:0"] = "somebody"
		began := time.Now()
		if _, err := Run(stormSpec(t), f, noMeter, noMeter); !errors.Is(err, errWrong) || time.Since(began) > time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

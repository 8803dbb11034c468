package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// fakeClock is the time of a synctest bubble, which a test can put forward, as sleep of the machine or SIGSTOP do.
type fakeClock struct {
	mu     sync.Mutex
	start  time.Time
	slept  time.Duration
	alarms []*fakeAlarm
}

func newFakeClock() *fakeClock { return &fakeClock{start: time.Now()} }

func (c *fakeClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *fakeClock) now() time.Duration { return time.Hour + time.Since(c.start) + c.slept }

// sleep puts the clock forward. Timers that are due ring.
func (c *fakeClock) sleep(d time.Duration) {
	c.forward(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.alarms {
		a.set(a.at)
	}
}

// forward puts the clock forward, and nothing has rung yet.
func (c *fakeClock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slept += d
}

func (c *fakeClock) NewAlarm() (Alarm, error) {
	a := &fakeAlarm{clock: c, c: make(chan struct{}, 1), timer: time.NewTimer(never)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alarms = append(c.alarms, a)
	return a, nil
}

type fakeAlarm struct {
	clock *fakeClock
	c     chan struct{}
	timer *time.Timer
	at    time.Duration
}

func (a *fakeAlarm) C() <-chan struct{} { return a.c }

func (a *fakeAlarm) Set(at time.Duration) {
	a.clock.mu.Lock()
	defer a.clock.mu.Unlock()
	a.set(at)
}

// set needs the clock's mutex.
func (a *fakeAlarm) set(at time.Duration) {
	a.timer.Stop()
	a.at = at
	a.timer = time.AfterFunc(max(at-a.clock.now(), 0), func() {
		select {
		case a.c <- struct{}{}:
		default:
		}
	})
}

func (a *fakeAlarm) Close() { a.timer.Stop() }

// fakeJob is a process group that notes what happens to it.
type fakeJob struct {
	mu     sync.Mutex
	clock  *fakeClock
	begun  time.Duration
	events []string // each with its time
	status chan syscall.WaitStatus
	on     func(sig syscall.Signal) // what a signal does
	rest   bool                     // others of the group still run
	told   deadlines
}

func (j *fakeJob) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, fmt.Sprintf("%v ", j.clock.Now()-j.begun)+fmt.Sprintf(format, args...))
}

func (j *fakeJob) signal(sig syscall.Signal) {
	if sig == syscall.SIGCONT {
		return
	}
	j.note("%v", sig)
	j.mu.Lock()
	on := j.on
	j.mu.Unlock()
	if on != nil {
		on(sig)
	}
}

func (j *fakeJob) when(on func(sig syscall.Signal)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.on = on
}

func (j *fakeJob) exited() <-chan syscall.WaitStatus { return j.status }
func (j *fakeJob) guard(d deadlines)                 { j.told = d }

func (j *fakeJob) empty() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.rest
}

func (j *fakeJob) setRest(rest bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rest = rest
}

// exit ends the command, unless it has ended.
func (j *fakeJob) exit(status syscall.WaitStatus) {
	select {
	case j.status <- status:
	default:
	}
}

// renewals is a server that answers as a function says.
type renewals func(at time.Duration) (n int64, err error)

type fakeRemote struct {
	clock  *fakeClock
	begun  time.Duration
	answer renewals
	times  []time.Duration
}

func (r *fakeRemote) renew(_ context.Context, _, within time.Duration) (int64, error) {
	at := r.clock.Now() - r.begun
	r.times = append(r.times, at)
	return r.answer(at)
}

// keep runs a keeper with a lease of 30 s in a bubble.
func keep(t *testing.T, answer renewals, play func(*fakeClock, *fakeJob, chan os.Signal)) (*keeper, *fakeJob, *fakeRemote) {
	t.Helper()
	clock := newFakeClock()
	job := &fakeJob{clock: clock, begun: clock.Now(), status: make(chan syscall.WaitStatus, 1)}
	job.on = func(sig syscall.Signal) {
		if sig == syscall.SIGKILL {
			job.exit(syscall.WaitStatus(syscall.SIGKILL))
		}
	}
	remote := &fakeRemote{clock: clock, begun: job.begun, answer: answer}
	k := &keeper{clock: clock, remote: remote, timeout: 10 * time.Second, job: job, lease: lease{job.begun, 30 * time.Second},
		say: func(format string, args ...any) {
			t.Logf("%v: "+format, append([]any{clock.Now() - job.begun}, args...)...)
		}}
	signals := make(chan os.Signal, 1)
	go play(clock, job, signals)
	if _, err := k.keep(signals); err != nil {
		t.Fatal(err)
	}
	return k, job, remote
}

var errDown = errors.New("no server answers")

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRenewal: a lease is renewed each time that a third of it is over, and counts from before the request. Nothing happens to the command.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(time.Duration) (int64, error) { time.Sleep(3 * time.Second); return 1, nil }
		k, job, remote := keep(t, slow, func(_ *fakeClock, job *fakeJob, _ chan os.Signal) {
			time.Sleep(95 * time.Second)
			job.exit(0)
		})
		want(t, job.events[:len(job.events)-1])
		want(t, job.events[len(job.events)-1:], "1m35s terminated") // what is left of the group
		if k.lost || len(remote.times) != 9 {
			t.Errorf("lost: %v, renewals: %v", k.lost, remote.times)
		}
		for i, at := range remote.times {
			if at != time.Duration(i+1)*10*time.Second {
				t.Errorf("renewals at %v", remote.times)
			}
		}
		if got := k.lease.from - job.begun; got != 90*time.Second {
			t.Errorf("the last lease counts from %v", got)
		}
	})
}

// TestEndsBeforeTheLease: without renewals the command gets SIGTERM after two thirds of the lease, and SIGKILL before its end. The guard
// knows the same times.
func TestEndsBeforeTheLease(t *testing.T) {
	down := func(time.Duration) (int64, error) { return 0, errDown }
	hangs := func(time.Duration) (int64, error) { time.Sleep(30 * time.Second / 9); return 0, errDown }
	for name, server := range map[string]renewals{"gone": down, "hangs": hangs} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, job, remote := keep(t, server, func(*fakeClock, *fakeJob, chan os.Signal) {})
				want(t, job.events, "20s terminated", "27s killed", "27s terminated")
				if !k.lost || k.gone || len(remote.times) < 3 {
					t.Errorf("lost: %v, gone: %v, renewals: %v", k.lost, k.gone, remote.times)
				}
				if d := job.told; d.term != never || d.kill != job.begun+27*time.Second {
					t.Errorf("the guard was told %v", d)
				}
			})
		})
	}
}

// TestServerIsBack: a renewal that succeeds in the last third lets the command end in peace, and the lock still counts as lost.
func TestServerIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := func(at time.Duration) (int64, error) {
			if at < 22*time.Second {
				return 0, errDown
			}
			return 1, nil
		}
		k, job, _ := keep(t, back, func(_ *fakeClock, job *fakeJob, _ chan os.Signal) {
			time.Sleep(60 * time.Second)
			job.exit(0)
		})
		want(t, job.events, "20s terminated", "1m0s terminated")
		if !k.lost {
			t.Error("it does not count as lost")
		}
	})
}

// TestLockIsGone: when a server says that the lock is not ours, the command gets SIGTERM at once, and SIGKILL soon.
func TestLockIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := func(time.Duration) (int64, error) { return 0, nil }
		k, job, remote := keep(t, gone, func(*fakeClock, *fakeJob, chan os.Signal) {})
		want(t, job.events, "10s terminated", "13s killed", "13s terminated")
		if !k.lost || !k.gone || len(remote.times) != 1 {
			t.Errorf("lost: %v, gone: %v, renewals: %v", k.lost, k.gone, remote.times)
		}
		if job.told.kill != job.begun+13*time.Second {
			t.Errorf("the guard was told %v", job.told)
		}
	})
}

// TestRevoked: LOCK.REVOKE ends the command by SIGTERM, and the lock is renewed until the command has ended.
func TestRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := func(time.Duration) (int64, error) { return 2, nil }
		k, job, remote := keep(t, asked, func(_ *fakeClock, job *fakeJob, _ chan os.Signal) {
			time.Sleep(45 * time.Second)
			job.exit(0)
		})
		want(t, job.events, "10s terminated", "45s terminated")
		if k.lost || len(remote.times) != 4 {
			t.Errorf("lost: %v, renewals: %v", k.lost, remote.times)
		}
	})
}

// TestSleepBeyondTheLease: the machine was asleep, or the process stopped, until after the lease. When it goes on, SIGKILL comes first,
// before a signal is passed on and before a reply counts that came meanwhile.
func TestSleepBeyondTheLease(t *testing.T) {
	for _, slept := range []time.Duration{27 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			late := func(at time.Duration) (int64, error) { time.Sleep(time.Second); return 1, nil }
			k, job, remote := keep(t, late, func(clock *fakeClock, job *fakeJob, signals chan os.Signal) {
				time.Sleep(10*time.Second + 500*time.Millisecond) // a renewal is under way
				signals <- syscall.SIGUSR1
				synctest.Wait()
				clock.sleep(slept)
			})
			at := 10*time.Second + 500*time.Millisecond
			want(t, job.events[:2], fmt.Sprint(at, " ", syscall.SIGUSR1), fmt.Sprint(at+slept, " killed"))
			if !k.lost || len(remote.times) > 2 {
				t.Errorf("lost: %v, renewals: %v", k.lost, remote.times)
			}
		})
	}
}

// TestSignalAfterSleep: a signal that wakes the process after the lease is not passed on before SIGKILL. Nor does a reply count then.
func TestSignalAfterSleep(t *testing.T) {
	late := make(chan struct{})
	for name, wake := range map[string]func(chan os.Signal){
		"signal": func(signals chan os.Signal) { signals <- syscall.SIGUSR1 },
		"reply":  func(chan os.Signal) { late <- struct{}{} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				late = make(chan struct{}, 1)
				k, job, _ := keep(t, func(time.Duration) (int64, error) { <-late; return 1, nil }, func(clock *fakeClock, _ *fakeJob, signals chan os.Signal) {
					time.Sleep(15 * time.Second) // a renewal is under way
					clock.forward(20 * time.Second)
					wake(signals)
					synctest.Wait()
					close(late)
				})
				if !k.lost || job.events[0] != "35s killed" {
					t.Error(job.events)
				}
			})
		})
	}
}

// TestFinishedTooLate: the command has ended by itself, but nobody can say whether that was before the lease was over.
func TestFinishedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _, _ := keep(t, func(time.Duration) (int64, error) { return 1, nil }, func(clock *fakeClock, job *fakeJob, _ chan os.Signal) {
			clock.forward(time.Minute)
			job.exit(0)
		})
		if !k.lost {
			t.Error("it does not count as lost")
		}
	})
}

// TestRestOfTheGroup: what the command leaves behind in its group is ended before the lock is released, and the lock is renewed until then.
func TestRestOfTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, job, remote := keep(t, func(time.Duration) (int64, error) { return 1, nil }, func(_ *fakeClock, job *fakeJob, _ chan os.Signal) {
			job.setRest(true)
			job.when(func(sig syscall.Signal) {
				if sig == syscall.SIGKILL {
					job.setRest(false)
				}
			})
			time.Sleep(9 * time.Second)
			job.exit(0)
		})
		want(t, job.events, "9s terminated", "14s killed")
		if k.lost || len(remote.times) != 1 {
			t.Errorf("lost: %v, renewals: %v", k.lost, remote.times)
		}
	})
}

// TestSurvivor: a process that not even SIGKILL ends keeps the lock for as long as it lives.
func TestSurvivor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, job, remote := keep(t, func(at time.Duration) (int64, error) {
			if at < time.Minute {
				return 0, errDown
			}
			return 1, nil
		}, func(_ *fakeClock, job *fakeJob, _ chan os.Signal) {
			job.when(nil)
			time.Sleep(5 * time.Minute)
			job.exit(0)
		})
		if last := remote.times[len(remote.times)-1]; !k.lost || last < 4*time.Minute {
			t.Errorf("lost: %v, the last renewal: %v, events: %v", k.lost, last, job.events)
		}
	})
}

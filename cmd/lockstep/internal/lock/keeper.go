package lock

import (
	"context"
	"os"
	"syscall"
	"time"
)

// renewer renews a lock, as remote does.
type renewer interface {
	renew(ctx context.Context, ttl, within time.Duration) (answer int64, err error)
}

// keeper renews the lease while the command runs, and ends the command before the lease ends.
type keeper struct {
	clock   Clock
	remote  renewer
	timeout time.Duration // how long one renewal may take at most
	say     func(format string, args ...any)

	job     process
	lease   lease
	next    time.Duration // when the next renewal is due
	asking  bool          // a renewal is under way
	answers chan answer

	lost    bool // the command got a signal because the lease was about to end, or had ended
	gone    bool // a server has said that the lock is not ours
	told    bool // the command got SIGTERM because the lock was asked for
	killed  bool
	failing bool // the last renewal has failed

	ended    *syscall.WaitStatus // how the command has ended; others of its group may still run
	restKill time.Duration       // when they get SIGKILL
}

// answer is the result of a renewal that began a lease, if n is not 0.
type answer struct {
	lease lease
	n     int64
	err   error
}

// What a command has started in its process group and left behind gets SIGTERM, and after restGrace SIGKILL.
const (
	restGrace = 5 * time.Second
	restLook  = 20 * time.Millisecond
)

// keep returns when the command and all of its process group have ended. Signals are passed on.
func (k *keeper) keep(signals <-chan os.Signal) (syscall.WaitStatus, error) {
	alarm, err := k.clock.NewAlarm()
	if err != nil {
		k.job.signal(syscall.SIGKILL)
		return <-k.job.exited(), err
	}
	defer alarm.Close()
	k.next, k.answers = k.lease.renewAt(), make(chan answer, 1)
	exited := k.job.exited()
	for {
		k.judge()
		if k.ended != nil && k.job.empty() {
			break
		}
		k.ask()
		alarm.Set(k.wake())
		// After each of these, however late this process comes to it, the clock is looked at before anything else.
		select {
		case <-alarm.C():
		case a := <-k.answers:
			k.judge()
			k.take(a)
		case sig := <-signals:
			k.judge()
			if s, ok := sig.(syscall.Signal); ok {
				k.job.signal(s)
			}
		case status := <-exited:
			k.judge()
			k.ended, exited = &status, nil
			k.restKill = k.clock.Now() + restGrace
			k.terminate()
		}
	}
	if k.asking {
		<-k.answers // the connection is in use; a renewal ends soon
	}
	return *k.ended, nil
}

// deadlines are those of the present lease. SIGTERM by the guard comes a little later than by this process, and so only if this one is
// stopped.
func (k *keeper) deadlines() deadlines {
	d := deadlines{k.lease.termAt() + k.lease.pause(), k.lease.killAt()}
	if k.lost {
		d.term = never
	}
	return d
}

// judge ends the command if it is time.
func (k *keeper) judge() {
	now := k.clock.Now()
	switch {
	case k.killed:
	case now >= k.lease.killAt():
		k.lost, k.killed = true, true
		k.job.signal(syscall.SIGKILL)
		k.say("the lease of the lock is over: SIGKILL")
	case now >= k.lease.termAt() && !k.lost:
		k.lost = true
		k.terminate()
		k.say("the lock could not be renewed: SIGTERM, and SIGKILL in %v", (k.lease.killAt() - now).Round(time.Millisecond))
		k.job.guard(k.deadlines())
	case k.ended != nil && now >= k.restKill:
		k.killed = true
		k.job.signal(syscall.SIGKILL)
	}
}

// terminate sends SIGTERM; a process that is stopped gets it only when it goes on.
func (k *keeper) terminate() {
	k.job.signal(syscall.SIGTERM)
	k.job.signal(syscall.SIGCONT)
}

// ask begins a renewal if one is due. Renewals go on after SIGTERM and SIGKILL: while a process lives, nobody else should get the lock.
func (k *keeper) ask() {
	if k.asking || k.gone || k.clock.Now() < k.next {
		return
	}
	k.asking = true
	l := lease{k.clock.Now(), k.lease.ttl}
	go func() {
		n, err := k.remote.renew(context.Background(), l.ttl, l.attempt(k.timeout))
		k.answers <- answer{l, n, err}
	}()
}

// take acts on the result of a renewal.
func (k *keeper) take(a answer) {
	k.asking = false
	now := k.clock.Now()
	switch {
	case a.err != nil:
		k.next = now + a.lease.pause()
		if !k.failing {
			k.failing = true
			k.say("the lock cannot be renewed; it lasts for %v: %v", (k.lease.end() - now).Round(time.Millisecond), a.err)
		}
	case a.n == 0:
		// Somebody else may have the lock already, so the command has less time than usual.
		k.gone, k.lost = true, true
		k.lease.from = min(k.lease.from, now-k.lease.ttl/10*8)
		k.say("the lock is lost: a server says that it is not ours any more")
		k.terminate()
		k.job.guard(k.deadlines())
	default:
		if k.failing {
			k.failing = false
			k.say("the lock has been renewed")
		}
		k.lease, k.next = a.lease, a.lease.renewAt()
		k.job.guard(k.deadlines())
		if a.n == 2 && !k.told {
			k.told = true
			k.say("the lock is asked for (LOCK.REVOKE): SIGTERM")
			k.terminate()
		}
	}
}

// wake returns when there is something to do next.
func (k *keeper) wake() time.Duration {
	at := never
	if !k.killed {
		at = k.lease.killAt()
	}
	if !k.lost {
		at = min(at, k.lease.termAt())
	}
	if !k.asking && !k.gone {
		at = min(at, k.next)
	}
	if k.ended != nil {
		at = min(at, k.clock.Now()+restLook)
	}
	return at
}

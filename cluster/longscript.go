package cluster

import (
	"slices"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/store"
)

// longScript watches the running script. After runsAfter it tells the node of the script's client; at the busy threshold it
// answers BUSY to waiting requests.
type longScript struct {
	node *Node
	in   *fair.Inbox[*request]

	mu     sync.Mutex
	number uint64        // grows when a script begins or ends, so it is odd while one runs
	since  time.Duration // monotonic time since which the script runs
	behind []*request    // requests that wait for the script (sequencer.waitFor)
	runs   func()        // called by check once, when the script has run for runsAfter; nil: nobody to tell, or called already
	timer  *time.Timer   // runs check at the time due
	due    time.Duration // monotonic time for which timer is set; 0: never
}

// runsAfter is how long a script runs before its node is told, which then does not send it to the next leader (carried.suspect).
const runsAfter = 100 * time.Millisecond

// A client may end or see a script after killFrom or busy-reply-threshold, the shorter one. Otherwise SCRIPT KILL could end all
// scripts of others.
const killFrom = time.Second

// ask returns what the function about says of the script that runs, and none while no client may end or see that script yet (killFrom).
// Meanwhile no script begins or ends.
func (l *longScript) ask(about func() store.Reply, none store.Reply) store.Reply {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.number%2 == 1 && l.node.cfg.Time.Monotonic()-l.since < min(killFrom, l.node.busyThreshold()) {
		return none
	}
	return about()
}

// starts notes that a script of request r runs from now on. The parameter behind has the requests that wait for it (sequencer.waitFor).
func (l *longScript) starts(r *request, behind []*request, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	l.since = now
	if r.tried {
		l.since -= companyTime // r was stopped for now after companyTime in an earlier evaluation, and other requests waited for that, too
	}
	l.behind, l.runs = behind, r.runs
	after := l.node.busyThreshold()
	if l.runs != nil {
		after = min(after, runsAfter)
	}
	// The timer may still be set for an earlier script. If it fires before this script is due, check sets it again.
	if l.due <= now || l.due > l.since+after {
		l.checkIn(l.since + after - now)
	}
}

// checkIn sets the timer; mu is held.
func (l *longScript) checkIn(after time.Duration) {
	l.due = l.node.cfg.Time.Monotonic() + after
	if l.timer == nil {
		l.timer = time.AfterFunc(after, l.check)
	} else {
		l.timer.Reset(after)
	}
}

// ends notes that the script ended at the monotonic time at. It reports whether the waiting requests were refused, and so may be
// reused.
func (l *longScript) ends(at time.Duration) (refused bool) {
	l.mu.Lock()
	if at-l.since >= l.node.busyThreshold() && !l.in.IsBusy() {
		l.refuseWaiting() // the script has reached the threshold and ended before the timer fired
		l.mu.Lock()
	}
	defer l.mu.Unlock()
	l.number++
	l.behind, l.runs = nil, nil
	return l.in.Open()
}

// check is what the timer calls: it reports the script after runsAfter, and refuses the waiting requests at the busy threshold.
func (l *longScript) check() {
	l.mu.Lock()
	l.due = 0
	if l.number%2 == 0 {
		l.mu.Unlock()
		return
	}
	ran := l.node.cfg.Time.Monotonic() - l.since
	if l.runs != nil && ran >= runsAfter {
		l.runs()
		l.runs = nil
	}
	left := l.node.busyThreshold() - ran
	if l.runs != nil {
		left = min(left, runsAfter-ran)
	}
	// The timer may have fired before the busy threshold: it was set for an earlier script, or only to call runs.
	if left > 0 {
		l.checkIn(max(left, time.Millisecond))
		l.mu.Unlock()
		return
	}
	l.refuseWaiting()
}

// refuseWaiting answers BUSY to waiting requests that are not patient, and shuts the inbox to new ones. It releases mu, which the
// caller holds.
func (l *longScript) refuseWaiting() {
	// q is a copy: as soon as the script ends, the sequencer may overwrite the elements of behind.
	q := slices.Concat(l.behind, l.in.Shut(false))
	l.behind = nil
	l.mu.Unlock()
	for _, r := range q {
		if !r.patient() {
			r.refuse(l.node.BusyError())
		} else if closed, _ := l.in.Add(r, true); closed {
			r.complete(errNotExecuted)
		}
	}
	l.in.Signal() // the script may have ended meanwhile, and nobody else wakes the sequencer for the requests that are queued again
}

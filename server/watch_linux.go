package server

import "time"

const (
	// watchInterval is how often the watcher looks. A loop that is inside the
	// backend from one look to the next is held up by a script.
	watchInterval = 5 * time.Millisecond
	// watchQuiet is after how many looks at a loop that does nothing the
	// watcher sleeps.
	watchQuiet = 200
)

// watch sees to it that a script that runs on the loop's goroutine holds up
// only those who wait for its outcome: others must be told -BUSY, and be able
// to kill it. When the owner does not come back from the backend, another
// goroutine becomes the owner; the old one leaves when it does come back.
func (l *loop) watch() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		tick.Stop()
		select {
		case <-l.stop:
			return
		case <-l.stir:
		}
		tick.Reset(watchInterval)
		l.watchBusy(tick.C)
	}
}

// watchBusy watches until nothing has happened for a while.
func (l *loop) watchBusy(tick <-chan time.Time) {
	last := l.held.Load()
	for quiet := 0; ; quiet++ {
		select {
		case <-l.stop:
			return
		case <-tick:
		}
		now := l.held.Load()
		if now != last {
			last, quiet = now, 0
			continue
		}
		if now%2 == 1 {
			l.replaceOwner(now)
			continue
		}
		if quiet >= watchQuiet {
			l.watching.Store(false)
			// The owner may have gone in just before that.
			if l.held.Load() == last || !l.watching.CompareAndSwap(false, true) {
				return
			}
		}
	}
}

// replaceOwner starts another goroutine in place of the owner, unless that has
// come back meanwhile.
func (l *loop) replaceOwner(held uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held.Load() != held {
		return
	}
	l.held.Add(1)
	l.owner++
	go l.run(l.owner)
}

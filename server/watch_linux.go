package server

import "time"

const (
	// watchInterval is how often the watcher looks. If a loop is inside the backend from one look to
	// the next, a script delays it.
	watchInterval = 5 * time.Millisecond
	// watchQuiet is how many looks without activity of the loop the watcher makes before it sleeps.
	watchQuiet = 200
)

// watch makes sure that a script on the loop's goroutine delays only the clients that wait for its
// outcome: other clients must get -BUSY, and must be able to kill the script. When the owner does not
// come back from the backend, another goroutine becomes the owner; the old one ends when it comes back.
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

// watchBusy watches until the loop has done nothing for a while.
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
			// The owner may have entered the backend just before watching became false.
			if l.held.Load() == last || !l.watching.CompareAndSwap(false, true) {
				return
			}
		}
	}
}

// replaceOwner makes another goroutine the owner, unless the owner has come back in the meantime.
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

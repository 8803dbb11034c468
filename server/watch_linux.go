package server

import "time"

const (
	// watchInterval separates the watcher's looks. If the loop is in the same call of the backend at two looks, a script delays it.
	watchInterval = 5 * time.Millisecond
	// When the loop has done nothing for watchQuiet looks, the watcher sleeps.
	watchQuiet = 200
)

// watch lets other clients get -BUSY, and kill the script, while a script holds the loop's goroutine: it starts another goroutine as the
// owner. The old one ends when it returns from the backend.
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

// watchBusy watches the loop until it has done nothing for watchQuiet looks, or has ended.
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
			// If the owner entered the backend just before l.watching became false, the watcher must go on.
			if l.held.Load() == last || !l.watching.CompareAndSwap(false, true) {
				return
			}
		}
	}
}

// replaceOwner makes another goroutine the owner of the loop, unless the owner has returned from the backend since the watcher
// read l.held.
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

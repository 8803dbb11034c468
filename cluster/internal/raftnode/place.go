package raftnode

import (
	"log/slog"
	"time"
)

// placeTick is how often the node looks for its data directory. If that is gone, what a sole node acknowledges meanwhile is lost.
const placeTick = time.Second

// watchPlace ends the process when the data directory is not in its place any more.
func (r *Node) watchPlace() {
	tick := time.NewTicker(placeTick)
	defer tick.Stop()
	troubles := newSeldom(r.cfg.Logger, slog.LevelWarn, r.cfg.Time.Monotonic)
	for {
		select {
		case <-r.stop:
			return
		case <-tick.C:
		}
		switch moved, err := r.dir.Moved(); {
		case moved:
			select {
			case <-r.stop: // the directory does not belong to this node any more
			default:
				r.cfg.Fatal(err)
			}
			return
		case err != nil:
			troubles.say("place", "it is not known whether the data directory is still in its place", "error", err)
		}
	}
}

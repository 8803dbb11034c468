package peers

import (
	"slices"
	"strings"
	"time"
)

// health is what this node last logged about the members, so that it logs each event once.
type health struct {
	down       map[string]bool
	noMajority bool
	leaderless time.Duration // since when there has been no leader, by the monotonic clock; 0: there is one
	told       bool          // the log says that there is no leader
}

// tellHealth logs what has changed since its last call. The parameter led is true if there is a leader. The caller holds mu.
func (w *Watcher) tellHealth(now time.Duration, led bool) {
	h := &w.health
	if h.down == nil {
		h.down = map[string]bool{}
	}
	voters, up := 0, 0
	if w.voter {
		voters, up = 1, 1
	}
	var silent []string
	for id, m := range w.heard {
		is := now-m.seen >= w.cfg.DownAfter
		switch {
		case is && !h.down[id]:
			w.cfg.Logger.Warn("A member is down: nothing is heard of it", "id", id, "peer", m.addr, "since", w.cfg.Clock.Wall().Add(m.seen-now).UTC().Format(time.RFC3339))
		case !is && h.down[id] && m.told:
			w.cfg.Logger.Info("A member is up again", "id", id, "peer", m.addr)
		case !is && h.down[id]:
			is = true // the member has sent no status yet, so it stays down
		}
		h.down[id] = is
		if !m.voter {
			continue
		}
		if voters++; is {
			silent = append(silent, id)
		} else {
			up++
		}
	}
	for id := range h.down {
		if w.heard[id] == nil {
			delete(h.down, id)
		}
	}
	slices.Sort(silent)
	none := up <= voters/2 && voters > 0
	switch {
	case none && !h.noMajority:
		w.cfg.Logger.Error("No majority: too many members are silent, and no command is executed until one of them is back", "silent", strings.Join(silent, ", "), "voters", voters)
	case !none && h.noMajority:
		w.cfg.Logger.Info("There is a majority again")
	}
	h.noMajority = none
	w.tellLeader(now, led)
}

// tellLeader logs once that a leader has been missing for Config.DownAfter, and once that there is one again.
func (w *Watcher) tellLeader(now time.Duration, led bool) {
	h := &w.health
	switch {
	case led && h.told:
		w.cfg.Logger.Info("There is a leader again")
		fallthrough
	case led:
		h.leaderless, h.told = 0, false
	case h.leaderless == 0:
		h.leaderless = max(now, 1)
	case !h.told && now-h.leaderless >= w.cfg.DownAfter && w.voter:
		h.told = true
		args := []any{"since", w.cfg.Clock.Wall().Add(h.leaderless - now).UTC().Format(time.RFC3339)}
		if why := w.cfg.Raft().Trouble(); why != "" {
			args = append(args, "error", why)
		}
		w.cfg.Logger.Warn("No leader", args...)
	}
}

package peers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
)

// An operator may say which voters lead rather than others. Raft knows nothing of that: any voter may have to lead, because only it may have
// the last entry of the log. So a leader looks for a voter that should lead rather than itself, waits until that one has kept up for a
// while, and hands leadership over. A node that never leads has long timers, too, so that another node stands for election first.

// MostPriority is the largest Wish.Priority.
const MostPriority = 1000

// Wish is what the operator wants of a member.
type Wish struct {
	Never    bool // it leads only until another voter can
	Learner  bool // it gets no vote
	Priority int  // of two voters the one with more leads
}

// Compare returns a negative number if a node with wish s should lead rather than one with wish o.
func (s Wish) Compare(o Wish) int {
	if s.Never != o.Never {
		return cmp.Compare(number(s.Never), number(o.Never))
	}
	return cmp.Compare(o.Priority, s.Priority)
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

// code and wishOf convert a wish to the number that a status has, and back.
func (s Wish) code() uint64 {
	return uint64(s.Priority)<<2 | uint64(number(s.Learner))<<1 | uint64(number(s.Never))
}

func wishOf(code uint64) (s Wish, ok bool) {
	if code>>2 > MostPriority {
		return Wish{}, false
	}
	return Wish{Never: code&1 != 0, Learner: code&2 != 0, Priority: int(code >> 2)}, true
}

// told returns the wish for another member; known is false as long as it has not answered. A version that tells none has the zero Wish.
func (w *Watcher) told(id string) (s Wish, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.heard[id]; h != nil {
		return h.status.Wish, h.asked
	}
	return Wish{}, false
}

// Wish returns the wish for a member, this node included, as far as this node knows it.
func (w *Watcher) Wish(id string) Wish {
	if id == w.cfg.ID {
		return w.cfg.Wish
	}
	s, _ := w.told(id)
	return s
}

// Version returns the version of the program that a member runs; "" if it is not known.
func (w *Watcher) Version(id string) string {
	if id == w.cfg.ID {
		return w.cfg.Version
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.heard[id]; h != nil {
		return h.status.Version
	}
	return ""
}

const (
	// yieldPause is the pause after a transfer to a voter that has failed, or that has lost leadership again within yieldHeld. It doubles up
	// to yieldMost: a voter that cannot lead must not be elected again and again.
	yieldPause = 20 * time.Second
	yieldMost  = 10 * time.Minute
	yieldHeld  = time.Minute
)

// Yielder hands leadership to the voter that should lead rather than this node. It remembers over the terms of this node to whom that was in
// vain.
type Yielder struct {
	Watcher *Watcher
	// After is how long a voter must have kept up before this node hands over to it because of its priority. A node that never leads waits
	// only until the other has caught up.
	After    time.Duration
	Position func() uint64         // the index up to which this node knows the log to be committed
	Transfer func(id string) error // hands leadership to a voter

	commits commits
	since   map[string]time.Duration // since when each voter keeps up
	tried   map[string]attempt
}

// attempt is the last transfer to a voter.
type attempt struct {
	at    time.Duration
	pause time.Duration // how long after that the next may come; 0: no need to wait
}

// Run yields until ctx, the context of a term, ends.
func (y *Yielder) Run(ctx context.Context) {
	w := y.Watcher
	y.begin(w.cfg.Clock.Monotonic())
	w.findEach(ctx, y.look, func(id string) {
		w.cfg.Logger.Info("Handing leadership over to a member that should lead rather than this one", "id", id)
		err := y.Transfer(id)
		y.note(id, w.cfg.Clock.Monotonic(), err)
		if err != nil && ctx.Err() == nil {
			w.cfg.Logger.Warn("leadership was not handed over", "id", id, "error", err, "next attempt", fmt.Sprint("in ", y.tried[id].pause))
		}
	})
}

// begin begins a term. A voter that has led for a short time only, since this node has yielded to it, has to wait.
func (y *Yielder) begin(now time.Duration) {
	y.commits, y.since = nil, map[string]time.Duration{}
	for id, a := range y.tried {
		if a.pause == 0 && now-a.at < yieldHeld {
			y.tried[id] = attempt{now, yieldPause}
		} else if now-a.at < yieldHeld {
			y.tried[id] = attempt{now, min(2*a.pause, yieldMost)}
		}
	}
}

// note notes an attempt.
func (y *Yielder) note(id string, now time.Duration, err error) {
	if y.tried == nil {
		y.tried = map[string]attempt{}
	}
	before := y.tried[id]
	switch {
	case err != nil:
		y.tried[id] = attempt{now, min(max(2*before.pause, yieldPause), yieldMost)}
	case now-before.at < yieldMost+yieldHeld:
		y.tried[id] = attempt{now, before.pause}
	default:
		y.tried[id] = attempt{at: now}
	}
}

// look notes which voters keep up, and returns the one to which this node should hand over now, or "".
func (y *Yielder) look(now time.Duration) string {
	w := y.Watcher
	goal, known := y.commits.goal(now, y.Position())
	members, err := w.cfg.Raft().Members()
	if err != nil || !known {
		return ""
	}
	var heirs []string
	still := map[string]bool{}
	for _, m := range members {
		wish, told := w.told(m.ID)
		if m.ID == w.cfg.ID || !m.Voter || !told || wish.Compare(w.cfg.Wish) >= 0 || !w.Alive(m.ID) || w.Applied(m.ID) < goal {
			continue
		}
		still[m.ID] = true
		if _, is := y.since[m.ID]; !is {
			y.since[m.ID] = now
		}
		if a, is := y.tried[m.ID]; is && now-a.at < a.pause {
			continue
		}
		if w.cfg.Wish.Never || now-y.since[m.ID] >= y.After {
			heirs = append(heirs, m.ID)
		}
	}
	for id := range y.since {
		if !still[id] {
			delete(y.since, id)
		}
	}
	if len(heirs) == 0 {
		return ""
	}
	return slices.MinFunc(heirs, func(a, b string) int {
		return cmp.Or(w.Wish(a).Compare(w.Wish(b)), cmp.Compare(a, b))
	})
}

// ByWish sorts members: those who should lead rather than others come first.
func (w *Watcher) ByWish(members []raftnode.Member) {
	slices.SortStableFunc(members, func(a, b raftnode.Member) int { return w.Wish(a.ID).Compare(w.Wish(b.ID)) })
}

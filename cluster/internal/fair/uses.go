package fair

import (
	"maps"
	"math"
	"time"
)

const (
	// turnMemory is the half-life of the times and the numbers of pieces in uses.
	turnMemory = 10 * time.Second
	// If there are turnNames users, or as many kinds of work, those with little work are forgotten.
	turnNames = 1000
)

// uses is how much time work has taken lately, by the name of a user or of a kind of work.
type uses map[string]use

// use is how much time work took, and in how many pieces. Both values decay (turnMemory).
type use struct {
	took   time.Duration
	pieces float64
	at     time.Duration // monotonic time up to which the fields took and pieces have decayed
}

func (u use) now(now time.Duration) use {
	left := math.Exp2(-float64(now-u.at) / float64(turnMemory))
	return use{time.Duration(float64(u.took) * left), u.pieces * left, now}
}

func (u use) isHeavy() bool {
	return u.took > turnShare && u.took > time.Duration(u.pieces*float64(HeavyPiece))
}

// note adds work to the use of a name: the number of its pieces, and the time that they took.
func (t uses) note(name string, pieces int, cost, now time.Duration) {
	if len(t) >= turnNames {
		maps.DeleteFunc(t, func(_ string, u use) bool { return u.now(now).took < time.Millisecond })
	}
	if u, known := t[name]; known || len(t) < turnNames {
		u = u.now(now)
		t[name] = use{u.took + cost, u.pieces + float64(pieces), now}
	}
}

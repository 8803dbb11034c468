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
type uses[K comparable] map[K]use

// use is how much time work took, and in how many pieces. Both values decay (turnMemory).
type use struct {
	took   time.Duration
	pieces float64
	at     time.Duration // monotonic time up to which the fields took and pieces have decayed
}

func (u use) now(now time.Duration) use {
	left := halved(float64(now-u.at) / float64(turnMemory))
	return use{time.Duration(float64(u.took) * left), u.pieces * left, now}
}

// halved returns 2 to the power of -x. For a small x, the first terms of the series take a fraction of the time, and are as good: the
// error is below 3e-6.
func halved(x float64) float64 {
	if x < 0 || x > 1.0/8 {
		return math.Exp2(-x)
	}
	y := x * math.Ln2
	return 1 - y*(1-y/2*(1-y/3))
}

func (u use) isHeavy() bool {
	return u.took > turnShare && u.took > time.Duration(u.pieces*float64(HeavyPiece))
}

// note adds work to the use of a name: the number of its pieces, and the time that they took.
func (t uses[K]) note(name K, pieces int, cost, now time.Duration) {
	if len(t) >= turnNames {
		maps.DeleteFunc(t, func(_ K, u use) bool { return u.now(now).took < time.Millisecond })
	}
	if u, known := t[name]; known || len(t) < turnNames {
		u = u.now(now)
		t[name] = use{u.took + cost, u.pieces + float64(pieces), now}
	}
}

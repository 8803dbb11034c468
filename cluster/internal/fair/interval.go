package fair

import "time"

// Interval is the time after long reads in which the leader serves only other requests: as long as the reads took, while others come.
type Interval struct {
	until time.Duration // monotonic
	other time.Duration // when other requests came last, monotonic
}

// Took begins the interval after work that took as long as piece, if that is HeavyTime or more.
func (i *Interval) Took(piece, now time.Duration) {
	if piece >= HeavyTime {
		i.until = max(i.until, now+min(piece, turnRest))
	}
}

// Waited lengthens the interval, because the leader has served nothing for the time took. The interval ends turnRest from now at the
// latest.
func (i *Interval) Waited(took, now time.Duration) {
	i.until = min(max(i.until, now-took)+2*took, now+turnRest)
}

// Sees notes that other requests have come.
func (i *Interval) Sees(now time.Duration) { i.other = now }

// Pressed reports whether other requests have come within the last restFor.
func (i *Interval) Pressed(now time.Duration) bool { return i.other > 0 && now < i.other+restFor }

// Lasts reports whether long work has to wait.
func (i *Interval) Lasts(now time.Duration) bool { return now < i.until && i.Pressed(now) }

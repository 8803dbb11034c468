package fair

import "time"

// Interval is the time after a piece of long work (the long reads of a batch) in which the leader serves only other requests. It ends
// early if no other requests come for a while. It is as long as the piece took, turnRest at most. So long work has half of the time,
// unless a piece takes more than turnRest. The zero value is an Interval that is over.
type Interval struct {
	until time.Duration // monotonic
	other time.Duration // when other requests came last, monotonic
}

// Took begins the interval after long work, which has just ended. The parameter piece is how long that work took; if it took less
// than HeavyTime, no interval begins.
func (i *Interval) Took(piece, now time.Duration) {
	if piece >= HeavyTime {
		i.until = max(i.until, now+min(piece, turnRest))
	}
}

// Waited notes that the leader has served nothing lately, because the replies to long work were still in hand. The parameter took is
// how long that lasted. That time does not count as a part of the interval, and the interval becomes longer by as much. The interval
// ends turnRest from now at the latest.
func (i *Interval) Waited(took, now time.Duration) {
	i.until = min(max(i.until, now-took)+2*took, now+turnRest)
}

// Sees notes that other requests have come.
func (i *Interval) Sees(now time.Duration) { i.other = now }

// Pressed reports whether other requests have come within the last restFor.
func (i *Interval) Pressed(now time.Duration) bool { return i.other > 0 && now < i.other+restFor }

// Lasts reports whether long work has to wait.
func (i *Interval) Lasts(now time.Duration) bool { return now < i.until && i.Pressed(now) }

package fair

import "time"

// Interval is the time after a long piece of work in which only other requests are served, if they come without a break. It is as
// long as the piece took, turnRest at most. So long work has half of the time, unless a piece takes more than turnRest. The zero
// value holds nothing back.
type Interval struct {
	until time.Duration // monotonic
	other time.Duration // when other requests came last, monotonic
}

// Took begins the interval after work that has just ended, of one piece or several. Short work needs none.
func (i *Interval) Took(piece, now time.Duration) {
	if piece >= HeavyTime {
		i.until = max(i.until, now+min(piece, turnRest))
	}
}

// Waited says that the leader served nothing until now, because the replies of long work were still in hand; took is for how long.
// The interval does not run during that time, and becomes longer by as much. It ends turnRest from now at the latest.
func (i *Interval) Waited(took, now time.Duration) {
	i.until = min(max(i.until, now-took)+2*took, now+turnRest)
}

// Sees notes that there are other requests.
func (i *Interval) Sees(now time.Duration) { i.other = now }

// Pressed reports whether other requests come.
func (i *Interval) Pressed(now time.Duration) bool { return i.other > 0 && now < i.other+restFor }

// Lasts reports whether long work has to wait.
func (i *Interval) Lasts(now time.Duration) bool { return now < i.until && i.Pressed(now) }

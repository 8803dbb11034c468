package fair

import (
	"testing"
	"time"
)

// TestIntervals: after a piece of long work, other requests are served for as long as the piece took, if they come without a
// break.
func TestIntervals(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name string
		do   func(i *Interval)
		ends time.Duration // end of the interval if other requests come all the time
	}{
		{"nothing has run", func(*Interval) {}, 0},
		{"a short piece", func(i *Interval) { i.Took(HeavyTime-1, 1000*ms) }, 0},
		{"a long piece", func(i *Interval) { i.Took(300*ms, 1000*ms) }, 1300 * ms},
		{"a very long piece", func(i *Interval) { i.Took(time.Minute, 1000*ms) }, 3000 * ms},
		{"pieces that nobody else has waited for do not add up", func(i *Interval) {
			for at := range 5 {
				i.Took(300*ms, time.Duration(at)*300*ms+1000*ms)
			}
		}, 2500 * ms},
		{"others have waited behind the piece, too", func(i *Interval) { i.Took(300*ms, 1000*ms); i.Waited(200*ms, 1200*ms) }, 1700 * ms},
		{"others have waited, long after the piece", func(i *Interval) { i.Took(300*ms, 1000*ms); i.Waited(200*ms, 9000*ms) }, 9200 * ms},
		{"others have waited for very long", func(i *Interval) { i.Waited(5000*ms, 9000*ms) }, 11000 * ms},
	} {
		var i Interval
		c.do(&i)
		if i.Lasts(c.ends - ms) {
			t.Errorf("%s: the work waits, but nobody else has come", c.name)
		}
		for _, at := range []time.Duration{c.ends - ms, c.ends} {
			i.Sees(at - restFor + ms)
			if i.Lasts(at) != (at < c.ends && c.ends > 0) {
				t.Errorf("%s: at %v the work waits: %t", c.name, at, i.Lasts(at))
			}
		}
		if i.Sees(c.ends - ms - restFor); i.Lasts(c.ends - ms) {
			t.Errorf("%s: the work waits for others who have stopped", c.name)
		}
	}
}

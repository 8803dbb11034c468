package fair

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

// A batch does not wait for requests that came just before the wait.
func TestWaitingForThoseWhoAreThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := NewInbox[int]()
		i.queue = []int{1, 2}
		start := time.Now()
		i.Await(t.Context(), 2, time.Hour)
		if took := time.Since(start); took != 0 || i.want != 0 {
			t.Errorf("both are there, and %d were waited for %v", i.want, took)
		}
	})
}

// The cost and the saving of a wait decide how many batches then do not wait.
func TestWaitingIsWeighed(t *testing.T) {
	g := Gatherer[int]{expected: 50, lastTook: ms}
	for _, x := range []struct {
		waited, came int
		took         time.Duration
		pause        int
	}{
		{10, 40, ms, 0},
		{10, 9, ms / 2, 1},  // less than a quarter of the expected requests came
		{30, 15, 3 * ms, 3}, // 15 requests saved 1 ms each, and 30 lost 3 ms each
		{30, 15, ms / 4, 0},
		{30, 15, 3 * ms, 3},
		{30, 15, 3 * ms, 7},
		{10, 40, ms, 0},
		{10, 40, ms, 0},
		{30, 15, 3 * ms, 3},
	} {
		g.pause = 0
		g.learn(x.waited, x.came, x.took)
		if g.pause != x.pause {
			t.Errorf("%+v: the next %d batches wait for nobody", x, g.pause)
		}
	}
}

// TestInboxLetsGoWhatWasTaken: an Inbox does not keep a request that was taken long ago, nor the arguments of its client.
func TestInboxLetsGoWhatWasTaken(t *testing.T) {
	type request [64]byte
	i := NewInbox[*request]()
	var all []weak.Pointer[request]
	add := func(n int) {
		for range n {
			r := new(request)
			i.Add(r, true)
			all = append(all, weak.Make(r))
		}
	}
	add(100)
	q := i.Take()
	add(20)
	i.TakeMore(q)
	for range 2 {
		add(1)
		i.Take()
	}
	runtime.GC()
	kept := 0
	for _, r := range all {
		if r.Value() != nil {
			kept++
		}
	}
	if kept > 1 { // the last one
		t.Errorf("%d requests are kept", kept)
	}
	runtime.KeepAlive(&i)
}

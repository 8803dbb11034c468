package datadir

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// worker takes a time for each read and each write.
type worker struct{ takes time.Duration }

func (w worker) Read(p []byte) (int, error)  { time.Sleep(w.takes); return len(p), nil }
func (w worker) Write(p []byte) (int, error) { time.Sleep(w.takes); return len(p), nil }

// monotonic is a clock that has been going for a while.
func monotonic() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Second + time.Since(began) }
}

// Work on a snapshot takes half of the time, not all of it.
func TestPaceIsHalfSpeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := monotonic()
		for _, test := range []struct {
			name              string
			takes             time.Duration
			pieces            int
			least, most, each time.Duration
		}{
			{"writing", ms, 100, 198 * ms, 202 * ms, 0},
			{"making and writing", ms, 100, 396 * ms, 402 * ms, ms},
			{"a disk that stood still", time.Second, 1, 1050 * ms, 1050 * ms, 0},
		} {
			w := &pacedWriter{out: worker{test.takes}, pace: newPace(clock, nil), began: clock()}
			began := time.Now()
			for range test.pieces {
				time.Sleep(test.each)
				if n, err := w.Write(make([]byte, 10)); n != 10 || err != nil {
					t.Fatal(n, err)
				}
			}
			if took := time.Since(began); took < test.least || took > test.most {
				t.Errorf("%s: %v", test.name, took)
			}
		}
		// The work on one piece counts when the next piece is asked for.
		r := &pacedReader{in: bytes.NewReader(make([]byte, 100)), pace: newPace(clock, nil)}
		began := time.Now()
		for range 100 {
			if n, err := r.Read(make([]byte, 1)); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			time.Sleep(ms)
		}
		if took := time.Since(began); took < 195*ms || took > 200*ms {
			t.Errorf("reading: %v", took)
		}
	})
}

// Work on a snapshot does not pause any more when its node stops.
func TestPaceEndsWithTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, stop := monotonic(), make(chan struct{})
		close(stop)
		began := time.Now()
		w := &pacedWriter{out: worker{0}, pace: newPace(clock, stop), began: clock()}
		for range 100 {
			time.Sleep(ms)
			if _, err := w.Write(nil); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 100*ms {
			t.Errorf("took %v", took)
		}
	})
}

// A peer's snapshot is written at half of the disk's speed. The time in which the node waits for the network does not count as
// work.
func TestSinkRestsForTheDiskOnly(t *testing.T) {
	dir := t.TempDir()
	s, err := openSnapshots(dir, SystemDisk(), hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	var now time.Duration
	s.pace = func() *pace { return newPace(func() time.Duration { return now }, nil) }
	create := func() *snapshotSink {
		k, err := s.Create(1, 1, 1, raft.Configuration{}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		return k.(*snapshotSink)
	}
	k := create()
	if _, err := k.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	now += 3 * ms // the network
	if _, err := k.Write([]byte("y")); err != nil || k.pace.done != 0 {
		t.Errorf("%v; %v of work counted", err, k.pace.done)
	}
	if err := k.Cancel(); err != nil {
		t.Error(err)
	}
	k = create()
	p := k.pace
	w := k.whole()
	now += 3 * ms // making the snapshot
	if _, err := w.Write([]byte("y")); err != nil || p.done != 3*ms {
		t.Errorf("%v; %v of work counted", err, p.done)
	}
	if err := k.Cancel(); err != nil {
		t.Error(err)
	}
}

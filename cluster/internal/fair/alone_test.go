package fair

import (
	"testing"
	"testing/synctest"
	"time"
)

// Clients that ask for the hash while a node computes one share the next hash. A hash is no older than the question.
func TestSharedWorkIsDoneOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, end := testGate(t)
		defer end()
		own := g.Beside()
		g.does(t, g.NewClient(lightHost)) // so there are other clients
		const askers, piece = 200, 100 * time.Millisecond
		shared := NewShared[int](own, OwnHash)
		position, made, running := 1, 0, 0
		var ended time.Time
		ask := func() {
			asked := position
			got, err := shared.Get(own.NewClient(heavyHost), func(int) (int, error) {
				if running++; running > 1 {
					t.Errorf("%d at once", running)
				}
				if gap := time.Since(ended); made > 0 && gap < ownTimes*piece {
					t.Errorf("%v after the last one, want %v", gap, ownTimes*piece)
				}
				made++
				at := position
				time.Sleep(piece)
				running--
				ended = time.Now()
				return at, nil
			})
			if err != nil || got < asked {
				t.Errorf("asked at %d, got %d, %v", asked, got, err)
			}
		}
		for range askers {
			go ask()
		}
		synctest.Wait()
		position++
		time.Sleep(piece / 2)
		for range askers {
			go ask()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if made != 2 {
			t.Errorf("made %d times for %d askers, want 2", made, 2*askers)
		}
	})
}

// A client that is cut off while it waits for work stops waiting, whatever it waits for. The next client gets its place.
func TestWhoIsCutOffWaitsForNoWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, end := testGate(t)
		defer end()
		own := g.Beside()
		leave, ok := own.Alone(nil, OwnFile)
		if !ok {
			t.Fatal("nobody works, and the turn is taken")
		}
		if other, ok := own.Alone(nil, OwnList); !ok {
			t.Error("work of another kind has to wait")
		} else {
			other()
		}
		gone, next := own.NewClient(heavyHost), own.NewClient(heavyHost)
		left, came := false, false
		go func() {
			_, ok := own.Alone(gone, OwnFile)
			left = !ok
		}()
		synctest.Wait()
		go func() {
			leave, ok := own.Alone(next, OwnFile)
			if came = ok; ok {
				leave()
			}
		}()
		synctest.Wait()
		gone.Gone()
		synctest.Wait()
		if !left || came {
			t.Errorf("the one that was cut off has left: %v, the next one has come: %v", left, came)
		}
		leave()
		synctest.Wait()
		if !came {
			t.Error("the next one waits")
		}
		if leave, ok := own.Alone(gone, OwnFile); ok {
			t.Error("work is done for one that was cut off")
			leave()
		}
		own.closed(t)
		waits := own.NewClient(heavyHost)
		left = false
		go func() {
			_, ok := own.Pace(waits)
			left = !ok
		}()
		synctest.Wait()
		waits.Gone()
		synctest.Wait()
		if !left {
			t.Error("one that was cut off goes on to give way")
		}
	})
}

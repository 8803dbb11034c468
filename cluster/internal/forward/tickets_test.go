package forward

import (
	"testing"
)

func TestTickets(t *testing.T) {
	var k Tickets
	for want := uint64(1); want < 6; want++ {
		if id := k.Begin(); id != want {
			t.Fatalf("ticket %d, want %d", id, want)
		}
	}
	for _, step := range []struct{ end, low uint64 }{{2, 1}, {3, 1}, {1, 4}, {5, 4}, {4, 6}} {
		if k.End(step.end); k.Lowest() != step.low {
			t.Errorf("after %d: lowest %d, want %d", step.end, k.Lowest(), step.low)
		}
	}
	if k.open.Len()+len(k.where) > 0 {
		t.Errorf("kept %v", k.where)
	}
	// While one number stays open for long, Tickets keeps no memory for the numbers that have ended meanwhile.
	waits := k.Begin()
	for range 1000 {
		k.End(k.Begin())
	}
	if k.Lowest() != waits || k.open.Len() != 1 || len(k.where) != 1 {
		t.Errorf("lowest %d of %d numbers, want %d alone", k.Lowest(), len(k.where), waits)
	}
}

package kills

import (
	"testing"
	"time"
)

func TestSummary(t *testing.T) {
	var all []time.Duration
	for i := range 100 {
		all = append(all, time.Duration(100-i)*time.Millisecond)
	}
	if got, want := summarise(all), (spread{N: 100, P50: 50, P90: 90, P99: 99, Max: 100}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := summarise(nil); got != (spread{}) {
		t.Errorf("of nothing: %+v", got)
	}
}

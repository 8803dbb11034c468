package fair

import (
	"math"
	"testing"
)

func TestHalved(t *testing.T) {
	for i := range 4000 {
		x := float64(i) / 2000
		if got, want := halved(x), math.Exp2(-x); math.Abs(got-want) > 3e-6 {
			t.Errorf("2 to the power of -%v: %v, want %v", x, got, want)
		}
	}
	if got := halved(-3); got != 8 {
		t.Errorf("2 to the power of 3: %v", got)
	}
}

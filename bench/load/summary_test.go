package load

import (
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	thousand := make([]time.Duration, 1000)
	for i := range thousand {
		thousand[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		list  []time.Duration
		share float64
		want  time.Duration
	}{
		{nil, 0.5, 0},
		{[]time.Duration{7}, 0.5, 7},
		{[]time.Duration{7}, 0.999, 7},
		{[]time.Duration{1, 2}, 0.5, 1},
		{[]time.Duration{1, 2, 3}, 0.5, 2},
		{thousand, 0, 1},
		{thousand, 0.5, 500},
		{thousand, 0.99, 990},
		{thousand, 0.999, 999},
		{thousand, 1, 1000},
	} {
		if got := Quantile(c.list, c.share); got != c.want {
			t.Errorf("%v of %d values: %d, want %d", c.share, len(c.list), got, c.want)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		list []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := Median(c.list); got != c.want {
			t.Errorf("%v: %v, want %v", c.list, got, c.want)
		}
	}
	list := []float64{2, 1}
	if Median(list); list[0] != 2 {
		t.Error("Median has reordered its argument")
	}
}

func TestMean(t *testing.T) {
	for _, c := range []struct {
		list []time.Duration
		want time.Duration
	}{{nil, 0}, {[]time.Duration{7}, 7}, {[]time.Duration{9, 1, 5}, 5}} {
		if got := Mean(c.list); got != c.want {
			t.Errorf("%v: %v, want %v", c.list, got, c.want)
		}
	}
}

func TestFairness(t *testing.T) {
	for _, c := range []struct {
		got  []int
		want float64
	}{{[]int{5, 5, 5, 5}, 1}, {[]int{8, 0, 0, 0}, 0.25}, {[]int{3, 1}, 0.8}, {[]int{0, 0}, 0}} {
		if f := Fairness(c.got); f != c.want {
			t.Errorf("%v: %v, want %v", c.got, f, c.want)
		}
	}
}

package load

import (
	"slices"
	"time"
)

// Quantile returns the latency that the given share of the latencies does not exceed. ordered must be sorted.
func Quantile(ordered []time.Duration, share float64) time.Duration {
	if len(ordered) == 0 {
		return 0
	}
	// This is the index of the smallest latency that at least this share of the latencies does not exceed.
	at := int(share*float64(len(ordered))+0.999999) - 1
	return ordered[min(max(at, 0), len(ordered)-1)]
}

// Median returns the middle value, or the mean of the two in the middle.
func Median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	ordered := slices.Sorted(slices.Values(list))
	half := len(ordered) / 2
	if len(ordered)%2 == 1 {
		return ordered[half]
	}
	return (ordered[half-1] + ordered[half]) / 2
}

// Mean returns the mean of the latencies; 0 if there are none.
func Mean(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	var sum time.Duration
	for _, d := range list {
		sum += d
	}
	return sum / time.Duration(len(list))
}

// Fairness returns Jain's index of what each of n clients got: 1 if all got the same, 1/n if one got everything.
func Fairness(perClient []int) float64 {
	var sum, squares float64
	for _, n := range perClient {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(perClient)) * squares)
}

package main

import (
	"slices"
	"time"
)

// fate says what became of a lock while its owner had it.
type fate int

const (
	notAsked fate = iota // its lease ended before the owner could ask
	kept                 // the token was still there when the owner was about to release the lock
	lost                 // the token was gone or replaced before the end of the lease
)

// grant is a lock that the server has granted to a client. All times are by the monotonic clock of this process.
type grant struct {
	name string
	// The lock counts as held from the reply until the owner begins to release it, or until the lease ends by the owner's clock.
	from, to time.Duration
	fate     fate
}

// counts is what a history shows.
type counts struct {
	Granted    int `json:"granted"`
	Lost       int `json:"lost"`
	HeldTwice  int `json:"held_twice"`
	NotChecked int `json:"not_checked"`
}

// count counts what went wrong. A lock is held twice if it is granted to one client while another one still has it.
func count(history []grant) counts {
	c := counts{Granted: len(history)}
	byName := slices.Clone(history)
	slices.SortFunc(byName, func(a, b grant) int {
		if a.name != b.name {
			if a.name < b.name {
				return -1
			}
			return 1
		}
		return int(a.from - b.from)
	})
	var name string
	var inside time.Duration // until when a client has the lock of that name
	for i, g := range byName {
		switch g.fate {
		case lost:
			c.Lost++
		case notAsked:
			c.NotChecked++
		}
		if i > 0 && g.name == name && g.from < inside {
			c.HeldTwice++
		}
		if i == 0 || g.name != name {
			name, inside = g.name, 0
		}
		inside = max(inside, g.to)
	}
	return c
}

// withoutService returns for each fault the longest time without a grant until the next fault or the end.
func withoutService(history []grant, faults []time.Duration, end time.Duration) []time.Duration {
	times := make([]time.Duration, len(history))
	for i, g := range history {
		times[i] = g.from
	}
	slices.Sort(times)
	gaps := make([]time.Duration, len(faults))
	for i, fault := range faults {
		until := end
		if i+1 < len(faults) {
			until = faults[i+1]
		}
		at, _ := slices.BinarySearch(times, fault)
		last := fault
		for ; at < len(times) && times[at] < until; at++ {
			gaps[i] = max(gaps[i], times[at]-last)
			last = times[at]
		}
		gaps[i] = max(gaps[i], until-last)
	}
	return gaps
}

// quantile returns the value that the share q of the values does not exceed.
func quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

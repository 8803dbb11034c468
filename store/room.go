package store

import "slices"

// A slice that holds the elements of a key has room for more of them. The data size counts elements, not places, so a slice must
// not have many more places than elements: a key could otherwise hold a hundred times the memory that maxmemory counts. Room is
// not part of the state.

// roomFor returns how many places a slice gets that grows to n elements.
func roomFor(n int) int { return n + (n-1)/3 }

// insertAt inserts an element. It may change s.
func insertAt[T any](s []T, i int, x T) []T {
	if len(s) == cap(s) {
		s = append(make([]T, 0, roomFor(len(s)+1)), s...)
	}
	return slices.Insert(s, i, x)
}

// removeAt removes an element and returns it. It clears the places behind the end, so that they keep nothing alive. If there are
// many of them, it copies the slice. A copy has at most two thirds of the places, so in the long run copies take constant time for
// each removal.
func removeAt[T any](s []T, i int) (rest []T, gone T) {
	gone = s[i]
	return fit(slices.Delete(s, i, i+1)), gone
}

// fit returns s, or a copy if much of its room is unused.
func fit[T any](s []T) []T {
	if n := len(s); cap(s)-n > n/2+2 {
		return append(make([]T, 0, n+1), s...)
	}
	return s
}

package store

import "slices"

// A slice that holds the elements of a key has spare capacity. The data size counts elements, not capacity, so the capacity must not
// be much larger than the length: a key could otherwise hold a hundred times the memory that maxmemory counts. The capacity is not
// part of the state.

// roomFor returns the capacity of a new slice for n elements.
func roomFor(n int) int { return n + (n-1)/3 }

// insertAt inserts an element at index i. It may change the array of s, so no other slice may use that array.
func insertAt[T any](s []T, i int, x T) []T {
	if len(s) == cap(s) {
		s = append(make([]T, 0, roomFor(len(s)+1)), s...)
	}
	return slices.Insert(s, i, x)
}

// removeAt removes the element at index i and returns it, and the rest of s. It clears the place behind the new end, so that the
// array does not keep the removed element alive. If much of the capacity is unused, removeAt copies the slice. The copy has at most
// two thirds of the capacity, so in the long run copies take constant time for each removal.
func removeAt[T any](s []T, i int) (rest []T, gone T) {
	gone = s[i]
	return fit(slices.Delete(s, i, i+1)), gone
}

// fit returns s, or a copy if much of the capacity of s is unused.
func fit[T any](s []T) []T {
	if n := len(s); cap(s)-n > n/2+2 {
		return append(make([]T, 0, n+1), s...)
	}
	return s
}

package store

import "slices"

// The data size does not count the spare capacity of slices, so slices must have little. Capacity is not part of the state.

// roomFor returns the capacity of a new slice for n elements.
func roomFor(n int) int { return n + (n-1)/3 }

// insertAt inserts an element at index i. It may change the array of s, so no other slice may use that array.
func insertAt[T any](s []T, i int, x T) []T {
	if len(s) == cap(s) {
		s = append(make([]T, 0, roomFor(len(s)+1)), s...)
	}
	return slices.Insert(s, i, x)
}

// removeAt removes the element at index i. It copies the slice if much capacity is unused, in the long run at constant cost per removal.
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

// Package shrink finds the few inputs, among many, that make something fail.
package shrink

// List returns the fewest elements that it finds for which the function fails still returns true. For the whole list, that function
// must return true. List leaves out ever smaller parts (delta debugging: Zeller and Hildebrandt, Simplifying and Isolating
// Failure-Inducing Input). If the function fails returns an error, the search ends, and List returns what it has found so far.
func List[T any](list []T, fails func([]T) (bool, error)) ([]T, error) {
	for size := len(list) / 2; size > 0; {
		removed := false
		for from := 0; from < len(list); {
			fewer := append(list[:from:from], list[min(from+size, len(list)):]...)
			failed, err := fails(fewer)
			if err != nil {
				return list, err
			}
			if failed {
				list, removed = fewer, true
			} else {
				from += size
			}
		}
		if !removed || size > 1 {
			size /= 2
		}
	}
	return list, nil
}

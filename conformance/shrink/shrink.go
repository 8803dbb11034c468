// Package shrink finds the few inputs, among many, that make something fail.
package shrink

// List shrinks a list for which fails is true, by delta debugging (Zeller and Hildebrandt). If fails returns an error, List returns what
// it has found.
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

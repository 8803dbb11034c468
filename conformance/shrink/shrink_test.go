package shrink

import (
	"errors"
	"slices"
	"testing"
)

// has returns a function that reports whether a list contains all of the given numbers.
func has(all ...int) func([]int) (bool, error) {
	return func(list []int) (bool, error) {
		for _, n := range all {
			if !slices.Contains(list, n) {
				return false, nil
			}
		}
		return true, nil
	}
}

func TestList(t *testing.T) {
	list := make([]int, 100)
	for i := range list {
		list[i] = i
	}
	for _, want := range [][]int{{0}, {99}, {42}, {3, 4}, {0, 50, 99}} {
		got, err := List(list, has(want...))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
}

// An error ends the search. List still returns what it has found until then.
func TestListStops(t *testing.T) {
	stop := errors.New("no time left")
	tries := 0
	got, err := List([]int{1, 2, 3, 4}, func(list []int) (bool, error) {
		if tries++; tries > 1 {
			return false, stop
		}
		return slices.Contains(list, 3), nil
	})
	if !errors.Is(err, stop) || !slices.Equal(got, []int{3, 4}) {
		t.Errorf("got %v, %v", got, err)
	}
}

package history

import (
	"strconv"
	"strings"
)

// stepRegister knows set, get, and swap: SET with GET, which returns the value
// that it replaced.
func stepRegister(state any, op *Op) []any {
	value := state.(string)
	switch {
	case op.Call == "set", op.Call == "swap" && (op.Unknown || op.Result == value):
		return []any{op.Owner}
	case op.Call == "get" && op.Result == value:
		return []any{value}
	}
	return nil
}

// stepCounter knows incr and get.
func stepCounter(state any, op *Op) []any {
	n := state.(int64)
	if op.Call == "incr" {
		n++
	}
	result := strconv.FormatInt(n, 10)
	if op.Call == "get" && n == 0 {
		result = ""
	}
	if op.Unknown || op.Result == result {
		return []any{n}
	}
	return nil
}

// A list is its elements, each followed by a comma: no element is empty or
// contains a comma.
func length(list string) string { return strconv.Itoa(strings.Count(list, ",")) }

// stepList knows push, which returns the length, and range, which returns
// everything: another order, or an element that was appended twice, shows in every
// later range.
func stepList(state any, op *Op) []any {
	list := state.(string)
	if op.Call == "push" {
		list += op.Owner + ","
		if op.Unknown || op.Result == length(list) {
			return []any{list}
		}
		return nil
	}
	if op.Result == list {
		return []any{list}
	}
	return nil
}

// stepQueue knows push and pop: what was popped for one client is not there for
// another.
func stepQueue(state any, op *Op) []any {
	list := state.(string)
	if op.Call == "push" {
		list += op.Owner + ","
		if op.Unknown || op.Result == length(list) {
			return []any{list}
		}
		return nil
	}
	head, rest, found := strings.Cut(list, ",")
	switch {
	case op.Unknown && !found, !op.Unknown && op.Result == "" && !found:
		return []any{list}
	case found && (op.Unknown || op.Result == head):
		return []any{rest}
	}
	return nil
}

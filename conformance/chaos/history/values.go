package history

import (
	"strconv"
	"strings"
)

// stepRegister is the model of a register. Its operation swap is SET with the option GET.
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

// stepCounter is the model of a counter, with the operations incr and get.
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

// In the models of list and queue, the state is the text of all elements, each followed by a comma.
func length(list string) string { return strconv.Itoa(strings.Count(list, ",")) }

// stepList is the model of a list. A range reveals a wrong order and a repeated push.
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

// stepQueue is the model of a queue, with the operations push and pop. An element that one client has popped must not come to
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

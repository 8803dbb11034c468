package bridge

import (
	"slices"
	"strconv"
	"strings"
)

// A state is what a key holds on one side.
type state struct {
	kind     string   // none, string, hash, or large: any other type, and values of which content is only a hash
	content  []string // of a hash: field, value, …
	deadline int64    // in ms by the clock of the server
	ttl      int64    // in ms
	expires  bool
}

// readStates reads the reply to probe; ok is false if it is not one.
func readStates(reply any, n int) (states []state, ok bool) {
	rows, ok := reply.([]any)
	if !ok || len(rows) != n {
		return nil, false
	}
	for _, row := range rows {
		cols, ok := row.([]any)
		if !ok || len(cols) != 4 {
			return nil, false
		}
		kind, ok1 := cols[0].(string)
		deadline, ok2 := cols[1].(string)
		ttl, ok3 := cols[2].(string)
		content, ok4 := cols[3].([]any)
		if !ok1 || !ok2 || !ok3 || !ok4 {
			return nil, false
		}
		s := state{kind: kind}
		var err1, err2 error
		s.deadline, err1 = strconv.ParseInt(deadline, 10, 64)
		s.ttl, err2 = strconv.ParseInt(ttl, 10, 64)
		if err1 != nil || err2 != nil {
			return nil, false
		}
		s.expires = s.ttl >= 0
		for _, c := range content {
			text, ok := c.(string)
			if !ok {
				return nil, false
			}
			s.content = append(s.content, text)
		}
		if s.kind == "hash" && len(s.content)%2 != 0 {
			return nil, false
		}
		states = append(states, s)
	}
	return states, true
}

// stillDeadline is by how many ms two readings of one deadline may differ: the server may have read its clocks at different times.
const stillDeadline = 50

// changed reports whether a command between the two readings has changed the key.
func changed(before, after state) bool {
	if before.kind != after.kind || before.expires != after.expires || !slices.Equal(before.content, after.content) {
		return true
	}
	diff := after.deadline - before.deadline
	return diff > stillDeadline || diff < -stillDeadline
}

func anyChanged(before, after []state) bool {
	for i := range before {
		if changed(before[i], after[i]) {
			return true
		}
	}
	return false
}

// owners returns what names the owners of a lock: the value of a string, the fields of a hash without that for Redisson's mode.
func (s *state) owners() (list []string) {
	switch s.kind {
	case "string":
		list = s.content
	case "hash":
		for i := 0; i < len(s.content); i += 2 {
			if s.content[i] != "mode" {
				list = append(list, s.content[i])
			}
		}
	}
	return list
}

// ownerText names the owners for the log.
func (s *state) ownerText() string {
	if s.kind == "none" {
		return "nobody"
	}
	return strings.Join(s.owners(), " ")
}

// has reports whether all owners of the other state own this one.
func (s *state) has(other *state) bool {
	if s.kind != other.kind {
		return false
	}
	mine := s.owners()
	for _, owner := range other.owners() {
		if !slices.Contains(mine, owner) {
			return false
		}
	}
	return true
}

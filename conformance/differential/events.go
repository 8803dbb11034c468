package main

import (
	"fmt"
	"slices"
	"strings"
)

// listener has two connections that are subscribed to keyspace notifications, one to each server.
type listener struct {
	*pair
	marks int
}

// marker is a channel. A message in it tells the listener that it has heard all earlier notifications.
const marker = "differential:marker"

func (l *listener) open() error {
	_, _, err1 := l.do("PSUBSCRIBE", "__keyevent@*__:*")
	_, _, err2 := l.do("SUBSCRIBE", marker)
	if err1 != nil {
		return err1
	}
	return err2
}

// heard returns the notifications since the last call. It publishes a marker, and reads until the marker: the notifications of all
// earlier commands come before it.
func (l *listener) heard(control *pair) (ours, theirs []string, err error) {
	l.marks++
	mark := fmt.Sprint(l.marks)
	if _, _, err := control.do("PUBLISH", marker, mark); err != nil {
		return nil, nil, err
	}
	if ours, err = l.ours.until(mark); err != nil {
		return nil, nil, fmt.Errorf("lockstep, notifications: %w", err)
	}
	if theirs, err = l.theirs.until(mark); err != nil {
		return nil, nil, fmt.Errorf("redis, notifications: %w", err)
	}
	return ours, theirs, nil
}

// until returns the messages that come before a mark. It renders a message as "channel key".
func (c *conn) until(mark string) (list []string, err error) {
	for {
		v, err := c.receive()
		if err != nil {
			return nil, err
		}
		text := func(i int) string { return v.Elems[i].Text }
		switch {
		case len(v.Elems) == 4:
			list = append(list, fmt.Sprintf("%s %q", strings.TrimPrefix(text(2), "__keyevent@"), text(3)))
		case len(v.Elems) == 3 && text(2) == mark:
			return list, nil
		default:
			return nil, fmt.Errorf("unexpected: %s", strings.Join(v.Lines(), " "))
		}
	}
}

// skip drops the notifications since the last call of heard.
func (l *listener) skip(control *pair) error {
	_, _, err := l.heard(control)
	return err
}

// compare compares the notifications since the last call of heard.
func (l *listener) compare(control *pair, has traits) (*difference, error) {
	ours, theirs, err := l.heard(control)
	if err != nil {
		return nil, err
	}
	return compareEvents(ours, theirs, has), nil
}

// compareEvents compares notifications. It ignores two undefined things: the order of SORT's lookups, and when a server notices an
// expired key.
func compareEvents(ours, theirs []string, has traits) *difference {
	if has.sorts {
		sortMissed(ours)
		sortMissed(theirs)
	}
	if slices.Equal(ours, theirs) {
		return nil
	}
	d := &difference{what: "keyspace notifications", ours: ours, theirs: theirs}
	if !slices.Equal(slices.DeleteFunc(slices.Clone(ours), isExpired), slices.DeleteFunc(slices.Clone(theirs), isExpired)) {
		return d
	}
	a, b := byKey(ours), byKey(theirs)
	for key := range b {
		if !slices.Equal(a[key], b[key]) {
			return d
		}
	}
	if len(a) != len(b) {
		return d
	}
	return nil
}

// byKey sorts events, each of the form "db__:event key", by database and key.
func byKey(list []string) map[string][]string {
	m := map[string][]string{}
	for _, e := range list {
		db, rest, _ := strings.Cut(e, "__:")
		_, key, _ := strings.Cut(rest, " ")
		m[db+" "+key] = append(m[db+" "+key], rest)
	}
	return m
}

// sortMissed sorts the keymiss events of keys that were looked up one after the other.
func sortMissed(list []string) {
	for from := 0; from < len(list); {
		to := from
		for to < len(list) && strings.Contains(list[to], "__:keymiss ") {
			to++
		}
		slices.Sort(list[from:to])
		from = to + 1
	}
}

func isExpired(event string) bool { return strings.Contains(event, "__:expired ") }

// expiresAtOnce reports whether a command may leave a key whose time to live is already over, as SET with EXAT or PXAT can.
func expiresAtOnce(args []string) bool {
	at := slices.ContainsFunc(args, func(a string) bool { return strings.EqualFold(a, "EXAT") || strings.EqualFold(a, "PXAT") })
	return at && slices.Contains(args, "1")
}

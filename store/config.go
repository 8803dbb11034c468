package store

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ParamEvents is the parameter that says which keyspace notifications are
// published.
const ParamEvents = "notify-keyspace-events"

// ParamChannels is the parameter that says which channels a new user may use.
const ParamChannels = "acl-pubsub-default"

// Parameters that hold for the whole cluster are part of the replicated state:
// every node and every later leader has them, and they survive a restart. Which
// ones there are and which values are legal is the server's business; the store
// acts on those that concern evaluation.

// config are the replicated parameters that have been set. It is replaced, never
// changed, so a snapshot may keep it.
type config struct {
	values map[string]string
	events eventClass

	memory    int64 // see ParamMaxMemory …
	memorySet bool  // … if it has been set
	entry     int64 // see ParamMaxEntry; 0: it has not been set

	forms *forms // see form
}

// with returns the configuration with one parameter changed.
func (c config) with(name, value string) config {
	values := maps.Clone(c.values)
	if values == nil {
		values = map[string]string{}
	}
	values[name] = value
	c.values = values
	switch name {
	case ParamEvents:
		// A value that is none turns everything off, on every node alike.
		c.events, _ = parseEvents(value)
	case ParamMaxMemory:
		c.memory, c.memorySet = ParseMemory(value)
	case ParamMaxEntry:
		n, _ := ParseMemory(value)
		c.entry = min(n, MaxEntry)
	default:
		if FormParam(name) {
			c.forms = c.withForm(name, value)
		}
	}
	return c
}

// names returns the parameters that have been set, in order.
func (c config) names() []string { return slices.Sorted(maps.Keys(c.values)) }

// Config returns the value of a parameter of the cluster; false if it has never
// been set.
func (s *Store) Config(name string) (string, bool) {
	value, ok := s.config.values[name]
	return value, ok
}

// Config returns the value of a parameter of the cluster; false if it has never
// been set.
func (t *Txn) Config(name string) (string, bool) {
	value, ok := t.config.values[name]
	return value, ok
}

// SetConfig sets a parameter of the cluster.
func (t *Txn) SetConfig(name, value string) {
	t.ws.begin(opConfig, t.ws.db)
	t.ws.newer = t.ws.newer || FormParam(name)
	t.ws.str(name)
	t.ws.str(value)
	old, events := t.config, t.events
	t.undo(func() { t.config, t.events = old, events })
	t.config = t.config.with(name, value)
	t.events = t.config.events
}

// ParseMemory reads an amount of memory: k, m and g count in thousands, kb, mb
// and gb in 1024s.
func ParseMemory(s string) (int64, bool) {
	digits := strings.TrimRight(s, "bBkKmMgG")
	unit := int64(0)
	switch strings.ToLower(s[len(digits):]) {
	case "", "b":
		unit = 1
	case "k":
		unit = 1000
	case "kb":
		unit = 1 << 10
	case "m":
		unit = 1000 * 1000
	case "mb":
		unit = 1 << 20
	case "g":
		unit = 1000 * 1000 * 1000
	case "gb":
		unit = 1 << 30
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if unit == 0 || err != nil || n < 0 || n > (1<<63-1)/unit {
		return 0, false
	}
	return n * unit, true
}

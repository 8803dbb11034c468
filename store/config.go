package store

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ParamEvents is the parameter that selects the keyspace notifications to publish.
const ParamEvents = "notify-keyspace-events"

// ParamChannels is the parameter that sets which channels a new user may use.
const ParamChannels = "acl-pubsub-default"

// The parameters of the whole cluster are replicated state. The server decides which are legal; the store acts on those that affect
// evaluation.

// config holds the replicated parameters that were set. A change makes a new config, because snapshots keep the old one.
type config struct {
	values map[string]string
	events eventClass

	memory    int64 // the value of ParamMaxMemory
	memorySet bool  // whether ParamMaxMemory was set to a valid value
	entry     int64 // the value of ParamMaxEntry; 0 means that it is not set

	forms *forms // the limits that parameters have set (config.form)
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
		// An invalid value turns all events off, the same on every node.
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

// names returns the names of the parameters that were set, sorted.
func (c config) names() []string { return slices.Sorted(maps.Keys(c.values)) }

// Parameters are the values of the cluster parameters at one time, without the parameters that had never been set.
type Parameters struct{ values map[string]string }

// Get returns the value of a cluster parameter, or false if it was never set.
func (p Parameters) Get(name string) (string, bool) {
	value, ok := p.values[name]
	return value, ok
}

// Parameters returns the current cluster parameters. A later change of the state does not change the result.
func (s *Store) Parameters() Parameters { return Parameters{s.config.values} }

// Config returns the value that a cluster parameter has after the transaction's writes so far, or false if it was never set.
func (t *Txn) Config(name string) (string, bool) {
	value, ok := t.config.values[name]
	return value, ok
}

// SetConfig sets a cluster parameter.
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

// ParseMemory parses an amount of memory in bytes. The units k, m and g are powers of 1000; kb, mb and gb are powers of
// 1024.
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

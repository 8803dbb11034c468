package store

import (
	"maps"
	"slices"
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
}

// with returns the configuration with one parameter changed.
func (c config) with(name, value string) config {
	values := maps.Clone(c.values)
	if values == nil {
		values = map[string]string{}
	}
	values[name] = value
	c.values = values
	if name == ParamEvents {
		// A value that is none turns everything off, on every node alike.
		c.events, _ = parseEvents(value)
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
	t.ws.str(name)
	t.ws.str(value)
	old, events := t.config, t.events
	t.undo(func() { t.config, t.events = old, events })
	t.config = t.config.with(name, value)
	t.events = t.config.events
}

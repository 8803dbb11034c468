package datadir

import (
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/roster"
)

// configLog remembers the latest configurations among the entries that were read or written. At the start, Raft reads the log.
type configLog struct {
	mu   sync.Mutex
	list []configEntry // at most roster.MaxMembers, ordered by index
}

type configEntry struct {
	index uint64
	conf  raft.Configuration
}

// note records the configuration in an entry that was read or written; it ignores other entries.
func (c *configLog) note(l *raft.Log) {
	if l.Type != raft.LogConfiguration {
		return
	}
	conf, err := roster.ReadConfiguration(l.Data)
	if err != nil {
		return // an earlier version of lockstep wrote the configuration; nothing is checked against it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at, known := slices.BinarySearchFunc(c.list, l.Index, func(e configEntry, index uint64) int {
		switch {
		case e.index < index:
			return -1
		case e.index > index:
			return 1
		}
		return 0
	})
	if known {
		c.list[at].conf = conf
		return
	}
	c.list = slices.Insert(c.list, at, configEntry{l.Index, conf})
	if over := len(c.list) - roster.MaxMembers; over > 0 {
		c.list = slices.Delete(c.list, 0, over)
	}
}

// cut forgets the configurations whose index is first or higher.
func (c *configLog) cut(first uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = slices.DeleteFunc(c.list, func(e configEntry) bool { return e.index >= first })
}

// before returns the latest known configuration whose own index is below the parameter index, from the log or from the newest snapshot.
func (c *configLog) before(index uint64, snap raft.SnapshotMeta) (conf raft.Configuration) {
	at := uint64(0)
	if snap.ConfigurationIndex < index {
		conf, at = snap.Configuration, snap.ConfigurationIndex
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.list {
		if e.index < index && e.index > at {
			conf = e.conf
		}
	}
	return conf
}

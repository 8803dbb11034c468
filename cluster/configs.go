package cluster

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/raft"
)

// What a configuration that a peer sends must be, before Raft sees it: hashicorp/raft
// panics if it cannot be read, and goes on with one that has no voter, for good.

// maxMembers is more than any cluster has.
const maxMembers = 64

// isName fails if something cannot be the id of a node.
func isName(id string) error {
	if id == "" || len(id) > maxGreeting || !utf8.ValidString(id) || strings.ContainsAny(id, " ,=") || strings.ContainsFunc(id, unicode.IsControl) {
		return fmt.Errorf("%q is no id: use a name without spaces, commas or equal signs, such as n4", clip(id))
	}
	return nil
}

// isAddress fails if something cannot be the address of a port.
func isAddress(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	bad := err != nil || len(addr) > maxGreeting || !utf8.ValidString(host) ||
		strings.ContainsAny(host, " ,=/\"'") || strings.ContainsFunc(host, unicode.IsControl)
	if number, err := strconv.ParseUint(port, 10, 16); bad || err != nil || number == 0 {
		return fmt.Errorf("%q is no address: want host:port", clip(addr))
	}
	return nil
}

// readConfiguration decodes what Raft has encoded, and fails on what it would never make.
func readConfiguration(data []byte) (conf raft.Configuration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("its configuration cannot be read")
		}
	}()
	conf = raft.DecodeConfiguration(data)
	ids, addrs, voters := map[raft.ServerID]bool{}, map[raft.ServerAddress]bool{}, 0
	for _, s := range conf.Servers {
		if err := errors.Join(isName(string(s.ID)), isAddress(string(s.Address))); err != nil {
			return conf, fmt.Errorf("its configuration: %w", err)
		}
		switch {
		case ids[s.ID] || addrs[s.Address]:
			return conf, fmt.Errorf("its configuration has %s or %s twice", s.ID, s.Address)
		case s.Suffrage == raft.Voter:
			voters++
		case s.Suffrage != raft.Nonvoter:
			return conf, fmt.Errorf("its configuration gives %s the suffrage %d", s.ID, s.Suffrage)
		}
		ids[s.ID], addrs[s.Address] = true, true
	}
	if voters == 0 || len(conf.Servers) > maxMembers {
		return conf, fmt.Errorf("its configuration has %d members, of which %d vote", len(conf.Servers), voters)
	}
	return conf, nil
}

// changes counts the members in which two configurations differ.
func changes(a, b raft.Configuration) (n int) {
	for _, s := range a.Servers {
		if !slices.Contains(b.Servers, s) {
			n++
		}
	}
	for _, s := range b.Servers {
		same := func(o raft.Server) bool { return o.ID == s.ID }
		if !slices.ContainsFunc(a.Servers, same) {
			n++
		}
	}
	return n
}

// configLog knows the configurations that are in the log, as it is read at the start and
// written from then on.
type configLog struct {
	mu   sync.Mutex
	list []configEntry // by index
}

type configEntry struct {
	index uint64
	conf  raft.Configuration
}

// note takes in an entry that has been read, or written.
func (c *configLog) note(l *raft.Log) {
	if l.Type != raft.LogConfiguration {
		return
	}
	conf, err := readConfiguration(l.Data)
	if err != nil {
		return // of an earlier version; what comes next is not compared with it
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
	if over := len(c.list) - maxMembers; over > 0 {
		c.list = slices.Delete(c.list, 0, over)
	}
}

// cut forgets those from an index on.
func (c *configLog) cut(first uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = slices.DeleteFunc(c.list, func(e configEntry) bool { return e.index >= first })
}

// before is the configuration in force before an index; snap is the newest snapshot.
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

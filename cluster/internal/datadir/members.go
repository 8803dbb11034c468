package datadir

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// ErrOtherDirectory means that a node has a member's id, but not the directory recorded for that member.
var ErrOtherDirectory = errors.New("cluster: this node is known with another data directory")

// metPeer records the data directory that a member had at the first contact.
type metPeer struct {
	Directory string `json:"directory"`
	// Since is the index of the latest committed configuration that has the member (ForgetRemoved), or of the one at the first contact.
	Since uint64 `json:"since"`
}

// Name returns the name of this directory.
func (d *Dir) Name() string {
	d.naming.RLock()
	defer d.naming.RUnlock()
	return d.rec.Directory
}

// Met reports whether the data directory of the node id is known, and whether the parameter directory is its name. A node knows
// its own directory.
func (d *Dir) Met(id, directory []byte) (met, same bool) {
	d.naming.RLock()
	defer d.naming.RUnlock()
	if string(id) == d.rec.ID {
		return true, string(directory) == d.rec.Directory
	}
	p, met := d.rec.Peers[string(id)]
	return met, p.Directory == string(directory)
}

// Knows reports whether the data directory of the node id is known, and the parameter directory is its name.
func (d *Dir) Knows(id, directory []byte) bool {
	_, same := d.Met(id, directory)
	return same
}

// NewlyRefused records that a node is refused because of its directory. It returns false if the last refusal of this id was for that
// directory.
func (d *Dir) NewlyRefused(id, directory string) bool {
	d.naming.Lock()
	defer d.naming.Unlock()
	if d.refused[id] == directory {
		return false
	}
	if d.refused == nil {
		d.refused = map[string]string{}
	}
	d.refused[id] = directory
	return true
}

// Remember records a member's directory at the first contact, under the configuration at since. It fails if another directory is
// recorded.
func (d *Dir) Remember(id, directory string, since uint64) error {
	return d.keepPeers(func(peers map[string]metPeer) error {
		p, met := peers[id]
		switch {
		case !met:
			peers[id] = metPeer{directory, since}
		case p.Directory != directory:
			return fmt.Errorf("%s: %w", id, ErrOtherDirectory)
		}
		return nil
	})
}

// ForgetRemoved forgets nodes that the committed configuration at index lacks, unless their Since is index or later: a restarted Raft
// commits earlier configurations again.
func (d *Dir) ForgetRemoved(index uint64, members []string) error {
	return d.keepPeers(func(peers map[string]metPeer) error {
		for id, p := range peers {
			switch {
			case p.Since >= index:
			case slices.Contains(members, id):
				peers[id] = metPeer{p.Directory, index}
			default:
				delete(peers, id)
			}
		}
		return nil
	})
}

// ForgetBefore forgets nodes whose Since is below index, that of a snapshot's configuration: they may have joined again with another
// directory.
func (d *Dir) ForgetBefore(index uint64) error {
	return d.keepPeers(func(peers map[string]metPeer) error {
		maps.DeleteFunc(peers, func(_ string, p metPeer) bool { return p.Since < index })
		return nil
	})
}

// keepPeers changes the record of known members by the function change, and writes node.json if the record differs.
func (d *Dir) keepPeers(change func(map[string]metPeer) error) error {
	return d.amend(func(rec *nodeRecord) (bool, error) {
		peers := map[string]metPeer{}
		maps.Copy(peers, rec.Peers)
		err := change(peers)
		write := !maps.Equal(peers, rec.Peers)
		rec.Peers = peers
		return write, err
	})
}

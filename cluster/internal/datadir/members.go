package datadir

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// ErrOtherDirectory: a member's id, and not the directory that it was met with.
var ErrOtherDirectory = errors.New("cluster: this node is known with another data directory")

// metPeer is the directory with which a member was met.
type metPeer struct {
	Directory string `json:"directory"`
	// Since is the index of the latest configuration that had the member, or of
	// the one that was in force when it was met.
	Since uint64 `json:"since"`
}

// Name is the name of this directory.
func (d *Dir) Name() string {
	d.naming.RLock()
	defer d.naming.RUnlock()
	return d.rec.Directory
}

// Met reports whether a node has been met, and whether it was with this directory.
func (d *Dir) Met(id, directory []byte) (met, same bool) {
	d.naming.RLock()
	defer d.naming.RUnlock()
	if string(id) == d.rec.ID {
		return true, string(directory) == d.rec.Directory
	}
	p, met := d.rec.Peers[string(id)]
	return met, p.Directory == string(directory)
}

// Knows reports whether a node is this one, or has been met as a member with this directory.
func (d *Dir) Knows(id, directory []byte) bool {
	_, same := d.Met(id, directory)
	return same
}

// NewlyRefused notes that a node is refused for its directory, and reports whether that is
// news.
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

// Remember notes with which directory a member has been met, at a configuration.
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

// ForgetRemoved forgets the nodes that the committed configuration at an index does not
// have: one that is taken in again may have another directory. After a restart some
// configurations are committed again.
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

// ForgetBefore forgets the nodes that were last members before the configuration of a
// snapshot: in between they may have been removed and taken in again.
func (d *Dir) ForgetBefore(index uint64) error {
	return d.keepPeers(func(peers map[string]metPeer) error {
		maps.DeleteFunc(peers, func(_ string, p metPeer) bool { return p.Since < index })
		return nil
	})
}

// keepPeers writes whom this node has met, if that changes.
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

package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// errOtherDirectory: a member's id, and not the directory that it was met with.
var errOtherDirectory = errors.New("cluster: this node is known with another data directory")

// metPeer is the directory with which a member was met.
type metPeer struct {
	Directory string `json:"directory"`
	// Since is the index of the latest configuration that had the member, or of
	// the one that was in force when it was met.
	Since uint64 `json:"since"`
}

// directory is the name of this directory.
func (st *storage) directory() string {
	st.naming.RLock()
	defer st.naming.RUnlock()
	return st.rec.Directory
}

// met reports whether a node has been met, and whether it was with this directory.
func (st *storage) met(id, directory []byte) (met, same bool) {
	st.naming.RLock()
	defer st.naming.RUnlock()
	if string(id) == st.rec.ID {
		return true, string(directory) == st.rec.Directory
	}
	p, met := st.rec.Peers[string(id)]
	return met, p.Directory == string(directory)
}

// knows reports whether a node is this one, or has been met as a member with this directory.
func (st *storage) knows(id, directory []byte) bool {
	_, same := st.met(id, directory)
	return same
}

// refuse reports whether it is news that a node has another directory.
func (st *storage) refuse(id, directory string) bool {
	st.naming.Lock()
	defer st.naming.Unlock()
	if st.refused[id] == directory {
		return false
	}
	if st.refused == nil {
		st.refused = map[string]string{}
	}
	st.refused[id] = directory
	return true
}

// befriend notes with which directory a member has been met, at a configuration.
func (st *storage) befriend(id, directory string, since uint64) error {
	return st.keepPeers(func(peers map[string]metPeer) error {
		p, met := peers[id]
		switch {
		case !met:
			peers[id] = metPeer{directory, since}
		case p.Directory != directory:
			return fmt.Errorf("%s: %w", id, errOtherDirectory)
		}
		return nil
	})
}

// reconfigured forgets whom the committed configuration at an index does not
// have: who is taken in again may have another directory. After a restart some
// are committed again.
func (st *storage) reconfigured(index uint64, members []string) error {
	return st.keepPeers(func(peers map[string]metPeer) error {
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

// skipped forgets whom a node knows from before the configuration of a snapshot:
// in between they may have been removed and taken in again.
func (st *storage) skipped(index uint64) error {
	return st.keepPeers(func(peers map[string]metPeer) error {
		maps.DeleteFunc(peers, func(_ string, p metPeer) bool { return p.Since < index })
		return nil
	})
}

// keepPeers writes whom this node has met, if that changes.
func (st *storage) keepPeers(change func(map[string]metPeer) error) error {
	return st.amend(func(rec *nodeRecord) (bool, error) {
		peers := map[string]metPeer{}
		maps.Copy(peers, rec.Peers)
		err := change(peers)
		write := !maps.Equal(peers, rec.Peers)
		rec.Peers = peers
		return write, err
	})
}

package server

import "github.com/lockstep-io/lockstep/store"

// addSubscribers adds this node's subscribers to what the leader says of the clients that wait for locks. The leader knows its own.
func (s *session) addSubscribers(cmd *store.Command, args [][]byte, r store.Reply) store.Reply {
	if !s.srv.sight[cmd] {
		return r
	}
	at := s.srv.backend.Topology()
	if at.Leader == at.Self {
		return r
	}
	return store.SubscribersHere(cmd, args, r, at.Self, s.srv.hub.Subscribers)
}

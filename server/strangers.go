package server

import (
	"container/list"
	"net/netip"
)

// Strangers are clients that have not authenticated. New clients get their places (makeRoom). But a client with a right password needs its
// place until the node has read its AUTH, so the oldest stranger does not always go first.

// strangers are the clients that may be cut off to make room, in this order:
//
//   - heard: those who have had their turn, in the order of their first turns.
//   - others: those of whom nothing has been read, and those whose commands are being run, in order of arrival.
//   - familiar: as in others, but at addresses of earlier logins. With more than half of the places, they go before others.
//
// A client whose password is right as far as this node knows is in no list while the node asks the leader. Server.mu guards all fields.
type strangers struct {
	heard, others, familiar list.List // of *session

	met map[netip.Addr]struct{} // addresses at which somebody has logged in
}

// maxMet bounds the number of addresses in strangers.met.
const maxMet = 1024

// enter adds a new session.
func (l *strangers) enter(s *session) {
	if _, s.familiar = l.met[s.from]; s.familiar {
		s.waitsIn(&l.familiar)
	} else {
		s.waitsIn(&l.others)
	}
}

// meets makes an address familiar: somebody has logged in there.
func (srv *Server) meets(from netip.Addr) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	met := srv.strangers.met
	if _, ok := met[from]; ok || !from.IsValid() {
		return
	}
	for other := range met {
		if len(met) < maxMet {
			break
		}
		delete(met, other) // any address will do
	}
	met[from] = struct{}{}
}

// waitsIn moves a session to the end of l, a list of strangers. If l is nil, the session is then in no list.
func (s *session) waitsIn(l *list.List) {
	if s.stranger != nil {
		s.among.Remove(s.stranger)
		s.stranger = nil
	}
	if s.among = l; l != nil {
		s.stranger = l.PushBack(s)
	}
}

// hears puts a stranger who has had its turn into the list heard.
func (srv *Server) hears(s *session) {
	if !s.needsAuth() || !s.spoke {
		return
	}
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if l := &srv.strangers.heard; s.among != l && srv.sessions[s.id] == s {
		s.waitsIn(l)
	}
}

// trusts lets a session keep its place until hears is called or, if the client authenticates, until the session ends.
func (srv *Server) trusts(s *session) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	s.waitsIn(nil)
}

// cutStranger cuts off a stranger, and reports whether there was one. The caller holds mu.
func (srv *Server) cutStranger() bool {
	of := &srv.strangers
	order := []*list.List{&of.heard, &of.others, &of.familiar}
	if int64(of.familiar.Len()) > srv.params.maxClients.Load()/2 {
		order[1], order[2] = order[2], order[1]
	}
	for _, l := range order {
		for e := l.Front(); e != nil; e = l.Front() {
			s := e.Value.(*session)
			if s.waitsIn(nil); s.needsAuth() && !s.cutOff {
				srv.cut(s)
				return true
			}
		}
	}
	return false
}

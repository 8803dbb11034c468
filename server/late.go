package server

import "github.com/lockstep-io/lockstep/store"

// message is output that answers no command: what a subscription, CLIENT TRACKING or MONITOR sends.
type message struct {
	frame      []byte
	resp       int           // the protocol of the field frame; 0: its bytes are the same in all protocols
	told       *subscription // the subscription that it is for …
	notice     *notice       // … or what CLIENT TRACKING says …
	redirected bool          // … on behalf of another client
}

// subscription is a message to the subscribers of a name.
type subscription struct {
	kind subKind
	name string
	push store.Reply
}

// renew returns what the client must get, if anything, for a message that came during an EXEC, which may have changed the protocol or the
// subscriptions.
func (s *session) renew(m *message) []byte {
	resp := s.protocol()
	switch {
	case m.told != nil:
		if !s.srv.hub.has(s, m.told.kind, m.told.name) {
			return nil
		}
		if resp != m.resp {
			return appendReply(nil, &m.told.push, resp)
		}
	case m.notice != nil:
		return s.srv.hub.tracker.renew(s, m)
	case m.resp != 0 && m.resp != resp:
		return nil
	}
	return m.frame
}

// has reports whether a session has subscribed to a name.
func (h *Hub) has(s *session, kind subKind, name string) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	_, is := s.subs[kind].get(name)
	return is
}

// renew does for a message of CLIENT TRACKING what session.renew does.
func (t *tracker) renew(s *session, m *message) []byte {
	if !s.hears(m.redirected) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return m.notice.frame(s.protocol())
}

// hears reports whether the session can get tracking messages: with RESP2, only redirected ones while it has a subscription.
func (s *session) hears(redirected bool) bool {
	return s.protocol() > 2 || redirected && s.subscriber()
}

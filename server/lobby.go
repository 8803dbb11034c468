package server

import (
	"crypto/tls"
	"net"
	"net/netip"
	"time"
)

// The lobby has clients whose address has maxFromOne handshakes in progress. Nothing of what they have sent has been read yet,
// so each takes little memory. They go in one after the other, when a handshake of their address ends. While they wait, a
// handshake that has waited for its client for clientPatience gives up its place. So a client comes in beside a flood from its own
// address, a moment later than without it; if it were refused at once, it would hardly ever come in.

const (
	// maxLobby is how many clients the lobby has room for, and maxLobbyOne for how many of one address. With slow signatures these
	// wait for some three seconds: if many more waited, none would come in before its time is over.
	maxLobby    = 1024
	maxLobbyOne = 3 * maxFromOne
	// lookPause is how often the lobby looks at the handshakes of the addresses whose clients wait …
	lookPause = 50 * time.Millisecond
	// … and clientLooks is how many looks may find a handshake waiting for its client …
	clientLooks = 10
	// … and lobbyLooks how many a client may wait in the lobby.
	lobbyLooks = int(handshakeTime / lookPause)
)

// lobby is guarded by handshakes.mu.
type lobby struct {
	callers map[netip.Addr][]*caller // in order of arrival
	count   int
	looks   *time.Timer // nil: nobody waits
}

// caller is a client before its handshake.
type caller struct {
	conn   net.Conn
	from   netip.Addr
	config *tls.Config
	now    func() time.Time
	then   func(*wire)
	looks  int // how many looks have found it in the lobby
}

// receive begins the handshake of a caller, or lets it wait in the lobby. It returns false if there is no room.
func (h *handshakes) receive(c *caller) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.over:
		return false
	case len(h.open[c.from]) < maxFromOne && len(h.lobby.callers[c.from]) == 0:
		h.start(c)
		return true
	case len(h.lobby.callers[c.from]) >= maxLobbyOne || h.lobby.count >= maxLobby && !h.makeRoom(c.from):
		h.note(c.conn.RemoteAddr().String(), errHandshakeMany, c.now())
		return false
	}
	l := &h.lobby
	l.callers[c.from] = append(l.callers[c.from], c)
	if l.count++; l.looks == nil {
		l.looks = time.AfterFunc(lookPause, h.look)
	}
	return true
}

// makeRoom sends the last caller of the address with the most away, unless the room is for one of the same address. The caller
// holds mu.
func (h *handshakes) makeRoom(from netip.Addr) bool {
	most := crowded(h.lobby.callers)
	list := h.lobby.callers[most]
	if len(list) <= len(h.lobby.callers[from])+1 {
		return false
	}
	h.sendAway(list[len(list)-1])
	h.lobby.set(most, list[:len(list)-1])
	return true
}

// sendAway refuses a caller. The caller of sendAway holds mu.
func (h *handshakes) sendAway(c *caller) {
	h.note(c.conn.RemoteAddr().String(), errHandshakeMany, c.now())
	_ = c.conn.Close()
}

// set replaces the callers of an address by fewer.
func (l *lobby) set(from netip.Addr, list []*caller) {
	l.count -= len(l.callers[from]) - len(list)
	if len(list) > 0 {
		l.callers[from] = list
	} else {
		delete(l.callers, from)
	}
}

// close closes the connections of all callers.
func (l *lobby) close() {
	for from, list := range l.callers {
		for _, c := range list {
			_ = c.conn.Close()
		}
		l.set(from, nil)
	}
}

// admit begins the handshakes of callers of an address that now have room. The caller holds mu.
func (h *handshakes) admit(from netip.Addr) {
	for list := h.lobby.callers[from]; len(list) > 0 && len(h.open[from]) < maxFromOne; list = h.lobby.callers[from] {
		h.lobby.set(from, list[1:])
		h.start(list[0])
	}
}

// look makes room for those who wait, and sends those away who have waited for too long.
func (h *handshakes) look() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for from, list := range h.lobby.callers {
		for _, c := range list {
			c.looks++
		}
		for len(list) > 0 && list[0].looks > lobbyLooks {
			h.sendAway(list[0])
			list = list[1:]
		}
		h.lobby.set(from, list)
		h.cutIdle(from, len(list))
		h.admit(from)
	}
	if h.lobby.looks = nil; h.lobby.count > 0 {
		h.lobby.looks = time.AfterFunc(lookPause, h.look)
	}
}

// cutIdle ends handshakes of an address that have waited for their clients for too long, most of them at most. The caller holds mu.
func (h *handshakes) cutIdle(from netip.Addr, most int) {
	var idle []*wire
	for _, w := range h.open[from] {
		if calls := w.Calls(); calls != w.seen || calls%2 == 0 {
			w.seen, w.looks = calls, 0
		} else if w.looks++; w.looks >= clientLooks && len(idle) < most {
			idle = append(idle, w)
		}
	}
	for _, w := range idle {
		h.cut(w)
	}
}

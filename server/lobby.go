package server

import (
	"crypto/tls"
	"net"
	"net/netip"
	"time"
)

// In the lobby, clients wait while their address has fromOne handshakes in progress. The server does not read from them yet. It ends
// handshakes of that address that wait too long for their own clients (clientLooks). So an honest client gets in beside a flood from its
// own address.
//
// A program that starts may open many connections at once. So while few clients wait, a client whom the server has answered has more time
// (answeredLooks).
//
// When the lobby is full, each newcomer ends a handshake of its address whose client does not answer (makeRoom).

const (
	// lobbyShare is how many clients may wait for each handshake that may be in progress; lobbyOne is the same for one address. Further
	// clients would wait in vain (lobbyLooks).
	lobbyShare, lobbyOne = 2, 3
	// lookPause is the time between two looks at the waiting clients and at the handshakes of their addresses.
	lookPause = 50 * time.Millisecond
	// If other clients wait, a handshake ends when clientLooks looks have found it waiting for its own client. The looks need not be
	// consecutive: sending byte by byte saves no handshake.
	clientLooks = 10
	// answeredLooks replaces clientLooks for a client whom the server has answered, while at most fromOne clients of the address wait.
	answeredLooks = 40
	// lobbyLooks is how many looks may find a client in the lobby: together they last as long as a handshake may.
	lobbyLooks = int(handshakeTime / lookPause)
)

// lobby is guarded by handshakes.mu.
type lobby struct {
	callers map[netip.Addr][]*caller // in order of arrival
	count   int
	looks   *time.Timer // calls handshakes.look; nil: nobody waits
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

// receive begins a caller's handshake or lets the caller wait in the lobby. It returns false without room. It blocks while too many cut
// handshakes have not ended.
func (h *handshakes) receive(c *caller) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.full() && !h.over {
		h.ended.Wait()
	}
	if h.over {
		return false
	}
	if !h.mayStart(c.from) && h.isFull(c.from) {
		h.makeRoom(c.from)
	}
	l := &h.lobby
	switch {
	case h.mayStart(c.from):
		h.start(c)
		return true
	case h.isFull(c.from):
		h.note(c.conn.RemoteAddr().String(), errHandshakeMany, c.now())
		return false
	}
	l.callers[c.from] = append(l.callers[c.from], c)
	if l.count++; l.looks == nil {
		l.looks = time.AfterFunc(lookPause, h.look)
	}
	return true
}

// mayStart reports whether a new caller of an address need not wait in the lobby. The caller of mayStart holds mu.
func (h *handshakes) mayStart(from netip.Addr) bool {
	return len(h.open[from]) < h.fromOne() && len(h.lobby.callers[from]) == 0
}

// isFull reports whether the lobby has no room for another caller of an address. The caller of isFull holds mu.
func (h *handshakes) isFull(from netip.Addr) bool {
	return len(h.lobby.callers[from]) >= lobbyOne*h.fromOne() || h.lobby.count >= lobbyShare*h.most
}

// makeRoom makes room in the lobby for a caller of an address. It ends a handshake of that address (silent), or else may send away a
// caller of the most crowded address. It must be called under mu.
func (h *handshakes) makeRoom(from netip.Addr) {
	if w := h.silent(from); w != nil {
		h.cut(w)
		h.admit(from)
		return
	}
	most := crowded(h.lobby.callers)
	if list := h.lobby.callers[most]; len(list) > len(h.lobby.callers[from])+1 {
		h.sendAway(list[0])
		h.lobby.set(most, list[1:])
	}
}

// silent returns the handshake of an address that may end for a newcomer: the oldest one that waits for a client whom the server has not
// answered. If there is none, a handshake that waits for an answered client may end, but only while these have more than half of the
// places: a flood would otherwise leave no client the time to reply. The caller holds mu.
func (h *handshakes) silent(from netip.Addr) *wire {
	var answered *wire
	n := 0
	for _, w := range h.open[from] {
		switch {
		case !w.WaitsForClient():
		case !w.Answered():
			return w
		default:
			if n++; n == 1 {
				answered = w
			}
		}
	}
	if n <= h.fromOne()/2 {
		return nil
	}
	return answered
}

// sendAway refuses a client in the lobby. It must be called under mu.
func (h *handshakes) sendAway(c *caller) {
	h.note(c.conn.RemoteAddr().String(), errHandshakeMany, c.now())
	_ = c.conn.Close()
}

// set replaces the list of the waiting callers of an address, and corrects l.count.
func (l *lobby) set(from netip.Addr, list []*caller) {
	l.count -= len(l.callers[from]) - len(list)
	if len(list) > 0 {
		l.callers[from] = list
	} else {
		delete(l.callers, from)
	}
}

// close empties the lobby, and closes the connections of all callers in it. The caller of close holds mu.
func (l *lobby) close() {
	for from, list := range l.callers {
		for _, c := range list {
			_ = c.conn.Close()
		}
		l.set(from, nil)
	}
}

// admit begins the handshakes of waiting callers of an address, as many as there is room for without ending another handshake. The
// caller holds mu.
func (h *handshakes) admit(from netip.Addr) {
	for list := h.lobby.callers[from]; len(list) > 0 && len(h.open[from]) < h.fromOne() && h.count < h.most && !h.full(); list = h.lobby.callers[from] {
		h.lobby.set(from, list[1:])
		h.start(list[0])
	}
}

// look runs every lookPause while callers wait. It sends away late ones, ends idle handshakes (cutIdle), and begins others in their
// places.
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

// cutIdle ends handshakes of an address whose clients have had their time, but no more than clients of the address wait. The caller holds
// mu.
func (h *handshakes) cutIdle(from netip.Addr, waiting int) {
	var idle []*wire
	for _, w := range h.open[from] {
		if w.WaitsForClient() {
			w.looks++
		}
		most := clientLooks
		if waiting <= h.fromOne() && w.Answered() {
			most = answeredLooks
		}
		if w.looks >= most && len(idle) < waiting {
			idle = append(idle, w)
		}
	}
	for _, w := range idle {
		h.cut(w)
	}
}

package server

import (
	"crypto/tls"
	"net"
	"net/netip"
	"time"
)

// In the lobby, clients wait for their handshakes to begin while their address has fromOne handshakes in progress. The
// server has not read their input yet, so each takes little memory. When a handshake of the address ends, the handshake of
// the next client begins. While clients wait, the server looks at the handshakes of their address every lookPause. It ends a
// handshake when clientLooks looks have found that the handshake waits for its own client. So an honest client gets in
// beside a flood from its own address, a moment later than without the flood. If the server refused the client at once, the
// client would hardly ever get in.
//
// A program that has just started may open many connections at once, and need a second or two for all of their handshakes.
// So while few clients wait, a client whom the server has answered has more time (answeredLooks).
//
// If clients come faster than their handshakes begin, the lobby fills up. Then each newcomer makes the server end one
// handshake of its address, whose client does not answer (makeRoom).

const (
	// lobbyShare is how many clients may wait in the lobby for each handshake that may be in progress. lobbyOne is how
	// many clients of one address may wait for each handshake of that address that may be in progress. If signatures are
	// slow, the last client in the queue of an address waits for some three seconds. If many more could wait, the last
	// ones would be sent away before their handshakes began (lobbyLooks).
	lobbyShare, lobbyOne = 2, 3
	// lookPause is the time between two looks at the waiting clients and at the handshakes of their addresses.
	lookPause = 50 * time.Millisecond
	// If other clients of an address wait, the server ends a handshake of that address when clientLooks looks have found the
	// handshake waiting for its own client. The looks need not be consecutive, so that a client cannot save its handshake by
	// sending byte by byte.
	clientLooks = 10
	// answeredLooks replaces clientLooks for a handshake whose client the server has answered, as long as no more than
	// fromOne clients of the address wait. So the last of these clients waits for some two seconds at most.
	answeredLooks = 40
	// lobbyLooks is how many looks may find a client in the lobby before the server sends the client away. Together they
	// take as long as a handshake may take.
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

// receive begins the handshake of a caller, or lets it wait in the lobby. It returns false if there is no room, or the
// server is closing. If too many handshakes that were cut off still have to end (full), receive waits. Meanwhile further
// callers wait in the kernel's queue.
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

// makeRoom makes room for a caller of an address for which the lobby is full. It ends the handshake of that address that the
// method silent chooses. If silent chooses none, makeRoom looks for the address with the most callers in the lobby. If that
// address has at least two callers more than the given one, makeRoom sends away the first of them. The caller of makeRoom
// holds mu.
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

// silent returns the oldest handshake of an address that waits for a client whom the server has not answered yet. If there
// is none, it looks at the handshakes that wait for clients whom the server has answered. If these take more than half of
// the places of the address, silent returns the oldest of them. Otherwise it returns nil, because each answer has cost a
// signature, and a flood sends ClientHellos faster than the server signs. If each newcomer ended such a handshake, no client
// would have the time to reply. The caller of silent holds mu.
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

// sendAway refuses a caller in the lobby. The caller has waited for too long, or must make room for one from another
// address. Whoever calls sendAway holds mu.
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

// look runs every lookPause while callers wait. It sends away callers that have waited for too long, ends handshakes whose
// clients have had their time (cutIdle), and begins handshakes in their places.
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

// cutIdle counts this look for each handshake of an address that waits for its client. It ends the handshakes whose clients
// have had their time (clientLooks, answeredLooks), but no more handshakes than clients of the address wait in the lobby. The
// caller holds mu.
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

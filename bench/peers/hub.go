package peers

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/bench/wire"
)

// hub is what the threads of one Redisson share. A published release wakes one waiting thread, not all.
type hub struct {
	mu     sync.Mutex
	conn   *wire.Resp
	topics map[string]*topic
	users  int           // number of sessions that use the hub
	broken chan struct{} // closed when the connection can no longer be read
	fault  error         // why it cannot be read; valid once broken is closed
}

// topic is a channel to which at least one session listens.
type topic struct {
	users     int
	confirmed chan struct{}
	latch     chan struct{}
}

// latchSize is more than the number of releases that can be published while nobody waits: each session releases once, and then
// waits itself.
const latchSize = 1 << 16

func newHub(conn *wire.Resp) *hub {
	h := &hub{conn: conn, topics: map[string]*topic{}, broken: make(chan struct{})}
	go h.listen()
	return h
}

// listen reads until the connection ends.
func (h *hub) listen() {
	defer close(h.broken)
	for {
		kind, name, err := readPush(h.conn)
		if err != nil {
			h.fault = err
			return
		}
		h.mu.Lock()
		t := h.topics[name]
		switch {
		case t == nil: // no session listens any more
		case kind == "subscribe":
			close(t.confirmed)
		case kind == "message":
			select {
			case t.latch <- struct{}{}:
			default: // the latch is full
			}
		}
		h.mu.Unlock()
	}
}

// readPush reads a message of a subscription, and returns its kind and its channel.
func readPush(c *wire.Resp) (kind, name string, err error) {
	head, err := c.Reply()
	if err != nil {
		return "", "", err
	}
	for i := range head.Int {
		reply, err := c.Reply()
		if err != nil {
			return "", "", err
		}
		switch i {
		case 0:
			kind = string(reply.Text)
		case 1:
			name = string(reply.Text)
		}
	}
	return kind, name, nil
}

var errHubBroken = errors.New("the subscriptions' connection is lost")

// subscribe makes a session listen to a channel. All sessions that listen to it share one subscription.
func (h *hub) subscribe(name string) (*topic, error) {
	h.mu.Lock()
	t := h.topics[name]
	if t == nil {
		t = &topic{confirmed: make(chan struct{}), latch: make(chan struct{}, latchSize)}
		h.topics[name] = t
		h.conn.Command("SUBSCRIBE", name)
		if err := h.conn.Flush(); err != nil {
			h.mu.Unlock()
			return nil, err
		}
	}
	t.users++
	h.mu.Unlock()
	select {
	case <-t.confirmed:
		return t, nil
	case <-h.broken:
		return nil, fmt.Errorf("%w: %w", errHubBroken, h.fault)
	}
}

// unsubscribe undoes one call of subscribe. It does not wait for the server's confirmation.
func (h *hub) unsubscribe(name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[name]
	if t.users--; t.users > 0 {
		return nil
	}
	delete(h.topics, name)
	h.conn.Command("UNSUBSCRIBE", name)
	return h.conn.Flush()
}

// wait waits until the latch opens or the time limit is over.
func (h *hub) wait(t *topic, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-t.latch:
		return nil
	case <-timer.C:
		return fmt.Errorf("no release was told within %v", limit)
	case <-h.broken:
		return fmt.Errorf("%w: %w", errHubBroken, h.fault)
	}
}

// join returns the hub of the system for one more session.
func (s *System) join(addr string) (*hub, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hub == nil {
		conn, err := s.dialResp(addr)
		if err != nil {
			return nil, err
		}
		s.hub = newHub(conn)
	}
	s.hub.users++
	return s.hub, nil
}

// leave ends a session's use of the hub. The last session to leave closes the hub.
func (s *System) leave(h *hub) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.users--; h.users > 0 {
		return nil
	}
	s.hub = nil
	err := h.conn.Close()
	<-h.broken
	return err
}

package cluster

import (
	"net"
	"os"
	"sync"
	"time"
)

// wires are the connections between nodes. While a test cuts them, nothing arrives and nobody is told. When the cut ends, those
// that lost something are closed.
type wires struct {
	mu    sync.Mutex
	at    map[string]string // node by peer address
	moved map[string]string // by an address that was given to another machine: the address to which it leads now (leadTo)
	cuts  map[[2]string]bool
	conns map[*wire]struct{}
	heals chan struct{} // closed and replaced when cuts end
	reach func(addr string, timeout time.Duration) (net.Conn, error)
}

func newWires() *wires {
	return &wires{at: map[string]string{}, moved: map[string]string{}, cuts: map[[2]string]bool{}, conns: map[*wire]struct{}{}, heals: make(chan struct{}),
		reach: func(addr string, timeout time.Duration) (net.Conn, error) {
			return net.DialTimeout("tcp", addr, timeout)
		}}
}

// attach has a node reach the others by these wires.
func (w *wires) attach(cfg *Config) {
	id := cfg.ID
	w.mu.Lock()
	w.at[cfg.PeerListen] = id
	w.mu.Unlock()
	cfg.dial = func(addr string, _ byte, timeout time.Duration) (net.Conn, error) { return w.dial(id, addr, timeout) }
}

func ends(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

// cut separates each of some nodes from each of the others.
func (w *wires) cut(some, others []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range some {
		for _, b := range others {
			w.cuts[ends(a, b)] = true
		}
	}
}

// heal ends all cuts.
func (w *wires) heal() {
	w.mu.Lock()
	clear(w.cuts)
	close(w.heals)
	w.heals = make(chan struct{})
	var torn []*wire
	for c := range w.conns {
		if c.torn {
			torn = append(torn, c)
		}
	}
	w.mu.Unlock()
	for _, c := range torn {
		c.Close()
	}
}

// leadTo makes an address lead to another one, as when it has been given to another
// machine.
func (w *wires) leadTo(from, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moved[from] = to
}

func (w *wires) dial(from, addr string, timeout time.Duration) (net.Conn, error) {
	deadline := time.After(timeout)
	for {
		w.mu.Lock()
		if to, moved := w.moved[addr]; moved {
			addr = to
		}
		to, heals := w.at[addr], w.heals
		is := w.cuts[ends(from, to)]
		w.mu.Unlock()
		if !is {
			conn, err := w.reach(addr, timeout)
			if err != nil {
				return nil, err
			}
			c := &wire{Conn: conn, w: w, between: ends(from, to)}
			w.mu.Lock()
			w.conns[c] = struct{}{}
			w.mu.Unlock()
			return c, nil
		}
		select {
		case <-heals:
		case <-deadline:
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
		}
	}
}

// wire is a connection, seen from the node that made it. A cut stops both directions.
type wire struct {
	net.Conn
	w       *wires
	between [2]string
	torn    bool // guarded by wires.mu
}

// lost reports whether bytes that are on the wire now do not arrive.
func (c *wire) lost() bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.torn = c.torn || c.w.cuts[c.between]
	return c.torn
}

func (c *wire) Write(b []byte) (int, error) {
	if c.lost() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *wire) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.lost() {
			return n, err
		}
	}
}

func (c *wire) Close() error {
	c.w.mu.Lock()
	delete(c.w.conns, c)
	c.w.mu.Unlock()
	return c.Conn.Close()
}

package peerport

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// names connects to peers by name. It keeps where each was last reached, so that nodes can elect a leader without a resolver.
type names struct {
	connect func(ctx context.Context, addr string) (net.Conn, error)

	mu   sync.Mutex
	last map[string]string // where each peer was last reached, by its address with the name; at most maxNames
}

const (
	// nameTime is how long an attempt waits for the resolver before it also tries the last address.
	nameTime = 100 * time.Millisecond
	// maxNames bounds names.last. Members change, and with them their names.
	maxNames = 64
)

// newNames uses a new resolver for each look-up. The default resolver shares a query, so one lost query would delay all callers.
func newNames() *names {
	return &names{last: map[string]string{}, connect: func(ctx context.Context, addr string) (net.Conn, error) {
		d := net.Dialer{Resolver: new(net.Resolver)}
		return d.DialContext(ctx, "tcp", addr)
	}}
}

// dial connects to an address. If its name is not resolved in time, dial also tries the peer's last address.
func (n *names) dial(ctx context.Context, addr string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(addr); err == nil {
		return n.connect(ctx, addr)
	}
	n.mu.Lock()
	last := n.last[addr]
	n.mu.Unlock()
	if last == "" {
		return n.byName(ctx, addr)
	}
	type result struct {
		conn net.Conn
		err  error
	}
	named := make(chan result, 1)
	go func() {
		conn, err := n.byName(ctx, addr)
		named <- result{conn, err}
	}()
	late := time.NewTimer(nameTime)
	defer late.Stop()
	select {
	case r := <-named:
		if _, unresolved := errors.AsType[*net.DNSError](r.err); !unresolved {
			return r.conn, r.err
		}
		named <- r
	case <-late.C:
	}
	conn, err := n.connect(ctx, last)
	if err != nil {
		r := <-named // the peer may have moved, and the resolver may only be slow
		return r.conn, r.err
	}
	go func() {
		if r := <-named; r.conn != nil {
			r.conn.Close()
		}
	}()
	return conn, nil
}

// byName connects to an address with a name, and notes where it has found the peer.
func (n *names) byName(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := n.connect(ctx, addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.last) >= maxNames {
		clear(n.last)
	}
	n.last[addr] = conn.RemoteAddr().String()
	return conn, nil
}

package peerport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errDown = errors.New("connection refused")

// at is a connection to an address.
type at struct {
	net.Conn
	addr   string
	closed *atomic.Int32
}

func (a at) RemoteAddr() net.Addr { return peerNetAddr(a.addr) }

func (a at) Close() error {
	a.closed.Add(1)
	return nil
}

// resolver answers for the name in tests.
type resolver struct {
	addr        string        // "": there is no such name
	after       time.Duration // how long the answer takes; an hour: there is none
	down        map[string]bool
	open, ended *atomic.Int32
}

func (r *resolver) connect(ctx context.Context, addr string) (net.Conn, error) {
	if addr == "node:6390" {
		select {
		case <-time.After(r.after):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if addr = r.addr; addr == "" {
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host"}}
		}
	}
	if r.down[addr] {
		return nil, fmt.Errorf("%s: %w", addr, errDown)
	}
	r.open.Add(1)
	return at{addr: addr, closed: r.ended}, nil
}

// If a peer's name is not resolved, its last address serves. If the peer has moved, even a slow resolver finds it.
func TestNames(t *testing.T) {
	const old, moved = "10.0.0.1:6390", "10.0.0.2:6390"
	for name, tc := range map[string]struct {
		fresh bool // the peer was never reached
		then  resolver
		want  string // "": no connection
		took  time.Duration
	}{
		"found":                           {then: resolver{addr: old}, want: old},
		"moved":                           {then: resolver{addr: moved}, want: moved},
		"no such name":                    {want: old},
		"no answer":                       {then: resolver{after: time.Hour}, want: old, took: nameTime},
		"slow answer":                     {then: resolver{addr: old, after: 2 * nameTime}, want: old, took: nameTime},
		"moved, slow answer":              {then: resolver{addr: moved, after: 2 * nameTime, down: map[string]bool{old: true}}, want: moved, took: 2 * nameTime},
		"down":                            {then: resolver{addr: old, down: map[string]bool{old: true}}},
		"no such name, and down":          {then: resolver{down: map[string]bool{old: true}}},
		"no answer, and down":             {then: resolver{after: time.Hour, down: map[string]bool{old: true}}, took: DialTimeout},
		"never reached, and no name":      {fresh: true},
		"never reached, slow answer":      {fresh: true, then: resolver{addr: moved, after: 2 * nameTime}, want: moved, took: 2 * nameTime},
		"never reached, and not resolved": {fresh: true, then: resolver{after: time.Hour}, took: DialTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var open, ended atomic.Int32
				r := &resolver{addr: old, open: &open, ended: &ended}
				n := &names{connect: r.connect, last: map[string]string{}}
				if !tc.fresh {
					if _, err := n.dial(t.Context(), "node:6390"); err != nil {
						t.Fatal(err)
					}
				}
				open.Store(0)
				*r = tc.then
				r.open, r.ended = &open, &ended
				ctx, cancel := context.WithTimeout(t.Context(), DialTimeout)
				defer cancel()
				began := time.Now()
				conn, err := n.dial(ctx, "node:6390")
				if took := time.Since(began); took != tc.took {
					t.Errorf("it took %v, want %v", took, tc.took)
				}
				switch {
				case tc.want == "" && err == nil:
					t.Errorf("connected to %v", conn.RemoteAddr())
				case tc.want != "" && (err != nil || conn.RemoteAddr().String() != tc.want):
					t.Errorf("got %v, %v, want %s", conn, err, tc.want)
				}
				if tc.then.down[old] && tc.then.addr == old && !errors.Is(err, errDown) {
					t.Errorf("the error is %v", err)
				}
				cancel()
				synctest.Wait()
				if want := max(open.Load()-1, 0); ended.Load() != want {
					t.Errorf("%d of %d connections were closed", ended.Load(), open.Load())
				}
			})
		})
	}
}

// Addresses without a name are not kept, and names are bounded.
func TestNamesAreBounded(t *testing.T) {
	var closed atomic.Int32
	n := &names{last: map[string]string{}, connect: func(_ context.Context, addr string) (net.Conn, error) { return at{addr: addr, closed: &closed}, nil }}
	for i := range 3 * maxNames {
		for _, addr := range []string{fmt.Sprintf("node%d:6390", i), fmt.Sprintf("10.0.%d.1:6390", i), fmt.Sprintf("[fe80::%x%%eth0]:6390", i)} {
			if _, err := n.dial(t.Context(), addr); err != nil {
				t.Fatal(err)
			}
			if len(n.last) > maxNames || n.last[fmt.Sprintf("10.0.%d.1:6390", i)] != "" {
				t.Fatalf("%d names are kept", len(n.last))
			}
		}
	}
}

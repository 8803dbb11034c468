package wire

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

// Traffic counts what a client, or all clients of a system, have sent and received.
type Traffic struct{ sent, received atomic.Int64 }

// Sent returns the number of bytes sent.
func (t *Traffic) Sent() int64 { return t.sent.Load() }

// Received returns the number of bytes received.
func (t *Traffic) Received() int64 { return t.received.Load() }

// counted is a connection that counts its bytes.
type counted struct {
	net.Conn
	traffic *Traffic
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.traffic.received.Add(int64(n))
	return n, err
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.traffic.sent.Add(int64(n))
	return n, err
}

const dialTimeout = 10 * time.Second

// Dial connects to an address, and counts the bytes of the connection into traffic.
func Dial(ctx context.Context, addr string, traffic *Traffic) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return counted{conn, traffic}, nil
}

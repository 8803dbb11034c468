package peerport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"
)

// Dialer calls the peer ports of other nodes.
type Dialer struct {
	gate      *peerGate  // nil: peers need not prove anything
	Strangers *Strangers // logs who turns this node away, and whom this node turns away
	// Network connects to an address. Tests replace it.
	Network func(addr string, proto byte, timeout time.Duration) (net.Conn, error)
}

// NewDialer returns a Dialer. If the configuration names files, NewDialer reads them.
func NewDialer(with TLS, wall func() time.Time, log *slog.Logger) (*Dialer, error) {
	gate, err := openGate(with, wall, log)
	return &Dialer{gate: gate, Strangers: newStrangers(log), Network: newNames().dialTCP}, err
}

// Reload reads the secrets or certificates again; after an error it keeps the old ones. Connections stay open in any case.
func (d *Dialer) Reload() error {
	if d.gate == nil {
		return nil
	}
	return d.gate.reload()
}

// Dial connects to a peer for one of the protocols. With a gate, both sides prove that they are peers, unless TLS is optional.
func (d *Dialer) Dial(addr string, proto byte, timeout time.Duration) (net.Conn, error) {
	if d.gate == nil {
		return d.dialPlain(addr, proto, timeout)
	}
	conn, err := d.dialOnly(addr, proto, timeout)
	if err != nil {
		return nil, err
	}
	within, err := d.gate.call(conn, addr, proto, timeout)
	switch {
	case err == nil:
		return within, nil
	case d.gate.cfg.Optional && speaksPlain(err):
		return d.dialPlain(addr, proto, timeout)
	}
	d.turnedAway(addr, err)
	if speaksPlain(err) {
		err = fmt.Errorf("%w: %w", errPlainPeer, err)
	}
	// Callers must see a failed dial, not a broken connection, because Raft repeats requests on broken connections.
	return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: peerNetAddr(addr), Err: err}
}

var errPlainPeer = errors.New("it speaks no TLS: if it is a port of clients, name a member's --peer-listen; if it is a member, give it this node's --peer-secret-file, or certificates, or start this node without")

// turnedAway logs which side does not trust the other, if that is why the call failed.
func (d *Dialer) turnedAway(addr string, err error) {
	op, _ := errors.AsType[*net.OpError](err)
	_, untrusted := errors.AsType[unproven](err)
	_, strange := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case op != nil && op.Op == "remote error":
		d.Strangers.Note(peerRefuses, addr, err)
	case untrusted || strange || op != nil && op.Op == "local error":
		d.Strangers.Note(PeerUntrusted, addr, err)
	}
}

// dialPlain does what Dial does without a gate: it connects without TLS, and sends the byte proto.
func (d *Dialer) dialPlain(addr string, proto byte, timeout time.Duration) (net.Conn, error) {
	conn, err := d.dialOnly(addr, proto, timeout)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write([]byte{proto}); err != nil {
		conn.Close()
		return nil, fmt.Errorf("the handshake with %s: %w", addr, err)
	}
	return conn, nil
}

// dialOnly connects and sends nothing.
func (d *Dialer) dialOnly(addr string, proto byte, timeout time.Duration) (net.Conn, error) {
	conn, err := d.Network(addr, proto, timeout)
	if err != nil {
		return nil, err
	}
	return quiet(conn), nil
}

// DialTCP connects by TCP. It remembers nothing of a peer.
func DialTCP(addr string, proto byte, timeout time.Duration) (net.Conn, error) {
	return newNames().dialTCP(addr, proto, timeout)
}

func (n *names) dialTCP(addr string, _ byte, timeout time.Duration) (net.Conn, error) {
	return dialAgain(timeout, func(ctx context.Context) (net.Conn, error) { return n.dial(ctx, addr) })
}

const (
	// againAfter is how long an attempt to connect may take until another one is made beside it.
	againAfter = 100 * time.Millisecond
	// maxAttempts bounds the attempts that are made beside each other.
	maxAttempts = 5
)

// dialAgain calls dial again after each againAfter, and returns the first result. Full queues drop requests, which the kernel repeats
// only after DialTimeout.
func dialAgain(timeout time.Duration, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result, maxAttempts)
	begun := 0
	begin := func() {
		begun++
		go func() {
			conn, err := dial(ctx)
			results <- result{conn, err}
		}()
	}
	begin()
	again := time.NewTicker(againAfter)
	defer again.Stop()
	for {
		select {
		case r := <-results:
			go func(others int) {
				for range others {
					if r := <-results; r.conn != nil {
						r.conn.Close()
					}
				}
			}(begun - 1)
			return r.conn, r.err
		case <-again.C:
			if begun < maxAttempts {
				begin()
			}
		}
	}
}

// Broken reports whether an error means that the connection was broken. A failed dial, a slow
// peer and a refusal do not count.
func Broken(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op != "dial" && !op.Timeout()
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

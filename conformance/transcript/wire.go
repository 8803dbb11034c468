package transcript

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"time"
)

// timeout bounds the wait for one reply: a reply that is late by so much is missing. It bounds sending likewise.
const timeout = 10 * time.Second

// wire is one connection and what has arrived on it.
type wire struct {
	conn   net.Conn
	r      *bufio.Reader
	closed bool
	id     string // client id, once it was asked for: a client that is blocked cannot be asked
}

func newWire(conn net.Conn) *wire { return &wire{conn: conn, r: bufio.NewReader(conn)} }

// send writes to the connection. That the server has closed it already is for the next read to tell: its last reply may
// still be waiting.
func (w *wire) send(b []byte) error {
	if w.closed {
		return errors.New("the connection is closed")
	}
	err := w.within(timeout, func() error {
		_, err := w.conn.Write(b)
		return err
	})
	if errors.Is(err, io.EOF) {
		w.closed = false
		return nil
	}
	return err
}

func (w *wire) read() (Value, error) {
	var v Value
	err := w.within(timeout, func() (err error) {
		v, err = ReadValue(w.r)
		return err
	})
	return v, err
}

func (w *wire) ask(args ...string) (Value, error) {
	if err := w.send(AppendCommand(nil, args...)); err != nil {
		return Value{}, err
	}
	return w.read()
}

// pending tells whether anything, a close included, arrives within d.
func (w *wire) pending(d time.Duration) bool {
	err := w.within(d, func() error {
		_, err := w.r.Peek(1)
		return err
	})
	return err == nil || w.closed
}

// within bounds what do reads or writes. It does not ask for the time: a timer moves the deadline into the past.
func (w *wire) within(d time.Duration, do func() error) error {
	fired := make(chan struct{})
	timer := time.AfterFunc(d, func() {
		defer close(fired)
		// A connection that refuses a deadline is a closed one, which ends the wait as well.
		_ = w.conn.SetDeadline(time.Unix(1, 0))
	})
	err := do()
	if !timer.Stop() {
		<-fired
		_ = w.conn.SetDeadline(time.Time{})
	}
	if isGone(err) {
		w.closed = true
		return io.EOF
	}
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return fmt.Errorf("nothing within %v", d)
	}
	return err
}

// gone are the errors that say that the other end has closed. A server that closes with unread input resets the
// connection; to a client that is the same. An in-memory connection returns io.ErrClosedPipe.
var gone = []error{io.EOF, syscall.ECONNRESET, syscall.EPIPE, io.ErrClosedPipe}

func isGone(err error) bool {
	return slices.ContainsFunc(gone, func(g error) bool { return errors.Is(err, g) })
}

func (w *wire) shut() {
	w.closed = true
	// Nothing is left to be lost: every reply has been read or is of no interest.
	_ = w.conn.Close()
}

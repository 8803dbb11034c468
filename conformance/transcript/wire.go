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

// timeout bounds the wait for one reply: after this time, the reply counts as missing. It also bounds the time to send.
const timeout = 10 * time.Second

// wire is one connection and what has arrived on it.
type wire struct {
	conn   net.Conn
	r      *bufio.Reader
	closed bool
	id     string // the client id, once the player has asked for it: a blocked client cannot answer that question
}

func newWire(conn net.Conn) *wire { return &wire{conn: conn, r: bufio.NewReader(conn)} }

// send writes to the connection. It does not report a close: the last reply may be unread, and the next read reports it.
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

// pending reports whether anything arrives within the time d. A close counts, too.
func (w *wire) pending(d time.Duration) bool {
	err := w.within(d, func() error {
		_, err := w.r.Peek(1)
		return err
	})
	return err == nil || w.closed
}

// within calls the function do, which reads or writes, and ends the read or write after the time d.
func (w *wire) within(d time.Duration, do func() error) error {
	fired := make(chan struct{})
	timer := time.AfterFunc(d, func() {
		defer close(fired)
		// A connection refuses a deadline only if it is closed, and then the wait ends as well.
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

// gone are the errors by which a connection, even one in memory, says that the other end has closed it.
var gone = []error{io.EOF, syscall.ECONNRESET, syscall.EPIPE, io.ErrClosedPipe}

func isGone(err error) bool {
	return slices.ContainsFunc(gone, func(g error) bool { return errors.Is(err, g) })
}

func (w *wire) shut() {
	w.closed = true
	// Nothing can be lost here: every reply has been read, or does not matter.
	_ = w.conn.Close()
}

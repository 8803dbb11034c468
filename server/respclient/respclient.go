// Package respclient is a small RESP2 client for the command line, for tests that start processes, and for
// benchmarks.
package respclient

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// Conn is a RESP2 client connection.
type Conn struct {
	conn net.Conn
	r    *bufio.Reader
}

// ServerError is an error reply.
type ServerError string

func (e ServerError) Error() string { return string(e) }

// Dial connects to a server.
func Dial(addr string, timeout time.Duration) (*Conn, error) {
	conn, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return nil, err
	}
	return NewConn(conn), nil
}

// NewConn speaks RESP2 over a connection that was made elsewhere.
func NewConn(conn net.Conn) *Conn { return &Conn{conn: conn, r: bufio.NewReader(conn)} }

// Close ends the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// Do sends a command and returns its reply: a string for a status or a bulk string, an int64, an []any, or nil for a null reply. It
// returns an error reply as an error of type ServerError.
func (c *Conn) Do(args ...string) (any, error) {
	if err := c.Send(args...); err != nil {
		return nil, err
	}
	return c.Receive()
}

// Send sends a command without waiting for its reply.
func (c *Conn) Send(args ...string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	_, err := io.WriteString(c.conn, b.String())
	return err
}

// Receive reads the next reply and returns it as Do does.
func (c *Conn) Receive() (any, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, errors.New("resp: empty line")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, ServerError(rest)
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("resp: unexpected %q", line)
	}
	switch kind {
	case ':':
		return n, nil
	case '$':
		return c.bulk(n)
	case '*':
		return c.array(n)
	}
	return nil, fmt.Errorf("resp: unexpected %q", line)
}

func (c *Conn) bulk(n int64) (any, error) {
	if n < 0 {
		return nil, nil
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(c.r, b); err != nil {
		return nil, err
	}
	return string(b[:n]), nil
}

// array reads n elements; an error reply among them becomes an element of type ServerError.
func (c *Conn) array(n int64) (any, error) {
	if n < 0 {
		return nil, nil
	}
	list := make([]any, n)
	for i := range list {
		v, err := c.Receive()
		var reply ServerError
		if errors.As(err, &reply) {
			v = reply
		} else if err != nil {
			return nil, err
		}
		list[i] = v
	}
	return list, nil
}

// Package respclient is a small RESP2 client for the command line, for tests that start processes, and for
// benchmarks.
package respclient

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"time"
)

// Conn is a RESP2 client connection.
type Conn struct {
	// Most is how many bytes of memory a reply may take (0: as many as a large reply of a node).
	Most int64

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

// NewConn returns a client that speaks RESP2 over a connection that was made elsewhere.
func NewConn(conn net.Conn) *Conn { return &Conn{conn: conn, r: bufio.NewReader(conn)} }

// Close ends the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// Do sends a command and returns its reply: a string, an int64, an []any or nil. An error reply is an error of type ServerError.
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

// The limits of one reply are far beyond what a node sends. They protect the caller's memory if something else answers.
const (
	maxDepth = 64
	maxLine  = 1 << 20
	maxBulk  = 512 << 20
	maxElems = 1 << 24 // in all lists of a reply together
	elemSize = 64      // an element of a list takes at least this many bytes of memory
)

var (
	errTooLarge = errors.New("resp: the reply is larger than any that a node sends")
	errNegative = errors.New("resp: a length below zero")
)

// reply reads one reply.
type reply struct {
	r     *bufio.Reader
	elems int64 // elements so far
	left  int64 // bytes that the rest of the reply may take
}

// takes counts n more bytes of memory for the reply, and reports whether the reply may take them.
func (p *reply) takes(n int64) bool {
	p.left -= n
	return p.left >= 0
}

// Receive reads the next reply and returns it as Do does.
func (c *Conn) Receive() (any, error) {
	read := reply{r: c.r, left: c.Most}
	if c.Most == 0 {
		read.left = math.MaxInt64
	}
	return read.value(0)
}

func (p *reply) value(depth int) (any, error) {
	line, err := p.line()
	if err != nil {
		return nil, err
	}
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
		return nil, fmt.Errorf("resp: unexpected %q", line[:min(len(line), 100)])
	}
	switch kind {
	case ':':
		return n, nil
	case '$':
		return p.bulk(n)
	case '*':
		return p.array(n, depth)
	}
	return nil, fmt.Errorf("resp: unexpected %q", line[:min(len(line), 100)])
}

// line reads a line, and returns it without the line end.
func (p *reply) line() (string, error) {
	var line []byte
	for {
		part, err := p.r.ReadSlice('\n')
		if line = append(line, part...); err == nil {
			if !p.takes(int64(len(line))) {
				return "", errTooLarge
			}
			return strings.TrimRight(string(line), "\r\n"), nil
		}
		if err != bufio.ErrBufferFull {
			return "", err
		}
		if len(line) > maxLine || p.left < int64(len(line)) {
			return "", errTooLarge
		}
	}
}

// bulk reads n bytes. It takes memory only for what arrives.
func (p *reply) bulk(n int64) (any, error) {
	switch {
	case n == -1:
		return nil, nil
	case n < 0:
		return nil, errNegative
	case n > maxBulk || !p.takes(n):
		return nil, errTooLarge
	}
	var b strings.Builder
	b.Grow(int(min(n, maxLine)))
	if _, err := io.CopyN(&b, p.r, n); err != nil {
		return nil, err
	}
	if _, err := p.r.Discard(len("\r\n")); err != nil {
		return nil, err
	}
	return b.String(), nil
}

// array reads n elements; an error reply among them becomes an element of type ServerError.
func (p *reply) array(n int64, depth int) (any, error) {
	switch {
	case n == -1:
		return nil, nil
	case n < 0:
		return nil, errNegative
	case n > maxElems || depth == maxDepth:
		return nil, errTooLarge
	}
	list := make([]any, 0, min(n, 1024))
	for range n {
		if p.elems++; p.elems > maxElems || !p.takes(elemSize) {
			return nil, errTooLarge
		}
		v, err := p.value(depth + 1)
		var refused ServerError
		if errors.As(err, &refused) {
			v = refused
		} else if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

package wire

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// Resp is a RESP2 client that allocates nothing for a command. It gathers commands until Flush. Only one goroutine uses it.
type Resp struct {
	conn    net.Conn
	r       *bufio.Reader
	out     []byte
	text    []byte
	forgone int // replies that come before the next awaited one, and that nobody reads
}

// Reply is one reply, or the head of an array whose Int elements are the next replies. Text is valid until the next reply.
type Reply struct {
	Kind byte // one of +:$*
	Null bool
	Int  int64
	Text []byte
}

// ErrorReply is an error reply of the server.
type ErrorReply string

func (e ErrorReply) Error() string { return string(e) }

var errRESP = errors.New("resp: the server does not speak RESP2")

// DialResp connects to a server.
func DialResp(addr string, traffic *Traffic) (*Resp, error) {
	conn, err := Dial(context.Background(), addr, traffic)
	if err != nil {
		return nil, err
	}
	return newResp(conn), nil
}

// DialRespTLS does what DialResp does, for a server that speaks TLS. traffic counts the encrypted bytes, handshakes included.
func DialRespTLS(addr string, config *tls.Config, traffic *Traffic) (*Resp, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	conn, err := Dial(ctx, addr, traffic)
	if err != nil {
		return nil, err
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return newResp(secured), nil
}

func newResp(conn net.Conn) *Resp {
	return &Resp{conn: conn, r: bufio.NewReaderSize(conn, 16<<10), out: make([]byte, 0, 4<<10)}
}

// Close ends the connection.
func (c *Resp) Close() error { return c.conn.Close() }

// Command adds a command to those that Flush sends.
func (c *Resp) Command(args ...string) {
	c.out = append(c.out, '*')
	c.out = strconv.AppendInt(c.out, int64(len(args)), 10)
	for _, a := range args {
		c.out = append(c.out, "\r\n$"...)
		c.out = strconv.AppendInt(c.out, int64(len(a)), 10)
		c.out = append(c.out, "\r\n"...)
		c.out = append(c.out, a...)
	}
	c.out = append(c.out, "\r\n"...)
}

// Forgo adds a command whose reply nobody reads.
func (c *Resp) Forgo(args ...string) {
	c.Command(args...)
	c.forgone++
}

// Flush sends the gathered commands.
func (c *Resp) Flush() error {
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	return err
}

// Do sends one command and returns its reply.
func (c *Resp) Do(args ...string) (Reply, error) {
	c.Command(args...)
	if err := c.Flush(); err != nil {
		return Reply{}, err
	}
	return c.Reply()
}

// Before makes Reply fail if no reply comes before t. The zero time removes the limit.
func (c *Resp) Before(t time.Time) error { return c.conn.SetReadDeadline(t) }

// Reply reads the next reply. The reply to a command of Forgo must not be an array.
func (c *Resp) Reply() (Reply, error) {
	for c.forgone > 0 {
		if _, err := c.next(); err != nil {
			return Reply{}, err
		}
		c.forgone--
	}
	return c.next()
}

func (c *Resp) next() (Reply, error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return Reply{}, err
	}
	line = bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'})
	if len(line) == 0 {
		return Reply{}, errRESP
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return Reply{Kind: kind, Text: rest}, nil
	case '-':
		return Reply{}, ErrorReply(rest)
	case ':', '*', '$':
	default:
		return Reply{}, fmt.Errorf("%w: %q", errRESP, line)
	}
	n, err := strconv.ParseInt(string(rest), 10, 64)
	if err != nil {
		return Reply{}, fmt.Errorf("%w: %w", errRESP, err)
	}
	reply := Reply{Kind: kind, Int: n, Null: kind != ':' && n < 0}
	if kind == '$' && n >= 0 {
		reply.Text, err = c.bulk(int(n))
	}
	return reply, err
}

func (c *Resp) bulk(n int) ([]byte, error) {
	if cap(c.text) < n+2 {
		c.text = make([]byte, n+2)
	}
	c.text = c.text[:n+2]
	_, err := io.ReadFull(c.r, c.text)
	return c.text[:n], err
}

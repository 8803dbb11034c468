package web

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// queued is how many requests of a session may wait for their turn.
	queued = 16
	// askTime is how long a request waits for the node: longer than a command waits for a new leader.
	askTime = 5 * time.Second
)

// link is a connection to the server that runs one command after the other.
type link struct {
	conn    net.Conn
	asks    chan *ask
	replies chan any
	most    atomic.Int64  // bytes of each text of a reply that are kept
	closed  chan struct{} // closed when nothing more can be read
	gone    chan struct{} // closed when run has ended
	end     context.CancelFunc
	over    context.Context // cancelled by end
	db      int
}

// ask is a command that waits for its reply.
type ask struct {
	ctx    context.Context
	db     int
	args   []string
	most   int // see link.most
	answer chan answer
}

type answer struct {
	reply any
	err   error
}

// refusal is an error reply of the server.
type refusal string

func (r refusal) Error() string { return string(r) }

var errGone = errors.New("the connection to the server has ended")

func newLink(conn net.Conn) *link {
	l := &link{conn: conn, asks: make(chan *ask, queued), replies: make(chan any), closed: make(chan struct{}), gone: make(chan struct{})}
	l.over, l.end = context.WithCancel(context.Background())
	go l.read()
	return l
}

// read reads all the time, so that the end of the connection is noticed at once.
func (l *link) read() {
	defer close(l.closed)
	defer l.conn.Close()
	r := bufio.NewReader(l.conn)
	for {
		v, err := readReply(r, func() int { return int(l.most.Load()) })
		if err != nil {
			return
		}
		select {
		case l.replies <- v:
		case <-l.over.Done():
			return
		}
	}
}

// run answers the asks until the connection ends.
func (l *link) run() {
	defer close(l.gone)
	defer l.drop()
	for {
		var a *ask
		select {
		case a = <-l.asks:
		case <-l.closed:
			return
		case <-l.over.Done():
			return
		}
		if err := a.ctx.Err(); err != nil { // nobody waits any more: a change must not happen now
			a.answer <- answer{err: errLate}
			continue
		}
		reply, err := l.perform(a)
		a.answer <- answer{reply, err}
		if _, told := err.(refusal); err != nil && !told {
			return
		}
	}
}

// perform selects the database and runs the command.
func (l *link) perform(a *ask) (any, error) {
	if a.db != l.db {
		if _, err := l.exchange(mostText, "SELECT", strconv.Itoa(a.db)); err != nil {
			return nil, err
		}
		l.db = a.db
	}
	return l.exchange(a.most, a.args...)
}

// exchange writes beside reading: a server that refuses a connection writes first, and a pipe holds no bytes.
func (l *link) exchange(most int, args ...string) (any, error) {
	l.most.Store(int64(most))
	written := make(chan error, 1)
	go func() {
		_, err := l.conn.Write(encode(args))
		written <- err
	}()
	var v any
	select {
	case v = <-l.replies:
	case <-l.closed:
		return nil, errGone
	}
	if told, is := v.(refusal); is {
		return nil, told
	}
	if err := <-written; err != nil {
		return nil, errGone
	}
	return v, nil
}

func encode(args []string) []byte {
	var b strings.Builder
	b.WriteString("*" + strconv.Itoa(len(args)) + "\r\n")
	for _, a := range args {
		b.WriteString("$" + strconv.Itoa(len(a)) + "\r\n" + a + "\r\n")
	}
	return []byte(b.String())
}

// do runs a command. An error of the server is a refusal.
func (l *link) do(ctx context.Context, db, most int, args ...string) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	a := &ask{ctx: ctx, db: db, args: args, most: most, answer: make(chan answer, 1)}
	select {
	case <-l.gone:
		return nil, errGone
	default:
	}
	select {
	case l.asks <- a:
	default:
		return nil, errQueue
	}
	select {
	case got := <-a.answer:
		return got.reply, got.err
	case <-l.gone:
		select {
		case got := <-a.answer:
			return got.reply, got.err
		default:
			return nil, errGone
		}
	case <-ctx.Done():
		return nil, errLate
	}
}

// drop ends the connection, and with it run.
func (l *link) drop() {
	l.end()
	_ = l.conn.Close()
}

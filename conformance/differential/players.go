package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"lockstep/conformance/transcript"
)

// replyTimeout bounds the wait for one reply.
const replyTimeout = 20 * time.Second

// conn is a connection to one server.
type conn struct {
	net.Conn
	r *bufio.Reader
}

func dial(addr string) (*conn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &conn{c, bufio.NewReader(c)}, nil
}

func (c *conn) send(args []string) error {
	_, err := c.Write(transcript.AppendCommand(nil, args...))
	return err
}

func (c *conn) receive() (transcript.Value, error) {
	if err := c.SetReadDeadline(time.Now().Add(replyTimeout)); err != nil {
		return transcript.Value{}, err
	}
	return transcript.ReadValue(c.r)
}

// pair is one connection to each of the two servers.
type pair struct{ ours, theirs *conn }

// do sends a command to both and returns the replies.
func (p pair) do(args []string) (ours, theirs transcript.Value, err error) {
	if err := errors.Join(p.ours.send(args), p.theirs.send(args)); err != nil {
		return ours, theirs, err
	}
	ours, err = p.ours.receive()
	if err != nil {
		return ours, theirs, fmt.Errorf("lockstep, %q: %w", args, err)
	}
	theirs, err = p.theirs.receive()
	if err != nil {
		err = fmt.Errorf("redis, %q: %w", args, err)
	}
	return ours, theirs, err
}

// players are the connections to both servers.
type players struct{ resp2, resp3 pair }

func open(ours, theirs string) (*players, error) {
	p := new(players)
	for _, at := range []*pair{&p.resp2, &p.resp3} {
		var err1, err2 error
		at.ours, err1 = dial(ours)
		at.theirs, err2 = dial(theirs)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
	}
	_, _, err := p.resp3.do([]string{"HELLO", "3"})
	return p, err
}

func (p *players) close() {
	for _, at := range []pair{p.resp2, p.resp3} {
		for _, c := range []*conn{at.ours, at.theirs} {
			if c != nil {
				c.Close()
			}
		}
	}
}

// reset empties both servers and returns the connections to database 0.
func (p *players) reset() error {
	for _, at := range []pair{p.resp2, p.resp3} {
		for _, args := range [][]string{{"DISCARD"}, {"UNWATCH"}, {"SELECT", "0"}, {"FLUSHALL"}} {
			if _, _, err := at.do(args); err != nil {
				return err
			}
		}
	}
	return nil
}

// difference is where the two servers disagree.
type difference struct {
	at           int // number of the step; -1: the keyspace at the end
	what         string
	ours, theirs transcript.Value
}

func (d *difference) String() string {
	return fmt.Sprintf("%s\nlockstep:\n  %s\nredis:\n  %s", d.what,
		strings.Join(d.ours.Lines(), "\n  "), strings.Join(d.theirs.Lines(), "\n  "))
}

// play runs steps on empty servers and compares every reply, and then the
// keyspace.
func (p *players) play(steps []step) (*difference, error) {
	if err := p.reset(); err != nil {
		return nil, err
	}
	for i, s := range steps {
		at := p.resp2
		if s.resp3 {
			at = p.resp3
		}
		ours, theirs, err := at.do(s.args)
		if err != nil {
			return nil, err
		}
		if !s.same(ours, theirs) {
			return &difference{i, fmt.Sprintf("%q", s.args), ours, theirs}, nil
		}
		time.Sleep(s.wait)
	}
	return p.keyspace()
}

func (s step) same(a, b transcript.Value) bool {
	if s.inner == nil || len(a.Elems) != len(b.Elems) || len(a.Elems) != len(s.inner) {
		return same(a, b, s.how)
	}
	for i := range a.Elems {
		if !same(a.Elems[i], b.Elems[i], s.inner[i]) {
			return false
		}
	}
	return true
}

// contents are the commands that show a key of a type.
var contents = map[string]command{
	"string": {"GET", exact}, "hash": {"HGETALL", pairs}, "list": {"LRANGE", exact},
	"set": {"SMEMBERS", sorted}, "zset": {"ZRANGE", exact},
}

// keyspace compares every key of every database that is used.
func (p *players) keyspace() (*difference, error) {
	if _, _, err := p.resp2.do([]string{"DISCARD"}); err != nil { // if the steps end in MULTI
		return nil, err
	}
	for db := range 4 {
		number := fmt.Sprint(db)
		if _, _, err := p.resp2.do([]string{"SELECT", number}); err != nil {
			return nil, err
		}
		keys, d, err := p.compare([]string{"KEYS", "*"}, sorted)
		if d != nil || err != nil {
			return d, err
		}
		for _, k := range keys.Elems {
			if d, err := p.key(k.Text); d != nil || err != nil {
				return d, err
			}
		}
	}
	return nil, nil
}

func (p *players) key(k string) (*difference, error) {
	kind, d, err := p.compare([]string{"TYPE", k}, exact)
	if d != nil || err != nil {
		return d, err
	}
	show := contents[kind.Text]
	args := []string{show.syntax, k}
	switch kind.Text {
	case "list":
		args = append(args, "0", "-1")
	case "zset":
		args = append(args, "0", "-1", "WITHSCORES")
	}
	if _, d, err = p.compare(args, show.how); d != nil || err != nil {
		return d, err
	}
	if _, d, err = p.compare([]string{"OBJECT", "ENCODING", k}, encoding); d != nil || err != nil {
		return d, err
	}
	_, d, err = p.compare([]string{"PEXPIRETIME", k}, near)
	return d, err
}

func (p *players) compare(args []string, h how) (transcript.Value, *difference, error) {
	ours, theirs, err := p.resp2.do(args)
	if err != nil || same(ours, theirs, h) {
		return theirs, nil, err
	}
	return theirs, &difference{-1, fmt.Sprintf("the keyspace at the end: %q", args), ours, theirs}, nil
}

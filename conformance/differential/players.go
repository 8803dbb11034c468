package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/conformance/transcript"
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

func (c *conn) do(args ...string) (transcript.Value, error) {
	if err := c.send(args); err != nil {
		return transcript.Value{}, err
	}
	return c.receive()
}

// pair is one connection to each of the two servers.
type pair struct {
	ours, theirs *conn
	queued       []how  // of the commands queued since MULTI
	has          traits // of all queued commands together
}

// traits are what the comparison must know about a step.
type traits struct {
	sorts   bool // the step reads elements in an undefined order
	expires bool // the step leaves keys whose time to live ends at once
	clears  bool // the step may remove keys before a server notices that they have expired
	quiet   bool // Redis may change a key in the step without telling the clients that watch the key
}

func traitsOf(s step) traits {
	return traits{sorts: sorts(s.args), expires: s.expires || expiresAtOnce(s.args), clears: clears(s.args), quiet: quiet(s.args)}
}

func (t traits) and(u traits) traits {
	return traits{t.sorts || u.sorts, t.expires || u.expires, t.clears || u.clears, t.quiet || u.quiet}
}

func (p *pair) send(args []string) error {
	return errors.Join(p.ours.send(args), p.theirs.send(args))
}

func (p *pair) receive() (ours, theirs transcript.Value, err error) {
	ours, err1 := p.ours.receive()
	theirs, err2 := p.theirs.receive()
	if err1 != nil {
		err1 = fmt.Errorf("lockstep: %w", err1)
	}
	if err2 != nil {
		err2 = fmt.Errorf("redis: %w", err2)
	}
	return ours, theirs, errors.Join(err1, err2)
}

// do sends a command to both servers and returns the replies.
func (p *pair) do(args ...string) (ours, theirs transcript.Value, err error) {
	if err = p.send(args); err == nil {
		ours, theirs, err = p.receive()
	}
	if err != nil {
		err = fmt.Errorf("%q: %w", args, err)
	}
	return ours, theirs, err
}

// waiters is the number of connections that may stay blocked.
const waiters = 2

// players are the connections to both servers.
type players struct {
	resp2, resp3 *pair
	waiters      [waiters]waiter // the second one speaks RESP3
	control      *pair           // for questions that are no steps
	events       *listener
	notify       bool // compare the keyspace notifications, too
	encodings    how  // how the encodings of keys are compared
	played       tally
}

func open(ours, theirs string) (*players, error) {
	var pairs [4 + waiters]*pair
	for i := range pairs {
		a, err1 := dial(ours)
		b, err2 := dial(theirs)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		pairs[i] = &pair{ours: a, theirs: b}
	}
	p := &players{resp2: pairs[0], resp3: pairs[1], control: pairs[2], events: &listener{pair: pairs[3]}}
	for i := range p.waiters {
		if err := p.waiters[i].open(pairs[4+i]); err != nil {
			return nil, err
		}
	}
	for _, at := range []*pair{p.resp3, p.waiters[1].pair} {
		if _, _, err := at.do("HELLO", "3"); err != nil {
			return nil, err
		}
	}
	return p, p.events.open()
}

func (p *players) all() []*pair {
	list := []*pair{p.resp2, p.resp3, p.control, p.events.pair}
	for i := range p.waiters {
		list = append(list, p.waiters[i].pair)
	}
	return list
}

func (p *players) close() {
	for _, at := range p.all() {
		at.ours.Close()
		at.theirs.Close()
	}
}

// reset empties both servers and lets all connections select database 0.
func (p *players) reset() error {
	for i := range p.waiters {
		if _, err := p.release(&p.waiters[i]); err != nil {
			return err
		}
	}
	on := ""
	if p.notify {
		on = "EAmn"
	}
	for _, args := range [][]string{{"FLUSHALL"}, {"FUNCTION", "FLUSH"}, {"FUNCTION", "LOAD", library}, {"CONFIG", "SET", "notify-keyspace-events", on}} {
		if _, _, err := p.control.do(args...); err != nil {
			return err
		}
	}
	for _, at := range p.all() {
		if at == p.events.pair {
			continue
		}
		at.queued, at.has = nil, traits{}
		for _, args := range [][]string{{"DISCARD"}, {"UNWATCH"}, {"SELECT", "0"}, {"CLIENT", "SETNAME", ""}} {
			if _, _, err := at.do(args...); err != nil {
				return err
			}
		}
	}
	return p.events.skip(p.control)
}

// difference is a place where the two servers disagree.
type difference struct {
	at           int // number of the step; -1: the keyspace at the end
	what         string
	ours, theirs []string
}

func (d *difference) String() string {
	return fmt.Sprintf("%s\nlockstep:\n  %s\nredis:\n  %s", d.what, strings.Join(d.ours, "\n  "), strings.Join(d.theirs, "\n  "))
}

func differ(what string, ours, theirs transcript.Value) *difference {
	return &difference{what: what, ours: ours.Lines(), theirs: theirs.Lines()}
}

// drainEvery is the number of steps after which the notifications are compared.
const drainEvery = 25

// play runs steps on empty servers. It compares every reply and the keyspace notifications, and at the end the keyspace.
func (p *players) play(steps []step) (*difference, error) {
	if err := p.reset(); err != nil {
		return nil, err
	}
	for i, s := range steps {
		d, err := p.step(s)
		if d == nil && err == nil && i%drainEvery == drainEvery-1 {
			d, err = p.events.compare(p.control, traits{})
		}
		if err != nil {
			return nil, err
		}
		if d != nil {
			d.at = i
			return d, nil
		}
	}
	d, err := p.end()
	if d != nil {
		d.at = -1
	}
	return d, err
}

// end compares the state that the steps have left.
func (p *players) end() (*difference, error) {
	for i := range p.waiters {
		if d, err := p.release(&p.waiters[i]); d != nil || err != nil {
			return d, err
		}
	}
	if d, err := p.events.compare(p.control, traits{}); d != nil || err != nil {
		return d, err
	}
	return p.keyspace()
}

func (p *players) step(s step) (*difference, error) {
	p.played.count(s)
	if s.waiter > 0 {
		w := &p.waiters[s.waiter-1]
		if d, err := p.release(w); d != nil || err != nil || s.args == nil {
			return d, err
		}
		return p.park(w, s)
	}
	at := p.resp2
	if s.resp3 {
		at = p.resp3
	}
	if clears(s.args) || at.has.clears {
		if d, err := p.releaseUnordered(); d != nil || err != nil {
			return d, err
		}
	}
	if quiet(s.args) || at.has.quiet {
		if err := p.unwatch(at); err != nil {
			return nil, err
		}
	}
	if sorts(s.args) {
		if d, err := p.run(at, forgetErrno); d != nil || err != nil {
			return d, err
		}
		if d, err := p.events.compare(p.control, traits{}); d != nil || err != nil {
			return d, err
		}
	}
	return p.run(at, s)
}

// run sends a step and compares the replies.
func (p *players) run(at *pair, s step) (*difference, error) {
	ours, theirs, err := at.do(s.args...)
	if err != nil {
		return nil, err
	}
	if !s.same(at, ours, theirs) {
		return differ(fmt.Sprintf("%q", s.args), ours, theirs), nil
	}
	has := traitsOf(s)
	switch {
	case isQueued(theirs):
		at.queued, at.has = append(at.queued, s.how), at.has.and(has)
		p.played.queued++
		return nil, nil
	case slices.Equal(s.args, []string{"EXEC"}), slices.Equal(s.args, []string{"DISCARD"}):
		has = at.has
		at.queued, at.has = nil, traits{}
	}
	switch {
	case has.expires:
		return p.settle(has)
	case has.sorts:
		return p.events.compare(p.control, has)
	}
	return nil, nil
}

func isQueued(v transcript.Value) bool { return v.Type == '+' && v.Text == "QUEUED" }

// same reports whether the two replies to a step are equal enough.
func (s step) same(at *pair, a, b transcript.Value) bool {
	if isQueued(b) {
		return same(a, b, exact)
	}
	if !slices.Equal(s.args, []string{"EXEC"}) || a.Type != '*' || b.Type != '*' || len(a.Elems) != len(b.Elems) || len(a.Elems) != len(at.queued) {
		return same(a, b, s.how)
	}
	for i, h := range at.queued {
		if !same(a.Elems[i], b.Elems[i], h) {
			return false
		}
	}
	return true
}

// sorts reports whether a command may sort numbers.
func sorts(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return strings.EqualFold(a, "SORT") || strings.EqualFold(a, "SORT_RO") })
}

// clears reports whether a command may remove keys without looking at each.
func clears(args []string) bool {
	return len(args) > 0 && slices.Contains([]string{"FLUSHALL", "FLUSHDB", "SWAPDB"}, args[0])
}

// quiet reports whether a command may be a BITFIELD that fails: Redis then changes the key but tells no watcher
// (transcript/testdata/differs/watch.txt).
func quiet(args []string) bool {
	has := func(word string) bool {
		return slices.ContainsFunc(args, func(a string) bool { return strings.EqualFold(a, word) })
	}
	return has("BITFIELD") && has("FAIL")
}

// unwatch ends every WATCH and every transaction. It spares one transaction: that of the pair in the argument "at", if commands are
// queued in it.
func (p *players) unwatch(at *pair) error {
	for _, c := range []*pair{p.resp2, p.resp3} {
		if c == at && len(c.queued) > 0 {
			continue
		}
		c.queued, c.has = nil, traits{}
		for _, args := range []string{"DISCARD", "UNWATCH"} {
			if _, _, err := c.do(args); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetErrno clears errno in Redis before each SORT, which could otherwise refuse a number because of it.
var forgetErrno = step{args: []string{"INCRBYFLOAT", "nosuchkey", "x"}}

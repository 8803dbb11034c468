package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/server/respclient"
)

// mode says how a client finds the servers.
type mode string

const (
	plainMode    mode = "plain"
	sentinelMode mode = "sentinel"
	clusterMode  mode = "cluster"
)

// outcome says what a client knows after a command.
type outcome int

const (
	done    outcome = iota // there is a reply
	refused                // an error reply that says that the command was not executed
	unknown                // the command was executed, was not, or will be
	unsent                 // the command was not sent, because there was no connection
	wrong                  // an error reply that no working server gives
	aborted                // a transaction that was not executed, because a key that it watched was changed
)

const (
	dialTimeout  = time.Second
	replyTimeout = 10 * time.Second
	masterName   = "mymaster"
)

// errHung is the error of an operation that has had no reply for longer than any node waits.
var errHung = fmt.Errorf("no reply in %v", replyTimeout)

// client has one connection at a time, as a simple client library does.
type client struct {
	f    *fleet
	mode mode
	home int // the node that it asks first
	rng  *rand.Rand

	conn net.Conn
	resp *respclient.Conn
}

func (c *client) via() string { return fmt.Sprintf("%s n%d", c.mode, c.home+1) }

// drop ends the connection; the next command makes another.
func (c *client) drop() {
	if c.conn != nil {
		c.conn.Close()
		c.conn, c.resp = nil, nil
	}
}

func (c *client) dial(addr string) error {
	c.drop()
	conn, err := c.f.clients.Dial(addr, dialTimeout)
	if err != nil {
		return err
	}
	c.conn, c.resp = conn, respclient.NewConn(conn)
	return nil
}

// connect finds a server as the client's mode does, and connects to it.
func (c *client) connect() error {
	if c.mode == plainMode {
		return c.dial(c.f.nodes[c.home].at(plainPort))
	}
	// Any node can be asked where the leader is; the home node is asked first.
	n := c.f.nodes[c.home]
	if c.rng.IntN(2) == 0 {
		n = c.f.nodes[c.rng.IntN(len(c.f.nodes))]
	}
	port, question := sentinelPort, []string{"SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName}
	if c.mode == clusterMode {
		port, question = clusterPort, []string{"CLUSTER", "SLOTS"}
	}
	if err := c.dial(n.at(port)); err != nil {
		return err
	}
	if err := c.conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	reply, err := c.resp.Do(question...)
	if err != nil {
		return err
	}
	addr, err := leaderOf(c.mode, reply)
	if err != nil {
		return err
	}
	return c.dial(addr)
}

// leaderOf reads the leader's address from a node's answer to the question where the leader is.
func leaderOf(m mode, reply any) (string, error) {
	elems, _ := reply.([]any)
	if m == sentinelMode && len(elems) == 2 {
		return net.JoinHostPort(fmt.Sprint(elems[0]), fmt.Sprint(elems[1])), nil
	}
	if m == clusterMode && len(elems) > 0 {
		// [[first, last, [host, port, id …] leader, …] …]
		if slots, _ := elems[0].([]any); len(slots) > 2 {
			if at, _ := slots[2].([]any); len(at) > 1 {
				return net.JoinHostPort(fmt.Sprint(at[0]), fmt.Sprint(at[1])), nil
			}
		}
	}
	return "", fmt.Errorf("%s: no leader in %v", m, reply)
}

// redirections is how many redirections a client follows for one command.
const redirections = 5

// do sends a command, and says what is known of its outcome.
func (c *client) do(args ...string) (string, outcome, error) {
	return c.try(func() (any, error) { return c.once(args) })
}

// errChanged is the error of a transaction that was aborted.
var errChanged = errors.New("a watched key was changed")

// notSent is the error because of which EXEC was not sent.
type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

// transaction executes the function's commands in one transaction. If watched is not empty, it first watches that key and passes its
// value to the function.
func (c *client) transaction(watched string, then func(value string) [][]string) (string, outcome, error) {
	reply, known, err := c.try(func() (any, error) {
		var value any
		queue := func(list ...[]string) (err error) {
			for _, args := range list {
				if value, err = c.once(args); err != nil {
					return notSent{err}
				}
			}
			return nil
		}
		if watched != "" {
			if err := queue([]string{"WATCH", watched}, []string{"GET", watched}); err != nil {
				return nil, err
			}
		}
		if err := queue(slices.Concat([][]string{{"MULTI"}}, then(flat(value)))...); err != nil {
			return nil, err
		}
		reply, err := c.once([]string{"EXEC"})
		if err == nil && reply == nil {
			return nil, errChanged
		}
		return reply, err
	})
	if known != done && known != aborted {
		c.drop() // nothing stays watched or queued
	}
	return reply, known, err
}

// try does something on a connection and returns what is known of its outcome. It follows redirections: a node that redirects has
// executed nothing.
func (c *client) try(something func() (any, error)) (string, outcome, error) {
	if c.conn == nil {
		if err := c.connect(); err != nil {
			c.drop()
			return "", unsent, err
		}
	}
	for range redirections {
		reply, err := something()
		var answer respclient.ServerError
		var early notSent
		switch {
		case err == nil:
			return flat(reply), done, nil
		case errors.Is(err, errChanged):
			return "", aborted, err
		case errors.As(err, &answer):
		case errors.As(err, &early):
			c.drop()
			return "", unsent, err
		default:
			c.drop()
			return "", unknown, err
		}
		code, rest, _ := strings.Cut(string(answer), " ")
		switch code {
		case "MOVED":
			_, addr, _ := strings.Cut(rest, " ")
			if c.mode != clusterMode {
				return "", wrong, answer
			}
			if err := c.dial(addr); err != nil {
				return "", unsent, err
			}
			continue
		case "CLUSTERDOWN", "BUSY", "LOADING", "TRYAGAIN", "READONLY", "MASTERDOWN", "NOSCRIPT":
			return "", refused, answer
		case "INDETERMINATE":
			return "", unknown, answer
		}
		return "", wrong, answer
	}
	return "", refused, fmt.Errorf("%d redirections", redirections)
}

// once sends one command and reads its reply, both within a time limit.
func (c *client) once(args []string) (any, error) {
	if err := c.conn.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return nil, err
	}
	reply, err := c.resp.Do(args...)
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		return nil, errHung
	}
	return reply, err
}

// flat converts a reply to the form that histories use: nil becomes the empty text, and a comma follows each element of a list.
func flat(reply any) string {
	switch v := reply.(type) {
	case nil:
		return ""
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case []any:
		var b strings.Builder
		for _, e := range v {
			b.WriteString(flat(e) + ",")
		}
		return b.String()
	}
	return fmt.Sprint(reply)
}

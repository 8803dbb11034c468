package lock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/server/respclient"
)

// Dial connects to one address, and gives up after a time.
type Dial func(addr string, within time.Duration) (*respclient.Conn, error)

// againError is the fault of a command that certainly had no effect, and that another server, or the same one later, may carry out.
type againError struct{ err error }

func (e againError) Error() string { return e.err.Error() }
func (e againError) Unwrap() error { return e.err }

// unknownError is the fault of a command that may have had an effect, or may yet have one.
type unknownError struct{ err error }

func (e unknownError) Error() string { return e.err.Error() }
func (e unknownError) Unwrap() error { return e.err }

// refused reports whether the error is final: a server has answered, and would answer so again.
func refused(err error) bool {
	var again againError
	var unknown unknownError
	return err != nil && !errors.As(err, &again) && !errors.As(err, &unknown)
}

// servers are the addresses of one lock service. Commands go to one of them until it fails.
type servers struct {
	dial  Dial
	addrs []string
	at    int              // the address that is asked
	conn  *respclient.Conn // to that address; nil if there is none
}

// most bounds how many redirections one command follows, and how many addresses they add.
const most = 16

// do sends a command, and follows redirections (MOVED). If the server fails, the next command goes to another one.
func (s *servers) do(ctx context.Context, within time.Duration, args ...string) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for range most {
		reply, err := s.once(ctx, within, args)
		to, moved := movedTo(err, s.addrs[s.at])
		if !moved {
			if err != nil && !refused(err) {
				s.leave()
			}
			return reply, err
		}
		s.move(to)
	}
	s.leave()
	return nil, againError{errors.New("the servers redirect in a circle")}
}

func (s *servers) once(ctx context.Context, within time.Duration, args []string) (any, error) {
	addr := s.addrs[s.at]
	if ctx.Err() != nil {
		return nil, againError{fmt.Errorf("%s: %w", addr, ctx.Err())}
	}
	if s.conn == nil {
		conn, err := s.dial(addr, within)
		if err != nil {
			return nil, dialError(err)
		}
		s.conn = conn
	}
	stop := context.AfterFunc(ctx, func(c *respclient.Conn) func() { return func() { _ = c.Close() } }(s.conn))
	reply, err := s.conn.Do(args...)
	if !stop() && err == nil {
		s.close() // the connection has been closed, but only after the reply
	}
	return reply, replyError(addr, err)
}

// dialError sorts the error of a Dial: with a wrong password no server will do.
func dialError(err error) error {
	var answered respclient.ServerError
	if errors.As(err, &answered) && !passing(string(answered)) {
		return err
	}
	return againError{err}
}

// replyError sorts the error of a command.
func replyError(addr string, err error) error {
	var answered respclient.ServerError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &answered):
		return unknownError{fmt.Errorf("%s: %w", addr, err)}
	case strings.HasPrefix(string(answered), "INDETERMINATE"):
		return unknownError{fmt.Errorf("%s: %w", addr, err)}
	case passing(string(answered)):
		return againError{fmt.Errorf("%s: %w", addr, err)}
	}
	return err
}

// passing reports whether an error reply says that the server cannot serve just now. Such a command has had no effect.
func passing(text string) bool {
	code, _, _ := strings.Cut(text, " ")
	return slices.Contains([]string{"CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN", "TRYAGAIN", "ASK", "BUSY", "NOREPLICAS"}, code) ||
		strings.HasPrefix(text, "ERR max number of clients reached")
}

// movedTo returns the address to which a server of Redis Cluster, or a node's --cluster-listen, redirects. The host may be missing: then
// it is that of the server.
func movedTo(err error, from string) (addr string, ok bool) {
	var answered respclient.ServerError
	if !errors.As(err, &answered) {
		return "", false
	}
	words := strings.Fields(string(answered))
	if len(words) != 3 || words[0] != "MOVED" {
		return "", false
	}
	host, port, bad := net.SplitHostPort(words[2])
	if bad != nil || strings.Contains(host, "/") { // a path would be that of a Unix socket of this machine
		return "", false
	}
	if host == "" {
		if host, _, bad = net.SplitHostPort(from); bad != nil {
			return "", false
		}
	}
	return net.JoinHostPort(host, port), true
}

// move turns to another address, which may be a new one.
func (s *servers) move(addr string) {
	s.close()
	if s.at = slices.Index(s.addrs, addr); s.at < 0 {
		if len(s.addrs) > most {
			s.addrs = s.addrs[:len(s.addrs)-1]
		}
		s.addrs, s.at = append(s.addrs, addr), len(s.addrs)
	}
}

// leave turns to the next address.
func (s *servers) leave() {
	s.close()
	s.at = (s.at + 1) % len(s.addrs)
}

func (s *servers) close() {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}

package peers

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lockstep-io/lockstep/bench/load"
	"github.com/lockstep-io/lockstep/bench/wire"
)

func startLockstepEphemeral(s *System) error {
	addr, err := s.site.addr()
	if err != nil {
		return err
	}
	s.serveLockstep([]string{addr})
	return s.launch("n1", nil, s.site.Lockstep, "serve", "--ephemeral", "--listen", addr, "--http-listen", "", "--log-level", "warn")
}

func startLockstep(n int, flags ...string) func(*System) error {
	return startLockstepIn(n, nil, flags...)
}

// peerSecret is an environment with which the nodes speak TLS to each other.
var peerSecret = []string{"LOCKSTEP_PEER_SECRET=what the nodes of a benchmark know"}

// startLockstepIn does what startLockstep does, with an environment.
func startLockstepIn(n int, env []string, flags ...string) func(*System) error {
	return func(s *System) error {
		clients, err := s.site.addrs(n)
		if err != nil {
			return err
		}
		between, err := s.site.addrs(n)
		if err != nil {
			return err
		}
		var peers []string
		for i, addr := range between {
			peers = append(peers, fmt.Sprintf("n%d=%s", i+1, addr))
		}
		for i := range n {
			id := fmt.Sprint("n", i+1)
			args := append([]string{s.site.Lockstep, "serve", "--id", id, "--data", "data", "--peers", strings.Join(peers, ","),
				"--peer-listen", between[i], "--http-listen", "", "--log-level", "warn"}, s.lockstepPort(clients[i])...)
			if err := s.launch(id, env, append(args, flags...)...); err != nil {
				return err
			}
		}
		s.serveLockstep(clients)
		return nil
	}
}

func (s *System) serveLockstep(clients []string) {
	s.everyNode = len(clients) > 1
	s.serveResp(0, clients...)
	s.native = true
	s.open = func(owner, addr string) (load.Session, error) { return openLockstep(s, addr, owner) }
	s.reset = func() ([]string, error) {
		nodes, err := leaderFirst(clients, s.leadsLockstep)
		if err != nil {
			return nil, err
		}
		return nodes, s.cleanResp(nodes[0])
	}
	s.Version = versionOf(s.site.Lockstep, "version")
}

func (s *System) leadsLockstep(addr string) (bool, error) {
	c, err := s.dial(addr)
	if err != nil {
		return false, err
	}
	defer c.Close()
	status, err := c.Pairs("LOCKSTEP", "STATUS")
	return status["role"] == "leader", err
}

// lockstepSession is a client that can also take locks by lockstep's own commands.
type lockstepSession struct{ *respSession }

var _ load.Native = (*lockstepSession)(nil)

func openLockstep(s *System, addr, owner string) (load.Session, error) {
	r, err := openResp(s, addr, owner, 0)
	if err != nil {
		return nil, err
	}
	return &lockstepSession{r}, nil
}

// EnterNative waits in the server's queue, for no longer than another client's lease can last: every client here releases its lock.
func (l *lockstepSession) EnterNative(key string) error {
	l.Command("LOCK.ACQUIRE", key, l.owner, "PX", leaseMillis, "WAIT", leaseMillis)
	if err := l.Flush(); err != nil {
		return err
	}
	got, err := l.granted()
	if err == nil && !got {
		err = fmt.Errorf("the lock was not handed on within %v", lease)
	}
	return err
}

func (l *lockstepSession) LeaveNative(key string) error {
	n, err := l.UnlockNative([]string{key})
	if err == nil && n != 1 {
		err = errors.New("LOCK.RELEASE: the lock was not released")
	}
	return err
}

func (l *lockstepSession) LockNative(keys []string) (n int, err error) {
	for _, key := range keys {
		l.Command("LOCK.ACQUIRE", key, l.owner, "PX", leaseMillis)
	}
	if err := l.Flush(); err != nil {
		return 0, err
	}
	return tally(keys, func(string) (bool, error) { return l.granted() })
}

// granted reads a reply to LOCK.ACQUIRE: fencing token, time to live and number of holds, or a null array.
func (l *lockstepSession) granted() (bool, error) {
	head, err := l.Reply()
	if err != nil || head.Null {
		return false, err
	}
	if head.Kind != '*' || head.Int != 3 {
		return false, fmt.Errorf("LOCK.ACQUIRE: the reply begins with %c%d", head.Kind, head.Int)
	}
	for range head.Int {
		if _, err := l.Reply(); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (l *lockstepSession) UnlockNative(keys []string) (int, error) {
	for _, key := range keys {
		l.Command("LOCK.RELEASE", key, l.owner)
	}
	return l.exchange(len(keys), func(reply wire.Reply) int {
		if reply.Null || reply.Int != 0 {
			return 0
		}
		return 1
	})
}

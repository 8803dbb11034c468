package peers

import (
	"fmt"
	"strings"
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

package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-redsync/redsync/v4/redis"
)

// lockstep is a cluster of three nodes with Sentinel listeners. All other settings have their defaults.
type lockstep struct {
	farm
	nodes [hosts]*process
}

func newLockstep(f *farm, binary string) (system, error) {
	s := &lockstep{farm: *f}
	var peers []string
	for host := range hosts {
		peers = append(peers, fmt.Sprintf("n%d=%s", host+1, s.site.addr(host, portPeer)))
	}
	for host := range hosts {
		at := func(port int) string { return s.site.addr(host, port) }
		p, err := s.place(host, "lockstep", binary, "serve", "--id", fmt.Sprint("n", host+1), "--data", "data",
			"--peers", strings.Join(peers, ","), "--listen", at(portData), "--peer-listen", at(portPeer),
			"--sentinel-listen", at(portSentinel), "--http-listen", at(portHTTP), "--protected-mode=no")
		if err != nil {
			return nil, err
		}
		s.nodes[host] = p
	}
	return s, nil
}

func (s *lockstep) open() ([]redis.Pool, func() error) {
	var sentinels []string
	for host := range hosts {
		sentinels = append(sentinels, s.site.addr(host, portSentinel))
	}
	c := failoverClient(sentinels)
	return []redis.Pool{poolOf(c)}, c.Close
}

// status returns a node's reply to LOCKSTEP STATUS.
func (s *lockstep) status(host int) (map[string]string, error) {
	reply, err := ask(s.site.addr(host, portData), "LOCKSTEP", "STATUS")
	if err != nil {
		return nil, err
	}
	pairs, _ := reply.([]any)
	m := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[fmt.Sprint(pairs[i])] = fmt.Sprint(pairs[i+1])
	}
	return m, nil
}

func (s *lockstep) target(int) (*process, error) {
	for host, p := range s.nodes {
		st, err := s.status(host)
		if err != nil {
			return nil, err
		}
		if st["role"] == "leader" {
			return p, nil
		}
	}
	return nil, errNoTarget
}

// whole returns an error unless every node is ready and one node leads.
func (s *lockstep) whole() error {
	for host := range hosts {
		resp, err := http.Get("http://" + s.site.addr(host, portHTTP) + "/readyz")
		if err != nil {
			return err
		}
		if err := resp.Body.Close(); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("node %d: %s", host+1, resp.Status)
		}
	}
	_, err := s.target(0)
	return err
}

// equal returns an error unless all nodes have the same state.
func (s *lockstep) equal() error {
	var first string
	for host := range hosts {
		st, err := s.status(host)
		if err != nil {
			return err
		}
		state := st["applied"] + " " + st["state-hash"]
		if st["state-hash"] == "" {
			return errors.New("LOCKSTEP STATUS has no state-hash")
		}
		if first == "" {
			first = state
		}
		if state != first {
			return fmt.Errorf("the nodes differ: %s, %s", first, state)
		}
	}
	return nil
}

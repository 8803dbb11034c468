package peers

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/lockstep-io/lockstep/bench/load"
)

var redisPrograms = []string{"redis-server"}

const redisPackage = "redis-server"

// launchRedis starts one Redis. fsync is the value of appendfsync; "no" means that the server has no append-only file.
func (s *System) launchRedis(name, addr, fsync string, more ...string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	command := append([]string{"redis-server", "--bind", "127.0.0.1", "--save", "", "--repl-diskless-sync-delay", "0"}, s.redisPort(port)...)
	if fsync != "no" {
		command = append(command, "--appendonly", "yes", "--appendfsync", fsync)
	}
	return s.launch(name, nil, append(command, more...)...)
}

func startRedis(fsync string) func(*System) error {
	return func(s *System) error {
		addr, err := s.site.addr()
		if err != nil {
			return err
		}
		s.serveRedis(0, addr)
		s.reset = func() ([]string, error) { return []string{addr}, s.cleanResp(addr) }
		return s.launchRedis("1", addr, fsync)
	}
}

// serveRedis makes the clients take locks from Redis. Each time a client has taken locks, it waits until the given number of replicas
// have these locks.
func (s *System) serveRedis(wait int, addrs ...string) {
	s.serveResp(wait, addrs...)
	s.Version = versionOf("redis-server", "--version")
}

const replicas = 2

func startReplicated(s *System) error {
	addrs, err := s.site.addrs(1 + replicas)
	if err != nil {
		return err
	}
	_, primary, err := net.SplitHostPort(addrs[0])
	if err != nil {
		return err
	}
	for i, addr := range addrs {
		var more []string
		if i > 0 {
			more = []string{"--replicaof", "127.0.0.1", primary}
		}
		if err := s.launchRedis(fmt.Sprint(i+1), addr, "everysec", more...); err != nil {
			return err
		}
	}
	s.serveRedis(1, addrs...)
	s.reset = func() ([]string, error) {
		info, err := s.ask(addrs[0], "INFO", "replication")
		if err != nil {
			return nil, err
		}
		if text := fmt.Sprint(info); strings.Count(text, "state=online") != replicas {
			return nil, fmt.Errorf("the replicas are not online: %s", text)
		}
		return addrs, s.cleanResp(addrs[0])
	}
	return nil
}

// ask sends one command on a connection of its own.
func (s *System) ask(addr string, command ...string) (any, error) {
	c, err := s.dial(addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(command...)
}

const (
	whyNoQueue     = "its recipe polls"
	whyNoHerd      = "who waits is told of its own turn alone, as in contended"
	whyNoReentrant = "it is not Redisson's"
	redlocks       = 3
)

func startRedlock(s *System) error {
	addrs, err := s.site.addrs(redlocks)
	if err != nil {
		return err
	}
	for i, addr := range addrs {
		if err := s.launchRedis(fmt.Sprint(i+1), addr, "always"); err != nil {
			return err
		}
	}
	s.serveRedis(0, addrs...)
	s.pipelines = false
	s.lacks = map[string]string{"contended": whyNoQueue, "herd": whyNoQueue, "native": whyNoQueue, "rlock": whyNoReentrant}
	s.reset = func() (_ []string, err error) {
		for _, addr := range addrs {
			err = errors.Join(err, s.cleanResp(addr))
		}
		return addrs, err
	}
	s.open = func(owner, _ string) (load.Session, error) { return openRedlock(s, addrs, owner) }
	return nil
}

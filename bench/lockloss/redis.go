package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4/redis"
	goredis "github.com/redis/go-redis/v9"
)

// sentinelRedis is a Redis primary with two replicas, a Sentinel beside each, and settings that make the failover fast.
type sentinelRedis struct {
	farm
	wait    int // how many replicas must have a lock before it counts; 0: none
	servers [hosts]*process
}

func redisKind(fsync string, wait int) func(*farm, string) (system, error) {
	return func(f *farm, _ string) (system, error) {
		s := &sentinelRedis{farm: *f, wait: wait}
		for host := range hosts {
			if err := s.add(host, fsync); err != nil {
				return nil, err
			}
		}
		return s, nil
	}
}

// redisConf returns the text of one Redis's configuration file. Redis itself and Sentinel change that file later.
func redisConf(addr, fsync string) (string, error) {
	ip, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	lines := []string{"bind " + ip, "port " + port, "protected-mode no", `save ""`, "repl-diskless-sync-delay 0"}
	if fsync != "" {
		lines = append(lines, "appendonly yes", "appendfsync "+fsync)
	}
	return strings.Join(lines, "\n") + "\n", nil
}

func (s *sentinelRedis) add(host int, fsync string) error {
	primaryIP, primaryPort, err := net.SplitHostPort(s.site.addr(0, portData))
	if err != nil {
		return err
	}
	conf, err := redisConf(s.site.addr(host, portData), fsync)
	if err != nil {
		return err
	}
	if host > 0 {
		conf += fmt.Sprintf("replicaof %s %s\n", primaryIP, primaryPort)
	}
	if s.servers[host], err = s.addServer(host, "redis", "redis-server", conf); err != nil {
		return err
	}
	ip, port, err := net.SplitHostPort(s.site.addr(host, portSentinel))
	if err != nil {
		return err
	}
	conf = fmt.Sprintf("bind %s\nport %s\nprotected-mode no\nsentinel monitor %s %s %s 2\n"+
		"sentinel down-after-milliseconds %[3]s 500\nsentinel failover-timeout %[3]s 3000\nsentinel parallel-syncs %[3]s 2\n",
		ip, port, masterName, primaryIP, primaryPort)
	_, err = s.addServer(host, "sentinel", "redis-sentinel", conf)
	return err
}

// addServer adds a process whose program reads the configuration file NAME.conf.
func (f *farm) addServer(host int, name, program, conf string) (*process, error) {
	file := name + ".conf"
	p, err := f.place(host, name, program, file)
	if err != nil {
		return nil, err
	}
	return p, os.WriteFile(filepath.Join(p.dir, file), []byte(conf), 0o600)
}

func (s *sentinelRedis) open() ([]redis.Pool, func() error) {
	var sentinels []string
	for host := range hosts {
		sentinels = append(sentinels, s.site.addr(host, portSentinel))
	}
	c := failoverClient(sentinels)
	if s.wait > 0 {
		return []redis.Pool{waiting{poolOf(c), c, s.wait}}, c.Close
	}
	return []redis.Pool{poolOf(c)}, c.Close
}

// target returns the primary that the Sentinels name.
func (s *sentinelRedis) target(int) (*process, error) {
	addr, err := s.primary()
	if err != nil {
		return nil, err
	}
	for host, p := range s.servers {
		if s.site.addr(host, portData) == addr {
			return p, nil
		}
	}
	return nil, errNoTarget
}

// primary returns the address on which the Sentinels agree.
func (s *sentinelRedis) primary() (agreed string, err error) {
	for host := range hosts {
		reply, err := ask(s.site.addr(host, portSentinel), "SENTINEL", "get-master-addr-by-name", masterName)
		if err != nil {
			return "", err
		}
		pair, _ := reply.([]any)
		if len(pair) != 2 {
			return "", errNoTarget
		}
		addr := net.JoinHostPort(fmt.Sprint(pair[0]), fmt.Sprint(pair[1]))
		if agreed != "" && addr != agreed {
			return "", fmt.Errorf("the Sentinels name %s and %s", agreed, addr)
		}
		agreed = addr
	}
	return agreed, nil
}

// whole returns an error unless the Sentinels agree and know each other, and both replicas follow the primary.
func (s *sentinelRedis) whole() error {
	primary, err := s.primary()
	if err != nil {
		return err
	}
	for host := range hosts {
		reply, err := ask(s.site.addr(host, portSentinel), "INFO", "sentinel")
		if err != nil {
			return err
		}
		if text := fmt.Sprint(reply); !strings.Contains(text, "status=ok") || !strings.Contains(text, "slaves=2,sentinels=3") {
			return fmt.Errorf("the Sentinel of host %d: %s", host+1, text)
		}
		addr := s.site.addr(host, portData)
		if reply, err = ask(addr, "INFO", "replication"); err != nil {
			return err
		}
		text := fmt.Sprint(reply)
		if addr == primary && strings.Count(text, "state=online") == hosts-1 {
			continue
		}
		if addr != primary && strings.Contains(text, "role:slave") && strings.Contains(text, "master_link_status:up") {
			continue
		}
		return fmt.Errorf("%s does not replicate: %s", addr, text)
	}
	return nil
}

// waiting is a pool of connections on which a SET NX counts only once the given number of replicas have it.
type waiting struct {
	redis.Pool
	client   *goredis.Client
	replicas int
}

// waitMillis is how many milliseconds a lock may take to reach the replicas.
const waitMillis = 100

func (w waiting) Get(ctx context.Context) (redis.Conn, error) {
	conn, err := w.Pool.Get(ctx)
	return waitingConn{conn, w, ctx}, err
}

type waitingConn struct {
	redis.Conn
	pool waiting
	ctx  context.Context
}

var errNotReplicated = errors.New("WAIT: too few replicas have it")

func (c waitingConn) SetNX(name, value string, expiry time.Duration) (bool, error) {
	pipe := c.pool.client.Pipeline()
	set := pipe.SetNX(c.ctx, name, value, expiry)
	have := pipe.Do(c.ctx, "WAIT", c.pool.replicas, waitMillis)
	if _, err := pipe.Exec(c.ctx); err != nil && !errors.Is(err, goredis.Nil) {
		return false, err
	}
	if !set.Val() {
		return false, nil
	}
	if n, err := have.Int(); err != nil || n < c.pool.replicas {
		return false, errors.Join(errNotReplicated, err)
	}
	return true, nil
}

// redlock is three Redis nodes that know nothing of each other.
type redlock struct {
	farm
	servers [hosts]*process
}

func redlockKind(fsync string) func(*farm, string) (system, error) {
	return func(f *farm, _ string) (system, error) {
		s := &redlock{farm: *f}
		for host := range hosts {
			conf, err := redisConf(s.site.addr(host, portData), fsync)
			if err != nil {
				return nil, err
			}
			if s.servers[host], err = s.addServer(host, "redis", "redis-server", conf); err != nil {
				return nil, err
			}
		}
		return s, nil
	}
}

func (s *redlock) open() ([]redis.Pool, func() error) {
	var pools []redis.Pool
	var clients []*goredis.Client
	for host := range hosts {
		c := goredis.NewClient(&goredis.Options{Addr: s.site.addr(host, portData), ContextTimeoutEnabled: true})
		pools, clients = append(pools, poolOf(c)), append(clients, c)
	}
	return pools, func() (err error) {
		for _, c := range clients {
			err = errors.Join(err, c.Close())
		}
		return err
	}
}

// target returns each node in turn, because none of them leads.
func (s *redlock) target(round int) (*process, error) { return s.servers[round%hosts], nil }

func (s *redlock) whole() error {
	for host := range hosts {
		if _, err := ask(s.site.addr(host, portData), "PING"); err != nil {
			return err
		}
	}
	return nil
}

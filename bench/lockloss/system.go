package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4/redis"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"
)

// These are the ports of a host, as offsets from its first port.
const (
	portData = iota
	portSentinel
	portPeer
	portHTTP
)

const masterName = "mymaster"

// system is a lock service that the clients use.
type system interface {
	start() error
	stop() error
	// fallen returns an error for each server that has ended by itself.
	fallen() error
	// whole returns nil when every server runs and the system is complete.
	whole() error
	// target returns the server that the next fault hits.
	target(round int) (*process, error)
	// open makes a client's connections.
	open() ([]redis.Pool, func() error)
}

// kind is a kind of system, with its name.
type kind struct {
	name, about string
	faults      []string // the faults that can happen to it
	// down is how long a fault lasts before it is undone. settle is how long the load then goes on before the next fault.
	down, settle time.Duration
	make         func(f *farm, lockstep string) (system, error)
}

// These are the faults.
const (
	faultKill  = "kill"  // kill -9, and later a new start
	faultPause = "pause" // SIGSTOP, and later SIGCONT
	faultCut   = "cut"   // the host reaches no other host, but clients reach all hosts
)

var kinds = []kind{
	{"redis-sentinel", "Redis, 2 replicas, 3 Sentinels; appendfsync everysec", everyFault, 3 * time.Second, 3 * time.Second, redisKind("everysec", 0)},
	{"redis-sentinel-always", "the same with appendfsync always", everyFault, 3 * time.Second, 3 * time.Second, redisKind("always", 0)},
	{"redis-sentinel-wait", "the same (everysec), and WAIT 1 after each SET: the client is changed", everyFault, 3 * time.Second, 3 * time.Second, redisKind("everysec", 1)},
	{"redlock", "Redlock over 3 Redis nodes without persistence, as they are installed", killsOnly, time.Second, 2 * time.Second, redlockKind("")},
	{"redlock-always", "Redlock over 3 Redis nodes with appendfsync always", killsOnly, time.Second, 2 * time.Second, redlockKind("always")},
	{"redlock-delayed", "Redlock without persistence, a node starts again when every lease of before is over", killsOnly, 11 * time.Second, 2 * time.Second, redlockKind("")},
	{"lockstep", "3 lockstep nodes, found by their Sentinel listeners", everyFault, 3 * time.Second, 3 * time.Second, newLockstep},
}

var (
	everyFault = []string{faultKill, faultPause, faultCut}
	killsOnly  = []string{faultKill}
)

// readyTimeout is how long a system may take to be whole again.
const readyTimeout = 60 * time.Second

// Without ContextTimeoutEnabled, go-redis would ignore the time that redsync allows for each attempt.
func failoverClient(sentinels []string) *goredis.Client {
	return goredis.NewFailoverClient(&goredis.FailoverOptions{MasterName: masterName, SentinelAddrs: sentinels, ContextTimeoutEnabled: true})
}

// poolOf wraps a client as the kind of pool that redsync needs.
func poolOf(c *goredis.Client) redis.Pool { return redsyncgoredis.NewPool(c) }

// ask sends one command to one server.
func ask(addr string, args ...any) (any, error) {
	c := goredis.NewClient(&goredis.Options{Addr: addr, MaxRetries: -1, Protocol: 2, ContextTimeoutEnabled: true})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	reply, err := c.Do(ctx, args...).Result()
	if err != nil {
		return nil, fmt.Errorf("%s: %v: %w", addr, args[0], err)
	}
	return reply, nil
}

var errNoTarget = errors.New("no server leads")

package conformance

import (
	"testing"

	"github.com/bsm/redislock"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redsyncredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	redsyncrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
)

// The modules whose versions are reported.
const (
	goRedis     = "github.com/redis/go-redis/v9"
	redsyncMod  = "github.com/go-redsync/redsync/v4"
	redigoMod   = "github.com/gomodule/redigo"
	rueidisMod  = "github.com/redis/rueidis"
	redislockID = "github.com/bsm/redislock"
)

// The ways to make a go-redis client.
var goRedisModes = []struct {
	mode string
	open func(a addrs) goredis.UniversalClient
}{
	{"plain RESP3", func(a addrs) goredis.UniversalClient {
		return goredis.NewClient(&goredis.Options{Addr: a.Plain[0]})
	}},
	{"plain RESP2", func(a addrs) goredis.UniversalClient {
		return goredis.NewClient(&goredis.Options{Addr: a.Plain[0], Protocol: 2})
	}},
	{"sentinel", func(a addrs) goredis.UniversalClient {
		return goredis.NewFailoverClient(&goredis.FailoverOptions{MasterName: masterName, SentinelAddrs: a.Sentinel})
	}},
	{"cluster", func(a addrs) goredis.UniversalClient {
		return goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: a.Cluster})
	}},
}

var rueidisModes = []struct {
	mode   string
	option func(a addrs) rueidis.ClientOption
}{
	{"plain", func(a addrs) rueidis.ClientOption {
		return rueidis.ClientOption{InitAddress: a.Plain[:1]}
	}},
	{"sentinel", func(a addrs) rueidis.ClientOption {
		return rueidis.ClientOption{InitAddress: a.Sentinel, Sentinel: rueidis.SentinelOption{MasterSet: masterName}}
	}},
	{"cluster", func(a addrs) rueidis.ClientOption {
		return rueidis.ClientOption{InitAddress: a.Cluster}
	}},
}

// libraries is every lock library in every mode it has.
var libraries = func() (all []library) {
	for _, m := range goRedisModes {
		open := func(t testing.TB, a addrs) goredis.UniversalClient {
			c := m.open(a)
			t.Cleanup(func() { _ = c.Close() }) // a second close is no fault
			return c
		}
		all = append(all,
			library{"go-redis SET NX PX + script", []string{goRedis}, m.mode, func(t testing.TB, a addrs) locker {
				return recipe{open(t, a)}
			}, true},
			library{"redsync on go-redis", []string{redsyncMod, goRedis}, m.mode, func(t testing.TB, a addrs) locker {
				return newRedsync(redsyncgoredis.NewPool(open(t, a)))
			}, true},
			library{"bsm/redislock", []string{redislockID, goRedis}, m.mode, func(t testing.TB, a addrs) locker {
				c := open(t, a)
				return bsmLocker{redislock.New(c), c}
			}, true})
	}
	all = append(all, library{"redsync on redigo", []string{redsyncMod, redigoMod}, "plain", func(t testing.TB, a addrs) locker {
		pool := &redis.Pool{MaxIdle: 3, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", a.Plain[0]) }}
		t.Cleanup(func() { _ = pool.Close() }) // its idle connections may be gone already
		return newRedsync(redsyncredigo.NewPool(pool))
	}, true})
	for _, m := range rueidisModes {
		all = append(all,
			library{"redsync on rueidis", []string{redsyncMod, rueidisMod}, m.mode, func(t testing.TB, a addrs) locker {
				c, err := rueidis.NewClient(m.option(a))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(c.Close)
				return newRedsync(redsyncrueidis.NewPool(rueidiscompat.NewAdapter(c)))
			}, true},
			library{"rueidislock", []string{rueidisMod}, m.mode, func(t testing.TB, a addrs) locker {
				return newRueidislock(t, m.option(a))
			}, false})
	}
	return all
}()

package conformance

import (
	"io"
	"testing"

	"github.com/bsm/redislock"
	goredis6 "github.com/go-redis/redis"
	goredis7 "github.com/go-redis/redis/v7"
	goredis8 "github.com/go-redis/redis/v8"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	redsyncgoredis6 "github.com/go-redsync/redsync/v4/redis/goredis"
	redsyncgoredis7 "github.com/go-redsync/redsync/v4/redis/goredis/v7"
	redsyncgoredis8 "github.com/go-redsync/redsync/v4/redis/goredis/v8"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redsyncredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	redsyncrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	redsyncvalkey "github.com/go-redsync/redsync/v4/redis/valkeygo"
	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
	"github.com/valkey-io/valkey-go"
	"github.com/valkey-io/valkey-go/valkeycompat"
)

// These are the modules whose versions are reported.
const (
	goRedis     = "github.com/redis/go-redis/v9"
	goRedis6    = "github.com/go-redis/redis"
	goRedis7    = "github.com/go-redis/redis/v7"
	goRedis8    = "github.com/go-redis/redis/v8"
	redsyncMod  = "github.com/go-redsync/redsync/v4"
	redigoMod   = "github.com/gomodule/redigo"
	rueidisMod  = "github.com/redis/rueidis"
	valkeyMod   = "github.com/valkey-io/valkey-go"
	redislockID = "github.com/bsm/redislock"
)

// These are the ways to make a go-redis client.
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
	{"plain TLS", func(a addrs) goredis.UniversalClient {
		return goredis.NewClient(&goredis.Options{Addr: a.TLS.Plain[0], TLSConfig: good()})
	}},
	{"sentinel TLS", func(a addrs) goredis.UniversalClient {
		return goredis.NewFailoverClient(&goredis.FailoverOptions{MasterName: masterName, SentinelAddrs: a.TLS.Sentinel, TLSConfig: good()})
	}},
	{"cluster TLS", func(a addrs) goredis.UniversalClient {
		return goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: a.TLS.Cluster, TLSConfig: good()})
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
	{"plain TLS", func(a addrs) rueidis.ClientOption {
		return rueidis.ClientOption{InitAddress: a.TLS.Plain[:1], TLSConfig: good()}
	}},
	{"sentinel TLS", func(a addrs) rueidis.ClientOption {
		return rueidis.ClientOption{InitAddress: a.TLS.Sentinel, TLSConfig: good(), Sentinel: rueidis.SentinelOption{MasterSet: masterName, TLSConfig: good()}}
	}},
	{"cluster TLS", func(a addrs) rueidis.ClientOption {
		return rueidis.ClientOption{InitAddress: a.TLS.Cluster, TLSConfig: good()}
	}},
}

var valkeyModes = []struct {
	mode   string
	option func(a addrs) valkey.ClientOption
}{
	{"plain", func(a addrs) valkey.ClientOption {
		return valkey.ClientOption{InitAddress: a.Plain[:1]}
	}},
	{"sentinel", func(a addrs) valkey.ClientOption {
		return valkey.ClientOption{InitAddress: a.Sentinel, Sentinel: valkey.SentinelOption{MasterSet: masterName}}
	}},
	{"cluster", func(a addrs) valkey.ClientOption {
		return valkey.ClientOption{InitAddress: a.Cluster}
	}},
	{"plain TLS", func(a addrs) valkey.ClientOption {
		return valkey.ClientOption{InitAddress: a.TLS.Plain[:1], TLSConfig: good()}
	}},
	{"sentinel TLS", func(a addrs) valkey.ClientOption {
		return valkey.ClientOption{InitAddress: a.TLS.Sentinel, TLSConfig: good(), Sentinel: valkey.SentinelOption{MasterSet: masterName, TLSConfig: good()}}
	}},
	{"cluster TLS", func(a addrs) valkey.ClientOption {
		return valkey.ClientOption{InitAddress: a.TLS.Cluster, TLSConfig: good()}
	}},
}

// olderGoRedis has the clients under go-redis's old module path. Their Cluster clients fail with redsync or with Redis 7's CLUSTER SLOTS.
var olderGoRedis = []struct {
	client string
	module string
	mode   string
	open   func(a addrs) (redsyncredis.Pool, io.Closer)
}{
	{"redsync on go-redis 6", goRedis6, "plain", func(a addrs) (redsyncredis.Pool, io.Closer) {
		c := goredis6.NewClient(&goredis6.Options{Addr: a.Plain[0]})
		return redsyncgoredis6.NewPool(c), c
	}},
	{"redsync on go-redis 6", goRedis6, "plain TLS", func(a addrs) (redsyncredis.Pool, io.Closer) {
		c := goredis6.NewClient(&goredis6.Options{Addr: a.TLS.Plain[0], TLSConfig: good()})
		return redsyncgoredis6.NewPool(c), c
	}},
	{"redsync on go-redis 6", goRedis6, "sentinel", func(a addrs) (redsyncredis.Pool, io.Closer) {
		c := goredis6.NewFailoverClient(&goredis6.FailoverOptions{MasterName: masterName, SentinelAddrs: a.Sentinel})
		return redsyncgoredis6.NewPool(c), c
	}},
	{"redsync on go-redis 7", goRedis7, "plain", func(a addrs) (redsyncredis.Pool, io.Closer) {
		c := goredis7.NewClient(&goredis7.Options{Addr: a.Plain[0]})
		return redsyncgoredis7.NewPool(c), c
	}},
	{"redsync on go-redis 7", goRedis7, "plain TLS", func(a addrs) (redsyncredis.Pool, io.Closer) {
		c := goredis7.NewClient(&goredis7.Options{Addr: a.TLS.Plain[0], TLSConfig: good()})
		return redsyncgoredis7.NewPool(c), c
	}},
	{"redsync on go-redis 7", goRedis7, "sentinel", func(a addrs) (redsyncredis.Pool, io.Closer) {
		c := goredis7.NewFailoverClient(&goredis7.FailoverOptions{MasterName: masterName, SentinelAddrs: a.Sentinel})
		return redsyncgoredis7.NewPool(c), c
	}},
	{"redsync on go-redis 8", goRedis8, "plain", func(a addrs) (redsyncredis.Pool, io.Closer) {
		c := goredis8.NewClient(&goredis8.Options{Addr: a.Plain[0]})
		return redsyncgoredis8.NewPool(c), c
	}},
	{"redsync on go-redis 8", goRedis8, "plain TLS", func(a addrs) (redsyncredis.Pool, io.Closer) {
		c := goredis8.NewClient(&goredis8.Options{Addr: a.TLS.Plain[0], TLSConfig: good()})
		return redsyncgoredis8.NewPool(c), c
	}},
	{"redsync on go-redis 8", goRedis8, "sentinel", func(a addrs) (redsyncredis.Pool, io.Closer) {
		c := goredis8.NewFailoverClient(&goredis8.FailoverOptions{MasterName: masterName, SentinelAddrs: a.Sentinel})
		return redsyncgoredis8.NewPool(c), c
	}},
}

// libraries has every lock library, in each of its modes.
var libraries = func() (all []library) {
	for _, m := range goRedisModes {
		open := func(t testing.TB, a addrs) goredis.UniversalClient {
			c := m.open(a)
			t.Cleanup(func() { _ = c.Close() }) // the error of a second close is ignored
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
		t.Cleanup(func() { _ = pool.Close() }) // its idle connections may be closed already
		return newRedsync(redsyncredigo.NewPool(pool))
	}, true}, library{"redsync on redigo", []string{redsyncMod, redigoMod}, "plain TLS", func(t testing.TB, a addrs) locker {
		secret := []redis.DialOption{redis.DialUseTLS(true), redis.DialTLSConfig(good())}
		pool := &redis.Pool{MaxIdle: 3, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", a.TLS.Plain[0], secret...) }}
		t.Cleanup(func() { _ = pool.Close() }) // its idle connections may be closed already
		return newRedsync(redsyncredigo.NewPool(pool))
	}, true})
	for _, o := range olderGoRedis {
		all = append(all, library{o.client, []string{redsyncMod, o.module}, o.mode, func(t testing.TB, a addrs) locker {
			pool, c := o.open(a)
			t.Cleanup(func() { _ = c.Close() }) // the error of a second close is ignored
			return newRedsync(pool)
		}, true})
	}
	for _, m := range valkeyModes {
		all = append(all,
			library{"redsync on valkey-go", []string{redsyncMod, valkeyMod}, m.mode, func(t testing.TB, a addrs) locker {
				c, err := valkey.NewClient(m.option(a))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(c.Close)
				return newRedsync(redsyncvalkey.NewPool(valkeycompat.NewAdapter(c)))
			}, true},
			library{"valkeylock", []string{valkeyMod}, m.mode, func(t testing.TB, a addrs) locker {
				return newValkeylock(t, m.option(a))
			}, false})
	}
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

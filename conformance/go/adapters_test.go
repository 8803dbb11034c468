package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/redis/go-redis/v9"
)

// errNotOwner is what an adapter returns when a library says so in its own way.
var errNotOwner = errors.New("not the owner")

// held is a lock that was acquired.
type held interface {
	release() error
	extend(ttl time.Duration) error
}

// locker is one client of a lock library with connections of its own.
type locker interface {
	// acquire returns nil when the lock was not to be had within wait.
	acquire(key string, ttl, wait time.Duration) (held, error)
	// foreign is a handle of somebody who does not own the lock.
	foreign(key string) held
}

// library is a lock library in one mode.
type library struct {
	client  string
	modules []string // whose versions are shown
	mode    string   // begins with plain, sentinel or cluster
	make    func(t testing.TB, a addrs) locker
	// leases is false for a library that renews every lock by itself for as
	// long as it is held.
	leases bool
}

func (l library) version() string {
	var v []string
	for _, m := range l.modules {
		v = append(v, version()[m])
	}
	return strings.Join(v, ", ")
}

// missing says why the mode cannot be had here.
func (l library) missing(a addrs) string {
	switch {
	case strings.HasSuffix(l.mode, "TLS") && len(a.TLS.Plain) == 0:
		return "no TLS listener"
	case strings.HasPrefix(l.mode, "sentinel") && len(a.Sentinel) == 0:
		return "no Sentinel listener"
	case strings.HasPrefix(l.mode, "cluster") && len(a.Cluster) == 0:
		return "no Cluster listener"
	}
	return ""
}

// retry calls try each 50 ms until it says done or wait is over.
func retry(wait time.Duration, try func() (bool, error)) (bool, error) {
	for end := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		if ok, err := try(); ok || err != nil || !time.Now().Before(end) {
			return ok, err
		}
	}
}

// recipe is SET NX PX with a token and two scripts, as articles teach it, on
// go-redis.
type recipe struct{ redis redis.UniversalClient }

var (
	unlockScript = redis.NewScript(`if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`)
	extendScript = redis.NewScript(`if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("pexpire",KEYS[1],ARGV[2]) else return 0 end`)
)

type recipeLock struct {
	recipe
	key, token string
}

func (r recipe) acquire(key string, ttl, wait time.Duration) (held, error) {
	l := &recipeLock{r, key, rand.Text()}
	ok, err := retry(wait, func() (bool, error) {
		return r.redis.SetNX(context.Background(), key, l.token, ttl).Result()
	})
	if !ok {
		return nil, err
	}
	return l, err
}

func (r recipe) foreign(key string) held { return &recipeLock{r, key, "somebody else"} }

func (l *recipeLock) run(s *redis.Script, args ...any) error {
	n, err := s.Run(context.Background(), l.redis, []string{l.key}, append([]any{l.token}, args...)...).Int()
	if err == nil && n != 1 {
		err = errNotOwner
	}
	return err
}

func (l *recipeLock) release() error                 { return l.run(unlockScript) }
func (l *recipeLock) extend(ttl time.Duration) error { return l.run(extendScript, ttl.Milliseconds()) }

// redsyncLocker is redsync on any of its drivers.
type redsyncLocker struct{ rs *redsync.Redsync }

func newRedsync(pool redsyncredis.Pool) locker { return redsyncLocker{redsync.New(pool)} }

type redsyncLock struct{ *redsync.Mutex }

func (r redsyncLocker) acquire(key string, ttl, wait time.Duration) (held, error) {
	// Its default is 32 tries, 50 to 250 ms apart.
	tries := 1 + int(wait/(150*time.Millisecond))
	m := r.rs.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(tries))
	err := again(m.Lock)
	var taken *redsync.ErrTaken
	if errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return redsyncLock{m}, nil
}

func (r redsyncLocker) foreign(key string) held {
	return redsyncLock{r.rs.NewMutex(key, redsync.WithValue("somebody else"))}
}

func (l redsyncLock) release() error {
	return again(func() error { return owner(l.Unlock()) })
}

// extend is by the expiry that the mutex was made with.
func (l redsyncLock) extend(time.Duration) error {
	return again(func() error { return owner(l.Extend()) })
}

// again calls do until the server was in time: redsync gives each server a
// twentieth of the lease, which is little for a test's short leases on a
// machine under load, and tries 32 times by default.
func again(do func() error) (err error) {
	for range 32 {
		// Older clients report the connection's deadline, not the context's.
		var late interface{ Timeout() bool }
		if err = do(); !errors.As(err, &late) || !late.Timeout() {
			return err
		}
	}
	return err
}

func owner(ok bool, err error) error {
	if err == nil && !ok {
		return errNotOwner
	}
	return err
}

// bsmLocker is github.com/bsm/redislock.
type bsmLocker struct {
	locks *redislock.Client
	redis redis.UniversalClient
}

type bsmLock struct{ *redislock.Lock }

func (b bsmLocker) acquire(key string, ttl, wait time.Duration) (held, error) {
	// The number of tries should end the wait, not this deadline. Without a deadline, redislock
	// would give up with an error after the time of a lease.
	ctx, cancel := context.WithTimeout(context.Background(), 2*wait+10*time.Second)
	defer cancel()
	opt := &redislock.Options{}
	if wait > 0 {
		opt.RetryStrategy = redislock.LimitRetry(redislock.LinearBackoff(50*time.Millisecond), int(wait/(50*time.Millisecond)))
	}
	l, err := b.locks.Obtain(ctx, key, ttl, opt)
	if errors.Is(err, redislock.ErrNotObtained) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return bsmLock{l}, nil
}

func (l bsmLock) release() error { return l.Release(context.Background()) }
func (l bsmLock) extend(ttl time.Duration) error {
	return l.Refresh(context.Background(), ttl, nil)
}

// foreign obtains another key with another token and uses that handle's
// library code on the lock: redislock makes no handle for a lock it has not.
func (b bsmLocker) foreign(key string) held { return bsmForeign{b, key} }

type bsmForeign struct {
	b   bsmLocker
	key string
}

// with obtains a lock, gives it to another owner behind the library's back, and
// calls do.
func (f bsmForeign) with(do func(*redislock.Lock) error) error {
	ctx := context.Background()
	key := f.key + ":stolen"
	l, err := f.b.locks.Obtain(ctx, key, time.Minute, nil)
	if err != nil {
		return fmt.Errorf("obtain %s: %w", key, err)
	}
	if err := f.b.redis.Set(ctx, key, "the new owner", time.Minute).Err(); err != nil {
		return err
	}
	err = do(l)
	if got := f.b.redis.Get(ctx, key).Val(); got != "the new owner" {
		return nil // the caller expects an error: this is what it must not miss
	}
	if e := f.b.redis.Del(ctx, key).Err(); e != nil {
		return e
	}
	return err
}

func (f bsmForeign) release() error {
	return f.with(func(l *redislock.Lock) error { return l.Release(context.Background()) })
}

func (f bsmForeign) extend(ttl time.Duration) error {
	return f.with(func(l *redislock.Lock) error { return l.Refresh(context.Background(), ttl, nil) })
}

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

// errNotOwner is what an adapter returns if its library says that the client does not own the lock.
var errNotOwner = errors.New("not the owner")

// held is a lock that was acquired.
type held interface {
	release() error
	extend(ttl time.Duration) error
}

// locker is one client of a lock library. It has connections of its own.
type locker interface {
	// acquire returns nil if it could not get the lock within the time "wait".
	acquire(key string, ttl, wait time.Duration) (held, error)
	// foreign returns a handle of a client that does not own the lock.
	foreign(key string) held
}

// library is a lock library in one mode.
type library struct {
	client  string
	modules []string // whose versions are shown
	mode    string   // begins with plain, sentinel or cluster
	make    func(t testing.TB, a addrs) locker
	// leases is false for a library that itself renews every lock for as long as the lock is held.
	leases bool
}

func (l library) version() string {
	var v []string
	for _, m := range l.modules {
		v = append(v, version()[m])
	}
	return strings.Join(v, ", ")
}

// missing returns why the mode is not possible here; "" if it is.
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

// retry calls the function try every 50 ms, until that function returns true or the time "wait" is over.
func retry(wait time.Duration, try func() (bool, error)) (bool, error) {
	for end := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		if ok, err := try(); ok || err != nil || !time.Now().Before(end) {
			return ok, err
		}
	}
}

// recipe is a lock as articles teach it, on go-redis: SET NX PX with a token, and two scripts.
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
	// By default, redsync tries 32 times, 50 to 250 ms apart.
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

// extend ignores its argument, because redsync extends by the expiry with which the mutex was made.
func (l redsyncLock) extend(time.Duration) error {
	return again(func() error { return owner(l.Extend()) })
}

// again repeats the function do while it times out: redsync's share of a short lease may be too little under load.
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
	// The number of tries should end the wait, not this deadline. But without a deadline, redislock would return an error after the
	// time of a lease.
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

// foreign uses another key's handle, with another token, on the lock: redislock makes no handle for a foreign lock.
func (b bsmLocker) foreign(key string) held { return bsmForeign{b, key} }

type bsmForeign struct {
	b   bsmLocker
	key string
}

// with obtains a lock, gives the lock to another owner without the library's knowledge, and then calls the function do.
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
		return nil // do has changed another's lock: the caller expects an error, so nil fails the test
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

package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/valkey-io/valkey-go"
	"github.com/valkey-io/valkey-go/valkeylock"
)

// renewingLocker is rueidislock or its fork valkeylock, which renews a held lock and wakes waiters by client-side caching.
type renewingLocker struct {
	locks interface {
		TryWithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error)
		WithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error)
	}
	notLocked error // the error of TryWithContext for a lock that another client holds
}

type renewingLock struct {
	owned  context.Context // ends when the library gives the lock up
	cancel context.CancelFunc
}

// givenUp reports whether the library has told the owner of a loss.
func (l renewingLock) givenUp() bool { return l.owned.Err() != nil }

func newRueidislock(t testing.TB, o rueidis.ClientOption) locker {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return renewingLocker{l, rueidislock.ErrNotLocked}
}

func newValkeylock(t testing.TB, o valkey.ClientOption) locker {
	l, err := valkeylock.NewLocker(valkeylock.LockerOption{ClientOption: o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return renewingLocker{l, valkeylock.ErrNotLocked}
}

func (r renewingLocker) acquire(key string, _, wait time.Duration) (held, error) {
	if wait == 0 {
		// TryWithContext waits 20 ms for each key, which may be too short on a machine under load.
		var owned context.Context
		var cancel context.CancelFunc
		ok, err := retry(3*time.Second, func() (bool, error) {
			var err error
			owned, cancel, err = r.locks.TryWithContext(context.Background(), key)
			if errors.Is(err, r.notLocked) || errors.Is(err, context.DeadlineExceeded) {
				return false, nil
			}
			return err == nil, err
		})
		if !ok {
			return nil, err
		}
		return renewingLock{owned, cancel}, nil
	}
	// This context bounds not only the wait, but also the life of the lock. So it must live until release.
	ctx, stop := context.WithCancel(context.Background())
	timer := time.AfterFunc(wait, stop)
	owned, cancel, err := r.locks.WithContext(ctx, key)
	if errors.Is(err, context.Canceled) {
		return nil, nil
	}
	if err != nil {
		stop()
		return nil, err
	}
	timer.Stop()
	return renewingLock{owned, func() { cancel(); stop() }}, nil
}

func (r renewingLocker) foreign(string) held { return nil }

func (l renewingLock) release() error             { l.cancel(); return nil }
func (l renewingLock) extend(time.Duration) error { return nil }

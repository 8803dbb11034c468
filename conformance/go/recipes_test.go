package conformance

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// recipes are hand-written locks on go-redis. SET NX PX with a script is among the libraries.
var recipes = []struct {
	name string
	run  func(t *testing.T, r, other *redis.Client, key string)
}{
	{"setnx_and_expire", setnxAndExpire},
	{"getset_of_a_deadline", getsetOfADeadline},
	{"blpop_semaphore", blpopSemaphore},
	{"watch_and_multi_unlock", watchAndMulti},
	{"watch_and_multi_unlock_of_a_lock_that_was_taken_over", watchAndMultiTakenOver},
	{"listener_to_the_expiry_of_a_lock", listenerToExpiry},
}

func TestRecipes(t *testing.T) {
	about := library{client: "go-redis recipes", modules: []string{goRedis}, mode: "plain RESP3"}
	for _, c := range recipes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			report(t, about, c.name, "")
			a := addrsNow(t)
			open := func() *redis.Client {
				r := redis.NewClient(&redis.Options{Addr: a.Plain[0]})
				t.Cleanup(func() { must(t, r.Close()) })
				return r
			}
			c.run(t, open(), open(), newKey())
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want compares a reply with a value. go-redis's redis.Nil counts as an error, like any other error.
func want[T comparable](t *testing.T, cmd interface{ Result() (T, error) }, value T) {
	t.Helper()
	if got, err := cmd.Result(); err != nil || got != value {
		t.Fatalf("%v: %v, %v, want %v", cmd, got, err, value)
	}
}

func setnxAndExpire(t *testing.T, r, other *redis.Client, key string) {
	ctx := t.Context()
	want(t, r.SetNX(ctx, key, "a", 0), true)
	want(t, r.Expire(ctx, key, 2*time.Second), true)
	want(t, other.SetNX(ctx, key, "b", 0), false)
	if left := other.TTL(ctx, key).Val(); left <= 0 || left > 2*time.Second {
		t.Errorf("TTL %v", left)
	}
	if !eventually(15*time.Second, func() bool { return other.SetNX(ctx, key, "b", 0).Val() }) {
		t.Fatal("the lease never ended")
	}
	want(t, other.TTL(ctx, key), -1)
	want(t, other.Del(ctx, key), 1)
	want(t, other.TTL(ctx, key), -2)
}

// The value of the key is the time at which the lock ends. GETSET decides which client takes over an ended lock.
func getsetOfADeadline(t *testing.T, r, other *redis.Client, key string) {
	ctx, now := t.Context(), time.Now()
	at := func(in time.Duration) string { return strconv.FormatInt(now.Add(in).UnixMilli(), 10) }
	want(t, r.SetNX(ctx, key, at(-time.Second), 0), true) // the owner has died
	want(t, r.SetNX(ctx, key, "x", 0), false)
	want(t, r.Get(ctx, key), at(-time.Second))
	want(t, r.GetSet(ctx, key, at(30*time.Second)), at(-time.Second))
	want(t, other.GetSet(ctx, key, at(31*time.Second)), at(30*time.Second)) // other sees that the lock is held
	want(t, r.Del(ctx, key), 1)
}

func blpopSemaphore(t *testing.T, r, other *redis.Client, key string) {
	ctx := t.Context()
	want(t, r.RPush(ctx, key, "permit-1", "permit-2"), 2)
	for _, permit := range []string{"permit-1", "permit-2"} {
		if got, err := r.BLPop(ctx, time.Second, key).Result(); err != nil || got[1] != permit {
			t.Fatalf("%v %v, want %s", got, err, permit)
		}
	}
	if _, err := r.BLPop(ctx, time.Second, key).Result(); !errors.Is(err, redis.Nil) {
		t.Fatalf("no permit is left, and BLPOP says %v", err)
	}
	got := make(chan *redis.StringSliceCmd, 1)
	go func() { got <- other.BLPop(ctx, 20*time.Second, key) }()
	time.Sleep(200 * time.Millisecond)
	want(t, r.RPush(ctx, key, "permit-1"), 1)
	if got, err := (<-got).Result(); err != nil || got[1] != "permit-1" {
		t.Fatalf("the waiter got %v %v", got, err)
	}
	want(t, r.LLen(ctx, key), 0)
}

// unlock deletes a lock that is still mine, as go-redis's documentation does. It calls the callback (between) before the deletion.
func unlock(ctx context.Context, r *redis.Client, key string, between func() error) error {
	return r.Watch(ctx, func(tx *redis.Tx) error {
		if token, err := tx.Get(ctx, key).Result(); err != nil || token != "mine" {
			return errors.Join(err, errNotOwner)
		}
		if err := between(); err != nil {
			return err
		}
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Del(ctx, key).Err() })
		return err
	}, key)
}

func watchAndMulti(t *testing.T, r, other *redis.Client, key string) {
	ctx := t.Context()
	want(t, r.SetNX(ctx, key, "mine", 30*time.Second), true)
	must(t, unlock(ctx, r, key, func() error { return nil }))
	want(t, other.Exists(ctx, key), 0)
}

func watchAndMultiTakenOver(t *testing.T, r, other *redis.Client, key string) {
	ctx := t.Context()
	want(t, r.SetNX(ctx, key, "mine", 30*time.Second), true)
	err := unlock(ctx, r, key, func() error { return other.Set(ctx, key, "theirs", 30*time.Second).Err() })
	if !errors.Is(err, redis.TxFailedErr) {
		t.Fatalf("EXEC after another one's SET: %v", err)
	}
	want(t, r.Get(ctx, key), "theirs")
}

// A waiter sleeps until the event of the key's expiry tells it that the lock has ended.
func listenerToExpiry(t *testing.T, r, other *redis.Client, key string) {
	ctx := t.Context()
	must(t, r.ConfigSet(ctx, "notify-keyspace-events", "Ex").Err())
	events := other.PSubscribe(ctx, "__keyevent@*__:expired")
	defer func() { must(t, events.Close()) }()
	_, err := events.Receive(ctx) // the confirmation of the subscription
	must(t, err)
	start := time.Now()
	want(t, r.SetNX(ctx, key, "mine", 700*time.Millisecond), true)
	deadline := time.After(15 * time.Second)
	for {
		select {
		case m := <-events.Channel():
			if m.Payload != key {
				continue // the event of another test's key
			}
			if waited := time.Since(start); m.Channel != "__keyevent@0__:expired" || waited < 700*time.Millisecond {
				t.Errorf("%v after %v", m, waited)
			}
			want(t, r.SetNX(ctx, key, "next", time.Second), true)
			return
		case <-deadline:
			t.Fatal("no event")
		}
	}
}

package conformance

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	redigo "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// queueClient calls the commands of docs/locks.md by the generic call of a library.
type queueClient struct {
	acquire func(ctx context.Context, key, owner string, wait time.Duration) ([]int64, error)
	release func(ctx context.Context, key, owner string) (int64, error)
}

// queueLibraries have, beside the client, what the library returns if an owner does not get the lock, and the text of an error that
// the server has sent: "" for other errors.
var queueLibraries = []struct {
	library
	open  func(t *testing.T, addr string, wait time.Duration) queueClient
	null  func(error) bool
	reply func(error) string
}{
	{library{client: "go-redis LOCK.ACQUIRE", modules: []string{goRedis}, mode: "plain RESP3"}, openGoRedis,
		func(err error) bool { return errors.Is(err, redis.Nil) },
		func(err error) string {
			var sent redis.Error
			if !errors.As(err, &sent) {
				return ""
			}
			return sent.Error()
		}},
	{library{client: "redigo LOCK.ACQUIRE", modules: []string{redigoMod}, mode: "plain"}, openRedigo,
		func(err error) bool { return errors.Is(err, redigo.ErrNil) },
		func(err error) string {
			var sent redigo.Error
			if !errors.As(err, &sent) {
				return ""
			}
			return sent.Error()
		}},
	{library{client: "rueidis LOCK.ACQUIRE", modules: []string{"github.com/redis/rueidis"}, mode: "plain RESP3"}, openRueidis,
		rueidis.IsRedisNil,
		func(err error) string {
			sent, ok := rueidis.IsRedisErr(err)
			if !ok {
				return ""
			}
			return sent.Error()
		}},
}

func openGoRedis(t *testing.T, addr string, wait time.Duration) queueClient {
	client := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: wait + 5*time.Second})
	t.Cleanup(func() { must(t, client.Close()) })
	return queueClient{
		func(ctx context.Context, key, owner string, wait time.Duration) ([]int64, error) {
			reply, err := client.Do(ctx, "LOCK.ACQUIRE", key, owner, "PX", 30000, "WAIT", wait.Milliseconds()).Int64Slice()
			return reply, err
		},
		func(ctx context.Context, key, owner string) (int64, error) {
			holds, err := client.Do(ctx, "LOCK.RELEASE", key, owner).Int64()
			return holds, err
		},
	}
}

func openRedigo(t *testing.T, addr string, _ time.Duration) queueClient {
	conn, err := redigo.Dial("tcp", addr, redigo.DialReadTimeout(5*time.Second))
	must(t, err)
	t.Cleanup(func() { must(t, conn.Close()) })
	return queueClient{
		func(_ context.Context, key, owner string, wait time.Duration) ([]int64, error) {
			reply, err := redigo.Int64s(redigo.DoWithTimeout(conn, wait+5*time.Second, "LOCK.ACQUIRE", key, owner, "PX", 30000, "WAIT", wait.Milliseconds()))
			return reply, err
		},
		func(_ context.Context, key, owner string) (int64, error) {
			holds, err := redigo.Int64(conn.Do("LOCK.RELEASE", key, owner))
			return holds, err
		},
	}
}

func openRueidis(t *testing.T, addr string, _ time.Duration) queueClient {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	must(t, err)
	t.Cleanup(client.Close)
	return queueClient{
		func(ctx context.Context, key, owner string, wait time.Duration) ([]int64, error) {
			ms := strconv.FormatInt(wait.Milliseconds(), 10)
			acquire := client.B().Arbitrary("LOCK.ACQUIRE").Keys(key).Args(owner, "PX", "30000", "WAIT", ms).Blocking()
			reply, err := client.Do(ctx, acquire).AsIntSlice()
			return reply, err
		},
		func(ctx context.Context, key, owner string) (int64, error) {
			holds, err := client.Do(ctx, client.B().Arbitrary("LOCK.RELEASE").Keys(key).Args(owner).Build()).AsInt64()
			return holds, err
		},
	}
}

// TestAcquire calls LOCK.ACQUIRE and LOCK.RELEASE as docs/locks.md shows it for each library.
func TestAcquire(t *testing.T) {
	a := addrsNow(t)
	for _, l := range queueLibraries {
		run := func(test string, body func(t *testing.T, open func() queueClient, key string)) {
			t.Run(strings.ReplaceAll(l.client+"/"+test, " ", "-"), func(t *testing.T) {
				t.Parallel()
				report(t, l.library, test, noTokens(t, a))
				body(t, func() queueClient { return l.open(t, a.Plain[0], waitsFor) }, newKey())
			})
		}
		run("lock_acquire_replies_three_integers", func(t *testing.T, open func() queueClient, key string) {
			c := open()
			granted(t, c, key, "me", 0)
			freed(t, c, key, "me")
		})
		run("lock_acquire_waits_for_the_release", func(t *testing.T, open func() queueClient, key string) {
			first, second := open(), open()
			granted(t, first, key, "first", 0)
			begin, done := time.Now(), make(chan error, 1)
			go func() {
				time.Sleep(250 * time.Millisecond)
				_, err := first.release(t.Context(), key, "first")
				done <- err
			}()
			granted(t, second, key, "second", waitsFor)
			if waited := time.Since(begin); waited < 250*time.Millisecond {
				t.Errorf("granted after %v", waited)
			}
			must(t, <-done)
			freed(t, second, key, "second")
		})
		run("lock_acquire_in_vain_replies_null", func(t *testing.T, open func() queueClient, key string) {
			first, second := open(), open()
			granted(t, first, key, "first", 0)
			begin := time.Now()
			if reply, err := second.acquire(t.Context(), key, "second", 200*time.Millisecond); !l.null(err) {
				t.Errorf("a lock that is held: %v, %v", reply, err)
			}
			if waited := time.Since(begin); waited < 200*time.Millisecond {
				t.Errorf("waited only %v", waited)
			}
			if _, err := second.release(t.Context(), key, "second"); !l.null(err) {
				t.Errorf("released by somebody else: %v", err)
			}
			freed(t, first, key, "first")
		})
		run("lock_acquire_refuses_a_deadlock", func(t *testing.T, open func() queueClient, key string) {
			c := open()
			granted(t, c, key, "me", 0)
			reply, err := c.acquire(t.Context(), key, "me", waitsFor)
			if code, _, _ := strings.Cut(l.reply(err), " "); code != "DEADLOCK" {
				t.Errorf("an owner waits for itself: %v, %v", reply, err)
			}
			freed(t, c, key, "me")
		})
	}
}

// waitsFor is how long a client may wait for a lock that it is to get.
const waitsFor = 20 * time.Second

func granted(t *testing.T, c queueClient, key, owner string, wait time.Duration) {
	t.Helper()
	reply, err := c.acquire(t.Context(), key, owner, wait)
	must(t, err)
	if len(reply) != 3 || reply[0] <= 0 || reply[1] <= 0 || reply[1] > 30000 || reply[2] != 1 {
		t.Fatalf("LOCK.ACQUIRE: %v, want a token, at most 30000 ms and 1 hold", reply)
	}
}

func freed(t *testing.T, c queueClient, key, owner string) {
	t.Helper()
	holds, err := c.release(t.Context(), key, owner)
	must(t, err)
	if holds != 0 {
		t.Fatalf("LOCK.RELEASE: %d holds", holds)
	}
}

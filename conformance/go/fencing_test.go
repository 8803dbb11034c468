package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// holder is a client that has taken the lock, and has asked for the lock's token.
type holder struct {
	client redis.UniversalClient
	lock   string
	name   string // what the library has written as the owner
	token  int64

	release func() error
}

type (
	takeFunc = func(ctx context.Context, client redis.UniversalClient, key string) (*holder, error)
	openFunc = func(t *testing.T, client redis.UniversalClient, key string) resource
)

// tokenLocks take a lock with its token. They return nil if another client holds the lock.
var tokenLocks = []struct {
	client  string
	modules []string
	take    takeFunc
}{
	{"go-redis SET NX PX + script", []string{goRedis}, func(ctx context.Context, client redis.UniversalClient, key string) (*holder, error) {
		owner := rand.Text()
		ok, err := client.SetNX(ctx, key, owner, 30*time.Second).Result()
		if err != nil || !ok {
			return nil, err
		}
		token, err := client.Do(ctx, "LOCK.TOKEN", key, "OWNER", owner).Int64()
		return &holder{client, key, owner, token, (&recipeLock{recipe{client}, key, owner}).release}, err
	}},
	{"redsync on go-redis", []string{redsyncMod, goRedis}, func(ctx context.Context, client redis.UniversalClient, key string) (*holder, error) {
		pool := redsyncgoredis.NewPool(client)
		mutex := redsync.New(pool).NewMutex(key, redsync.WithExpiry(30*time.Second))
		err := mutex.LockContext(ctx)
		if err != nil {
			return nil, err
		}
		token, err := client.Do(ctx, "LOCK.TOKEN", key, "OWNER", mutex.Value()).Int64()
		release := func() error { _, err := mutex.UnlockContext(ctx); return err }
		return &holder{client, key, mutex.Value(), token, release}, err
	}},
}

// resource is what a lock protects.
type resource interface {
	// begin is what an owner does before its first write.
	begin(ctx context.Context, o *holder) (bool, error)
	// write returns false if the resource has refused the value.
	write(ctx context.Context, o *holder, value int64) (bool, error)
	value(ctx context.Context) (int64, error)
}

// resources are those of docs/fencing.md. shuts is true if begin shuts out earlier owners.
var resources = []struct {
	name  string
	shuts bool
	open  openFunc
}{
	{"sql_database", true, openDatabase},
	{"object_store", false, openObject},
	{"lock_fence", true, openFenced},
	{"lock_and_data_in_one_script", true, openData},
}

// TestFencing plays docs/fencing.md: of three owners, the first is paused until its lease ends, and the second releases the lock. Both
// send late writes.
func TestFencing(t *testing.T) {
	a := addrsNow(t)
	for _, m := range goRedisModes {
		for _, l := range tokenLocks {
			about := library{client: l.client, modules: l.modules, mode: m.mode}
			for _, res := range resources {
				name := strings.ReplaceAll(l.client+"/"+m.mode+"/fencing_"+res.name, " ", "-")
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					reason := about.missing(a)
					if reason == "" {
						reason = noTokens(t, a)
					}
					if reason == "" && res.name == "sql_database" && os.Getenv("LOCKSTEP_POSTGRES") == "" {
						reason = "no PostgreSQL"
					}
					report(t, about, "fencing_"+res.name, reason)
					play(t, l.take, func() redis.UniversalClient { return openClient(t, m.open(a)) }, res.open, res.shuts)
				})
			}
		}
	}
}

// play lets three owners take a lock in turn.
func play(t *testing.T, take takeFunc, open func() redis.UniversalClient, protect openFunc, shuts bool) {
	ctx, key := t.Context(), newKey()
	r := protect(t, open(), key)
	var former []*holder
	for i := range int64(3) {
		next := takeWithin(t, take, open(), key)
		for _, o := range former {
			isFormer(t, o, next)
		}
		accepted(t, true, r.begin, next)
		for n, o := range former {
			// An object that was only read may still be written. Then the condition of the next write fails.
			unaware := !shuts && n == len(former)-1
			accepted(t, unaware, r.begin, o)
			writes(t, r, o, -i, unaware)
		}
		writes(t, r, next, i, true)
		for _, o := range former {
			accepted(t, false, r.begin, o)
			writes(t, r, o, -i, false)
		}
		writes(t, r, next, i+10, true)
		if got, err := r.value(ctx); err != nil || got != i+10 {
			t.Fatalf("the resource has %d, %v, want %d", got, err, i+10)
		}
		if i == 0 {
			want(t, next.client.PExpire(ctx, key, time.Millisecond), true)
		} else {
			must(t, next.release())
		}
		former = append(former, next)
	}
}

// noTokens returns why the server can give no tokens; "" for lockstep.
func noTokens(t *testing.T, a addrs) string {
	client := openClient(t, redis.NewClient(&redis.Options{Addr: a.Plain[0]}))
	err := client.Do(t.Context(), "LOCK.TOKEN", "none").Err()
	if err != nil && strings.Contains(err.Error(), "unknown command") && os.Getenv("LOCKSTEP_NODES") == "" {
		return "the server has no LOCK.TOKEN"
	}
	return ""
}

func openClient(t *testing.T, c redis.UniversalClient) redis.UniversalClient {
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// takeWithin takes the lock, which the former owner has released or is about to lose.
func takeWithin(t *testing.T, take takeFunc, c redis.UniversalClient, key string) *holder {
	t.Helper()
	var got *holder
	ok, err := retry(15*time.Second, func() (bool, error) {
		var err error
		got, err = take(t.Context(), c, key)
		return got != nil, err
	})
	if err != nil || !ok {
		t.Fatalf("the lock was not granted: %v", err)
	}
	return got
}

// isFormer checks what the server says about an owner after another one has got the lock.
func isFormer(t *testing.T, former, next *holder) {
	t.Helper()
	if next.token <= former.token {
		t.Fatalf("the token %d of the next owner is not larger than %d", next.token, former.token)
	}
	ctx := t.Context()
	if got, err := former.client.Do(ctx, "LOCK.TOKEN", former.lock, "OWNER", former.name).Result(); !errors.Is(err, redis.Nil) {
		t.Fatalf("the token of a former owner: %v, %v", got, err)
	}
	for o, current := range map[*holder]int64{former: 0, next: 1} {
		got, err := o.client.Do(ctx, "LOCK.CHECK", o.lock, o.token).Int64()
		must(t, err)
		if got != current {
			t.Fatalf("LOCK.CHECK %s %d: %d, want %d", o.lock, o.token, got, current)
		}
	}
}

func writes(t *testing.T, r resource, o *holder, value int64, ok bool) {
	t.Helper()
	accepted(t, ok, func(ctx context.Context, o *holder) (bool, error) { return r.write(ctx, o, value) }, o)
}

func accepted(t *testing.T, ok bool, do func(context.Context, *holder) (bool, error), o *holder) {
	t.Helper()
	got, err := do(t.Context(), o)
	must(t, err)
	if got != ok {
		t.Fatalf("accepted from the owner with token %d: %v, want %v", o.token, got, ok)
	}
}

// example returns the code in docs/fencing.md in a language.
func example(t *testing.T, language string) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/fencing.md")
	must(t, err)
	code := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(doc)
	if code == nil {
		t.Fatalf("docs/fencing.md has no %s", language)
	}
	return string(code[1])
}

// fenced is a resource that cannot compare tokens. LOCK.FENCE compares them.
type fenced struct {
	client    redis.UniversalClient
	key, data string
}

func openFenced(_ *testing.T, client redis.UniversalClient, key string) resource {
	return fenced{client, key + ":fence", key + ":data"}
}

func (f fenced) begin(ctx context.Context, o *holder) (bool, error) {
	reply, err := o.client.Do(ctx, "LOCK.FENCE", f.key, o.token, "PX", 60_000).Int64Slice()
	if err != nil {
		return false, err
	}
	if len(reply) != 2 || (reply[0] == 1) != (reply[1] == o.token) || reply[1] < o.token {
		return false, fmt.Errorf("LOCK.FENCE with token %d: %v", o.token, reply)
	}
	return reply[0] == 1, nil
}

func (f fenced) write(ctx context.Context, o *holder, value int64) (bool, error) {
	ok, err := f.begin(ctx, o)
	if !ok || err != nil {
		return false, err
	}
	return true, o.client.Set(ctx, f.data, value, time.Minute).Err()
}

func (f fenced) value(ctx context.Context) (int64, error) { return f.client.Get(ctx, f.data).Int64() }

// data is a key of lockstep beside the lock. One script checks the lock and writes the key.
type data struct {
	client redis.UniversalClient
	key    string
	script *redis.Script
}

func openData(t *testing.T, client redis.UniversalClient, key string) resource {
	return data{client, "{" + key + "}:data", redis.NewScript(example(t, "lua"))}
}

func (d data) begin(ctx context.Context, o *holder) (bool, error) {
	n, err := o.client.Do(ctx, "LOCK.CHECK", o.lock, o.token, "OWNER", o.name).Int()
	return n == 1, err
}

func (d data) write(ctx context.Context, o *holder, value int64) (bool, error) {
	n, err := d.script.Run(ctx, o.client, []string{o.lock, d.key}, o.name, o.token, value).Int()
	return n == 1, err
}

func (d data) value(ctx context.Context) (int64, error) { return d.client.Get(ctx, d.key).Int64() }

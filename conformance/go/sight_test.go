package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// seen returns the key of a lock, its owner as the library knows it, and how the client that waits is shown. rueidislock and valkeylock keep the
// owner's name to themselves, and their clients wait for the message of a tracked key. They hold two of three keys, perhaps not the first.
func seen(t *testing.T, a addrs, l library, key string, h held) (name, owner, queue string) {
	t.Helper()
	switch h := h.(type) {
	case *recipeLock:
		return key, h.token, "poller"
	case redsyncLock:
		return key, h.Value(), "poller"
	case bsmLock:
		return key, h.Token(), "poller"
	}
	c := goredis.NewClient(&goredis.Options{Addr: a.Plain[0]})
	defer c.Close()
	name = strings.Fields(l.client)[0] + ":0:" + key
	if n, err := c.Exists(context.Background(), name).Result(); err != nil {
		t.Fatal(err)
	} else if n == 0 {
		name = strings.Fields(l.client)[0] + ":1:" + key
	}
	return name, "", ""
}

// sight has the harness ask LOCK.LIST and its kin about a lock, and fails if their replies are wrong.
func sight(t *testing.T, l library, key, owner, queue string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"client": l.client, "version": l.version(), "mode": l.mode, "key": key, "kind": "plain", "owner": owner, "stored": owner == "", "holds": 1, "queue": queue})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(os.Getenv("LOCKSTEP_CONTROL")+"/sight", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if said, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s %s %v", resp.Status, said, err)
	}
}

// A lock that is held, and that another client wants, as LOCK.LIST shows it.
func TestSight(t *testing.T) {
	a := addrsNow(t)
	for _, l := range libraries {
		t.Run(strings.ReplaceAll(l.client+"/"+l.mode, " ", "-"), func(t *testing.T) {
			reason := l.missing(a)
			if os.Getenv("LOCKSTEP_CONTROL") == "" {
				reason = "nobody to ask: LOCKSTEP_CONTROL is not set"
			}
			t.Parallel()
			report(t, l, "sight", reason)
			key := newKey()
			h := get(t, l.make(t, a), key, time.Minute, 0)
			if h == nil {
				t.Fatal("a free lock was not granted")
			}
			rival := l.make(t, a)
			got := make(chan held, 1)
			go func() {
				h, err := rival.acquire(key, time.Minute, 40*time.Second)
				if err != nil {
					t.Errorf("acquire: %v", err)
				}
				got <- h
			}()
			name, owner, queue := seen(t, a, l, key, h)
			sight(t, l, name, owner, queue)
			release(t, h)
			if h = <-got; h == nil {
				t.Fatal("the other client did not get the lock")
			}
			release(t, h)
		})
	}
}

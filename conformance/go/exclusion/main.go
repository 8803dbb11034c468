// Command exclusion has workers that take one lock by redsync, while clients of other kinds take it too.
// conformance/clients/exclusion_test.go starts it; room.go there says what the lines to the judge mean.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	random "math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var (
	lock    = os.Getenv("LOCKSTEP_LOCK")
	lease   = milliseconds("LOCKSTEP_LEASE_MS")
	reserve = milliseconds("LOCKSTEP_RESERVE_MS")
)

func milliseconds(variable string) time.Duration {
	n, err := strconv.Atoi(os.Getenv(variable))
	if err != nil {
		log.Fatal(err)
	}
	return time.Duration(n) * time.Millisecond
}

func main() {
	var all sync.WaitGroup
	for addr := range strings.SplitSeq(os.Getenv("LOCKSTEP_ADDRS"), ",") {
		all.Go(func() {
			if err := work(addr); err != nil {
				log.Fatal(err)
			}
		})
	}
	all.Wait()
}

// worker takes the lock through one node.
type worker struct {
	client *redis.Client
	conn   net.Conn
	lines  *bufio.Reader
}

// tell sends a line to the judge, and returns the answer.
func (w *worker) tell(format string, args ...any) (string, error) {
	if _, err := io.WriteString(w.conn, fmt.Sprintf(format, args...)+"\n"); err != nil {
		return "", err
	}
	return w.lines.ReadString('\n')
}

func work(addr string) error {
	conn, err := net.Dial("tcp", os.Getenv("LOCKSTEP_JUDGE"))
	if err != nil {
		return err
	}
	w := &worker{client: redis.NewClient(&redis.Options{Addr: addr}), conn: conn, lines: bufio.NewReader(conn)}
	if _, err := w.tell("HELLO redsync"); err != nil {
		return err
	}
	locks := redsync.New(redsyncgoredis.NewPool(w.client))
	for {
		if word, err := w.tell("NEXT"); err != nil || word == "STOP\n" {
			return err
		}
		owner := rand.Text()
		mutex := locks.NewMutex(lock, redsync.WithExpiry(lease), redsync.WithTries(8),
			redsync.WithGenValueFunc(func() (string, error) { return owner, nil }))
		err := mutex.Lock()
		// redsync says that another client holds the lock by ErrTaken or ErrFailed.
		if taken := new(redsync.ErrTaken); err != nil && !errors.As(err, &taken) && !errors.Is(err, redsync.ErrFailed) {
			what := "another error"
			for _, known := range []string{"INDETERMINATE", "connection refused", "EOF", "connection reset", "i/o timeout"} {
				if strings.Contains(err.Error(), known) {
					what = known
				}
			}
			if _, err := w.tell("NOTE %s", what); err != nil {
				return err
			}
		}
		if err == nil {
			if err := w.visit(owner, mutex.Until()); err != nil {
				return err
			}
			if ok, err := mutex.Unlock(); !ok || err != nil {
				w.release(owner)
			}
		} else {
			w.release(owner)
		}
		time.Sleep(random.N(50 * time.Millisecond))
	}
}

// visit goes in and comes out. The lease lasts until the given time.
func (w *worker) visit(owner string, until time.Time) error {
	left := time.Until(until)
	if left < reserve {
		return nil
	}
	if _, err := w.tell("ENTER %s %d", owner, left.Milliseconds()); err != nil {
		return err
	}
	token := "unknown"
	if n, err := w.client.Do(context.Background(), "LOCK.TOKEN", lock, "OWNER", owner).Int64(); err == nil {
		token = strconv.FormatInt(n, 10)
	} else if errors.Is(err, redis.Nil) {
		token = "none"
	}
	if random.IntN(40) == 0 {
		time.Sleep(200*time.Millisecond + random.N(400*time.Millisecond))
	} else {
		time.Sleep(time.Millisecond + random.N(5*time.Millisecond))
	}
	out := fmt.Sprintf("LEAVE %s %s", owner, token)
	if !time.Now().Before(until) {
		out = "LATE " + owner
	}
	_, err := w.tell("%s", out)
	return err
}

const unlock = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`

// release releases a lock of which redsync does not know whether it has it, again until the outcome is known or the lease must be over.
func (w *worker) release(owner string) {
	for deadline := time.Now().Add(2 * lease); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		err := w.client.Eval(context.Background(), unlock, []string{lock}, owner).Err()
		// WRONGTYPE: Redisson holds the lock.
		if err == nil || strings.Contains(err.Error(), "WRONGTYPE") {
			return
		}
	}
}

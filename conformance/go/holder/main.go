// Command holder takes and drops locks by redsync, as the lines on standard input say. conformance/bridge/bridge_test.go starts it;
// conformance/bridge/worker.go says what the lines mean.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func main() {
	opt, err := redis.ParseURL(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	opt.MaxRetries = -1 // a lock that is taken twice by one attempt is refused
	opt.ReadTimeout = 10 * time.Second
	locks := redsync.New(redsyncgoredis.NewPool(redis.NewClient(opt)))
	held := map[string]*redsync.Mutex{}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(answer(locks, held, strings.Fields(in.Text())))
	}
}

func answer(locks *redsync.Redsync, held map[string]*redsync.Mutex, words []string) string {
	var err error
	ok := true
	switch verb, name := words[0], words[1]; verb {
	case "take":
		ms, _ := strconv.Atoi(words[2])
		m := locks.NewMutex(name, redsync.WithExpiry(time.Duration(ms)*time.Millisecond), redsync.WithTries(1), redsync.WithTimeoutFactor(0.9))
		if err = m.TryLock(); err == nil {
			held[name] = m
		}
	case "renew":
		ok, err = held[name].Extend()
	default:
		ok, err = held[name].Unlock()
		delete(held, name)
	}
	var taken *redsync.ErrTaken
	var node *redsync.ErrNodeTaken
	switch {
	case errors.As(err, &taken), errors.As(err, &node), errors.Is(err, redsync.ErrFailed), errors.Is(err, redsync.ErrLockAlreadyExpired), err == nil && !ok:
		return "no"
	case err != nil:
		return "error " + strings.ReplaceAll(err.Error(), "\n", " ")
	}
	return "yes"
}

package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/server/respclient"
)

const unlock = `if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end`

const (
	lease     = 2 * time.Second
	renewAt   = 500 * time.Millisecond
	renewers  = 20
	thinkTime = 5 * time.Millisecond // a pause between requests, because on a saturated machine all replies are late
)

// replies has what a measurement has seen.
type replies struct {
	mu     sync.Mutex
	times  []time.Duration
	faults []error
}

func (r *replies) add(took []time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times = append(r.times, took...)
	if err != nil {
		r.faults = append(r.faults, err)
	}
}

func (r *replies) String() string {
	slices.Sort(r.times)
	at := func(share float64) time.Duration {
		return r.times[min(int(share*float64(len(r.times))), len(r.times)-1)].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("worst reply %v, p99.9 %v, p99 %v, p50 %v of %d", at(1), at(0.999), at(0.99), at(0.5), len(r.times))
}

// measure keeps a load going until the function beside returns. It calls beside with the channel stop, which it closes after the
// duration last.
func (c *cluster) measure(last time.Duration, beside func(stop <-chan struct{}) error) (*replies, error) {
	r, work := &replies{}, &sync.WaitGroup{}
	stop, enough := make(chan struct{}), make(chan struct{})
	var addrs []string
	for _, n := range c.nodes {
		if n.cmd != nil {
			addrs = append(addrs, n.addr)
		}
	}
	for i := range c.plan.clients {
		work.Go(func() { r.add(lockAndUnlock(addrs[i%len(addrs)], i, stop)) })
	}
	for i := range renewers {
		work.Go(func() { r.add(nil, renew(addrs[i%len(addrs)], i, stop)) })
	}
	timer := time.AfterFunc(last, func() { close(enough) })
	err := beside(enough)
	timer.Stop()
	close(stop)
	work.Wait()
	if err == nil && len(r.faults) > 0 {
		err = r.faults[0]
	}
	if err == nil && len(r.times) == 0 {
		err = fmt.Errorf("no reply")
	}
	return r, err
}

// lockAndUnlock takes and releases locks, and measures the time of each reply.
func lockAndUnlock(addr string, client int, stop <-chan struct{}) (took []time.Duration, err error) {
	conn, err := respclient.Dial(addr, dialTimeout)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	owner := fmt.Sprint("client-", client)
	for i := 0; ; i++ {
		select {
		case <-stop:
			return took, nil
		case <-time.After(thinkTime):
		}
		key := fmt.Sprintf("short:%d:%d", client, i)
		began := time.Now()
		if got, err := conn.Do("SET", key, owner, "NX", "PX", "30000"); err != nil || got != "OK" {
			return took, fmt.Errorf("lock: %v, %w", got, err)
		}
		locked := time.Now()
		if got, err := conn.Do("EVAL", unlock, "1", key, owner); err != nil || got != int64(1) {
			return took, fmt.Errorf("unlock: %v, %w", got, err)
		}
		took = append(took, locked.Sub(began), time.Since(locked))
	}
}

// renew holds a lease and renews it as a watchdog does. If a renewal finds the lease gone, renew returns an error: the lease was
// lost.
func renew(addr string, client int, stop <-chan struct{}) error {
	conn, err := respclient.Dial(addr, dialTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	key, millis := fmt.Sprintf("leased:%d:%d", client, time.Now().UnixNano()), fmt.Sprint(lease.Milliseconds())
	if got, err := conn.Do("SET", key, "me", "NX", "PX", millis); err != nil || got != "OK" {
		return fmt.Errorf("lease: %v, %w", got, err)
	}
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(renewAt):
		}
		began := time.Now()
		if got, err := conn.Do("PEXPIRE", key, millis); err != nil || got != int64(1) {
			return fmt.Errorf("a lease of %v was missed after %v: %v, %w", lease, time.Since(began), got, err)
		}
	}
}

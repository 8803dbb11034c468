package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/server/respclient"
)

// remote is one lock on its servers: the commands of lockstep, or, on a server without them, those of Redis.
type remote struct {
	servers
	clock   Clock
	name    string
	ttl     time.Duration
	permits int           // 0: the lock has one owner
	timeout time.Duration // how long to look for a server that answers

	plain bool         // the server does not know LOCK.ACQUIRE
	owner string       // of the lock that is held or asked for
	heard atomic.Int64 // when a server has answered last, by the clock
}

// These scripts are on Redis what LOCK.RENEW and LOCK.RELEASE are on lockstep.
const (
	renewScript   = `if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end`
	releaseScript = `if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end`
)

var (
	errTaken      = errors.New("another owner has the lock")
	errNoPermits  = errors.New("--permits needs LOCK.ACQUIRE with LIMIT, which this server does not have: a Redis cannot count holders whose leases end one by one")
	errNoneAnswer = errors.New("no server answers")
)

// grant is a lock that was taken.
type grant struct {
	owner string
	token string // "" on a server without tokens
	lease lease
}

// forever is a time for which a server is asked to wait, when there is no limit; then it is asked again.
const forever = 24 * time.Hour

// acquire takes the lock, and waits for it for so long; a negative time has no end.
func (r *remote) acquire(ctx context.Context, wait time.Duration) (grant, error) {
	begun := r.clock.Now()
	r.hear()
	for ctx.Err() == nil {
		left := forever
		if wait >= 0 {
			left = max(begun+wait-r.clock.Now(), 0)
		}
		g, err := r.try(ctx, left)
		if err == nil {
			return g, nil
		}
		switch taken := errors.Is(err, errTaken); {
		case taken && left == 0:
			return grant{}, errTaken
		case taken && r.plain:
			// Clients that poll in step would be in each other's way.
			pause(ctx, min(left, time.Duration(50+mathrand.IntN(200))*time.Millisecond))
		case taken: // the server has waited for as long as it was asked to
		case refused(err):
			return grant{}, err
		case r.clock.Now()-time.Duration(r.heard.Load()) >= r.timeout:
			return grant{}, fmt.Errorf("%w within %v: %w", errNoneAnswer, r.timeout, err)
		default:
			pause(ctx, min(r.timeout/20, 100*time.Millisecond))
		}
	}
	return grant{}, ctx.Err()
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// try asks once for the lock. Each time it is another owner who asks. So a request whose outcome is unknown, and that may yet be carried
// out, can never be mistaken for a later one.
func (r *remote) try(ctx context.Context, left time.Duration) (grant, error) {
	r.owner = newOwner()
	g := grant{owner: r.owner, lease: lease{r.clock.Now(), r.ttl}}
	token, err := r.ask(ctx, left)
	if err == nil && r.clock.Now() >= g.lease.renewAt() {
		// The grant may have come long after the request, and this process may have slept since: only a renewal says how long it lasts.
		g.lease, err = r.renewed(ctx)
	}
	var unknown unknownError
	if errors.As(err, &unknown) {
		r.release(context.WithoutCancel(ctx), r.patience()) // so that others need not wait for the end of this lease
	}
	g.token = token
	return g, err
}

// ask sends the command that takes the lock.
func (r *remote) ask(ctx context.Context, left time.Duration) (token string, err error) {
	ms := strconv.FormatInt(r.ttl.Milliseconds(), 10)
	if r.plain {
		reply, err := r.call(ctx, r.patience(), "SET", r.name, r.owner, "NX", "PX", ms)
		if err == nil && reply != "OK" {
			err = errTaken
		}
		return "", err
	}
	command := []string{"LOCK.ACQUIRE", r.name, r.owner, "PX", ms}
	if left > 0 {
		command = append(command, "WAIT", strconv.FormatInt(max(left.Milliseconds(), 1), 10))
	}
	if r.permits > 0 {
		command = append(command, "LIMIT", strconv.Itoa(r.permits))
	}
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	if left > 0 {
		go r.watch(waits, cancel, r.addrs[r.at])
	}
	reply, err := r.call(waits, left+r.patience(), command...)
	if foreign(err) {
		if r.permits > 0 {
			return "", errNoPermits
		}
		r.plain = true
		return r.ask(ctx, left)
	}
	if err != nil {
		return "", err
	}
	granted, _ := reply.([]any)
	switch {
	case reply == nil:
		return "", errTaken
	case len(granted) != 3:
		return "", fmt.Errorf("the server answered %.100q", fmt.Sprint(reply))
	}
	return fmt.Sprint(granted[0]), nil
}

// foreign reports whether a server does not have LOCK.ACQUIRE, or not yet: then SET NX takes a lock of the same form.
func foreign(err error) bool {
	var answered respclient.ServerError
	return errors.As(err, &answered) &&
		(strings.HasPrefix(string(answered), "ERR unknown command") || strings.HasPrefix(string(answered), "ERR tokens are not counted"))
}

// watch asks the node at which a command waits, over another connection, whether it still serves. A node that is frozen, or cut off from
// the others, keeps the connection and the command, but no lock will ever come from it: then watch ends the wait.
func (r *remote) watch(ctx context.Context, giveUp func(), addr string) {
	probe := servers{dial: r.dial, addrs: []string{addr}}
	defer probe.close()
	for {
		pause(ctx, r.patience())
		if ctx.Err() != nil {
			return
		}
		// A refusal for want of rights is an answer, too.
		if _, err := probe.do(ctx, r.patience(), "LOCK.TOKEN", r.name); err != nil && !refused(err) {
			giveUp()
			return
		}
		r.hear()
	}
}

// call is do, and notes that a server has answered.
func (r *remote) call(ctx context.Context, within time.Duration, args ...string) (any, error) {
	reply, err := r.do(ctx, within, args...)
	if err == nil || refused(err) {
		r.hear()
	}
	return reply, err
}

func (r *remote) hear() { r.heard.Store(int64(r.clock.Now())) }

// patience is how long a server has for its answer, so that there is time for others.
func (r *remote) patience() time.Duration { return r.timeout / 3 }

// renewed renews a new lock, for as long as it may still be there.
func (r *remote) renewed(ctx context.Context) (lease, error) {
	for begun := r.clock.Now(); ; {
		l := lease{r.clock.Now(), r.ttl}
		n, err := r.renew(ctx, r.ttl, l.attempt(r.patience()))
		switch {
		case err == nil && n == 0:
			return l, unknownError{errors.New("the lock was granted, but is over")}
		case err == nil || refused(err):
			return l, err
		case l.from >= begun+r.ttl || ctx.Err() != nil:
			return l, unknownError{err}
		}
		pause(ctx, l.pause())
	}
}

// renew lets the lease begin anew, and returns 0 if the lock is not ours, and 2 if its owner should release it.
func (r *remote) renew(ctx context.Context, ttl, within time.Duration) (int64, error) {
	ms := strconv.FormatInt(ttl.Milliseconds(), 10)
	command := []string{"LOCK.RENEW", r.name, r.owner, "PX", ms}
	if r.plain {
		command = []string{"EVAL", renewScript, "1", r.name, r.owner, ms}
	}
	reply, err := r.do(ctx, within, command...)
	n, ok := reply.(int64)
	if err == nil && !ok {
		err = fmt.Errorf("the server answered %.100q", fmt.Sprint(reply))
	}
	return n, err
}

// release gives the lock back, if it is there.
func (r *remote) release(ctx context.Context, within time.Duration) error {
	command := []string{"LOCK.RELEASE", r.name, r.owner}
	if r.plain {
		command = []string{"EVAL", releaseScript, "1", r.name, r.owner}
	}
	_, err := r.do(ctx, within, command...)
	return err
}

// newOwner returns a name that nobody else has. Its beginning tells a person who holds the lock.
func newOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%.200s:%d:%s", host, os.Getpid(), rand.Text())
}

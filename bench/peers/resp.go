package peers

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/bench/load"
	"github.com/lockstep-io/lockstep/bench/wire"
)

// script is a script that was loaded into the servers before the measurement.
type script struct{ text, sha string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text))
	return script{text, hex.EncodeToString(sum[:])}
}

// These scripts do what the scripts of lock libraries do. rlockScript and runlockScript are Redisson's; a stored result answers
// an unlock that is sent again.
var (
	unlockScript = newScript(`if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('del', KEYS[1])`)
	renewScript  = newScript(`if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('pexpire', KEYS[1], ARGV[2])`)
	rlockScript  = newScript(`
if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
  return redis.call('pttl', KEYS[1])
end
redis.call('hincrby', KEYS[1], ARGV[2], 1)
redis.call('pexpire', KEYS[1], ARGV[1])
return nil`)
	runlockScript = newScript(`
local before = redis.call('get', KEYS[3])
if before then return tonumber(before) end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
local free = 0
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
else
  redis.call('del', KEYS[1])
  redis.call(ARGV[4], KEYS[2], ARGV[1])
  free = 1
end
redis.call('set', KEYS[3], free, 'px', ARGV[5])
return free`)
	scripts = []script{unlockScript, renewScript, rlockScript, runlockScript}
)

// cleanResp deletes all locks on a server, and loads the scripts into it.
func (s *System) cleanResp(addr string) error {
	c, err := s.dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Do("FLUSHALL"); err != nil {
		return err
	}
	for _, sc := range scripts {
		if sha, err := c.Do("SCRIPT", "LOAD", sc.text); err != nil || sha != sc.sha {
			return fmt.Errorf("SCRIPT LOAD: %v, %w", sha, err)
		}
	}
	return nil
}

// serveResp makes clients speak RESP. wait is how many replicas must have a lock before it counts.
func (s *System) serveResp(wait int, addrs ...string) {
	s.pipelines, s.resp = true, addrs
	s.open = func(owner, addr string) (load.Session, error) {
		r, err := openResp(s, addr, owner, wait)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
}

// respSession is a client of one server.
type respSession struct {
	*wire.Resp
	system  *System
	hub     *hub       // for Enter
	sub     *wire.Resp // for EnterAlone; both are made when they are first needed
	addr    string
	owner   string
	wait    string // number of replicas; "" for none
	unlocks int
}

var (
	_ load.Session   = (*respSession)(nil)
	_ load.Reentrant = (*respSession)(nil)
	_ load.Queued    = (*respSession)(nil)
	_ load.Herded    = (*respSession)(nil)
	_ load.Expiring  = (*respSession)(nil)
)

func openResp(s *System, addr, owner string, wait int) (*respSession, error) {
	c, err := s.dialResp(addr)
	if err != nil {
		return nil, err
	}
	session := &respSession{Resp: c, system: s, addr: addr, owner: owner}
	if wait > 0 {
		session.wait = strconv.Itoa(wait)
	}
	return session, nil
}

func (r *respSession) Close() (err error) {
	if r.sub != nil {
		err = r.sub.Close()
	}
	if r.hub != nil {
		err = errors.Join(err, r.system.leave(r.hub))
	}
	return errors.Join(err, r.Resp.Close())
}

var (
	leaseMillis     = millis(lease)
	holdLeaseMillis = millis(holdLease)
)

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func (r *respSession) Lock(keys []string) (int, error) { return r.set(keys, leaseMillis) }
func (r *respSession) Hold(keys []string) (int, error) { return r.set(keys, holdLeaseMillis) }

// HoldFor does what Hold does, with a lease of the given length.
func (r *respSession) HoldFor(keys []string, lease time.Duration) (int, error) {
	return r.set(keys, millis(lease))
}

// Expired returns how many keys the server has deleted after their deadlines. DBSIZE will not do: Redis counts expired keys, too.
func (r *respSession) Expired() (int, error) {
	reply, err := r.Do("INFO", "stats")
	if err != nil {
		return 0, err
	}
	return expiredOf(string(reply.Text))
}

func expiredOf(info string) (int, error) {
	for line := range strings.Lines(info) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "expired_keys:"); ok {
			return strconv.Atoi(n)
		}
	}
	return 0, errors.New("INFO has no expired_keys")
}

func (r *respSession) set(keys []string, lease string) (int, error) {
	for _, key := range keys {
		r.Command("SET", key, r.owner, "NX", "PX", lease)
	}
	return r.locked(len(keys), func(reply wire.Reply) int {
		if reply.Kind == '+' {
			return 1
		}
		return 0
	})
}

const waitMillis = "1000"

// locked sends the commands that take locks. If the session waits for replicas, it sends WAIT after them.
func (r *respSession) locked(n int, count func(wire.Reply) int) (int, error) {
	if r.wait != "" {
		r.Command("WAIT", r.wait, waitMillis)
	}
	got, err := r.exchange(n, count)
	if err != nil || r.wait == "" {
		return got, err
	}
	reply, err := r.Reply()
	if err == nil && reply.Int == 0 {
		err = errors.New("WAIT: no replica has it")
	}
	return got, err
}

// exchange sends the gathered commands, and adds up what the function count returns for n replies.
func (r *respSession) exchange(n int, count func(wire.Reply) int) (sum int, err error) {
	if err := r.Flush(); err != nil {
		return 0, err
	}
	for range n {
		reply, err := r.Reply()
		if err != nil {
			return sum, err
		}
		sum += count(reply)
	}
	return sum, nil
}

func number(reply wire.Reply) int { return int(reply.Int) }

func (r *respSession) Unlock(keys []string) (int, error) {
	for _, key := range keys {
		r.Command("EVALSHA", unlockScript.sha, "1", key, r.owner)
	}
	return r.exchange(len(keys), number)
}

func (r *respSession) Drop(keys []string) (int, error) { return r.Unlock(keys) }

func (r *respSession) Renew(keys []string) (int, error) {
	for _, key := range keys {
		r.Command("EVALSHA", renewScript.sha, "1", key, r.owner, holdLeaseMillis)
	}
	return r.exchange(len(keys), number)
}

func (r *respSession) Held(keys []string) (int, error) {
	for _, key := range keys {
		r.Command("GET", key)
	}
	return r.exchange(len(keys), func(reply wire.Reply) int {
		if reply.Null {
			return 0
		}
		return 1
	})
}

const latchMillis = "16000"

func channel(key string) string { return "redisson_lock__channel:{" + key + "}" }

func (r *respSession) LockReentrant(keys []string) (int, error) {
	for _, key := range keys {
		r.Command("EVALSHA", rlockScript.sha, "1", key, leaseMillis, r.owner)
	}
	return r.locked(len(keys), func(reply wire.Reply) int {
		if reply.Null {
			return 1
		}
		return 0
	})
}

// UnlockReentrant runs Redisson's unlock script for each key. It does not wait for the replies to the DELs of the latches.
func (r *respSession) UnlockReentrant(keys []string) (int, error) {
	first := r.unlocks
	for _, key := range keys {
		r.Command("EVALSHA", runlockScript.sha, "3", key, channel(key), r.latch(key, r.unlocks), "0", leaseMillis, r.owner, "PUBLISH", latchMillis)
		r.unlocks++
	}
	n, err := r.exchange(len(keys), number)
	if err != nil {
		return n, err
	}
	for i, key := range keys {
		r.Forgo("DEL", r.latch(key, first+i))
	}
	return n, r.Flush()
}

// latch returns the name of the key under which the unlock script stores its result. Every unlock has another name.
func (r *respSession) latch(key string, n int) string {
	return "redisson_unlock_latch:{" + key + "}:" + r.owner + ":" + strconv.Itoa(n)
}

// Enter waits as the threads of one Redisson do: with one subscription for all of them.
func (r *respSession) Enter(key string) error {
	left, err := r.try(key)
	if err != nil || left < 0 {
		return err
	}
	if r.hub == nil {
		if r.hub, err = r.system.join(r.addr); err != nil {
			return err
		}
	}
	t, err := r.hub.subscribe(channel(key))
	if err != nil {
		return err
	}
	for {
		if left, err = r.try(key); err != nil {
			return err
		}
		if left < 0 {
			return r.hub.unsubscribe(channel(key))
		}
		if err := r.hub.wait(t, left); err != nil {
			return err
		}
	}
}

// EnterAlone waits like the only waiting thread of a Redisson. It has a subscription of its own, and tries whenever a release is
// published.
func (r *respSession) EnterAlone(key string) error {
	left, err := r.try(key)
	if err != nil || left < 0 {
		return err
	}
	if err := r.subscription("SUBSCRIBE", key); err != nil {
		return err
	}
	for {
		if left, err = r.try(key); err != nil {
			return err
		}
		if left < 0 {
			return r.subscription("UNSUBSCRIBE", key)
		}
		if err := r.told(left); err != nil {
			return err
		}
	}
}

// try tries to take the lock. It returns -1 if it has taken the lock, and otherwise what is left of the holder's lease.
func (r *respSession) try(key string) (left time.Duration, err error) {
	r.Command("EVALSHA", rlockScript.sha, "1", key, leaseMillis, r.owner)
	_, err = r.locked(1, func(reply wire.Reply) int {
		left = time.Duration(reply.Int) * time.Millisecond
		if reply.Null {
			left = -1
		}
		return 0
	})
	return left, err
}

// subscription subscribes or unsubscribes, and waits for the confirmation.
func (r *respSession) subscription(command, key string) (err error) {
	if r.sub == nil {
		if r.sub, err = r.system.dialResp(r.addr); err != nil {
			return err
		}
	}
	r.sub.Command(command, channel(key))
	if err := r.sub.Flush(); err != nil {
		return err
	}
	for {
		if kind, _, err := readPush(r.sub); err != nil || kind == strings.ToLower(command) {
			return err
		}
	}
}

// told waits for a message. If none comes during the holder's lease, it returns an error, because every client here releases its
// lock.
func (r *respSession) told(left time.Duration) error {
	if err := r.sub.Before(time.Now().Add(left)); err != nil {
		return err
	}
	if _, _, err := readPush(r.sub); err != nil {
		return fmt.Errorf("no release was told: %w", err)
	}
	return r.sub.Before(time.Time{})
}

func (r *respSession) Leave(key string) error {
	if n, err := r.UnlockReentrant([]string{key}); err != nil || n != 1 {
		return fmt.Errorf("unlock: %d, %w", n, err)
	}
	return nil
}

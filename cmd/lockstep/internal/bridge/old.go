package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockstep-io/lockstep/store"
)

// How long the node waits for the old Redis. A command of a client waits at most dialTimeout + answerTimeout.
const (
	dialTimeout   = time.Second
	answerTimeout = 2 * time.Second
	connections   = 256 // at most, for each database and protocol version
)

// old is the old Redis: one server, one that Sentinels know, or a Redis Cluster.
type old struct {
	target  string // the URL without passwords, for the log
	cluster bool   // it is a Redis Cluster
	open    func(db, resp int) redis.UniversalClient
	mu      sync.Mutex
	clients map[[2]int]redis.UniversalClient // by database and protocol version
}

// CheckURL says what is wrong with a URL of --bridge.
func CheckURL(target string) error {
	_, err := openOld(target)
	return err
}

// openOld reads the URL of --bridge.
func openOld(target string) (*old, error) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%q is no URL: want redis://host:6379, or rediss:// for TLS; with ?master_name=NAME the hosts are Sentinels, with ?addr=host:port of further nodes they are a Redis Cluster", redacted(target))
	}
	if len(strings.Trim(u.Path, "/")) > 0 {
		return nil, fmt.Errorf("%q names a database: leave it out, because clients choose theirs", redacted(target))
	}
	o := &old{target: u.Scheme + "://" + u.Host, clients: map[[2]int]redis.UniversalClient{}}
	off := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	switch query := u.Query(); {
	case query.Has("master_name"):
		opt, err := redis.ParseFailoverURL(target)
		if err != nil {
			return nil, plain(err)
		}
		// What stands before the @ is for the servers, as in the other forms, unless the query has a password for them.
		if !query.Has("password") {
			opt.Username, opt.Password, opt.SentinelUsername, opt.SentinelPassword = opt.SentinelUsername, opt.SentinelPassword, "", ""
		}
		o.open = func(db, resp int) redis.UniversalClient {
			c := *opt
			c.DB, c.Protocol, c.DisableIdentity, c.MaxRetries, c.PoolSize = db, resp%waiting, true, -1, connections
			c.DialTimeout, c.ReadTimeout, c.WriteTimeout, c.PoolTimeout = dialTimeout, answerTimeout, answerTimeout, answerTimeout
			return redis.NewFailoverClient(&c)
		}
	case query.Has("addr"):
		opt, err := redis.ParseClusterURL(target)
		if err != nil {
			return nil, plain(err)
		}
		o.cluster = true
		o.open = func(_, resp int) redis.UniversalClient {
			c := *opt
			c.Protocol, c.DisableIdentity, c.MaxRetries, c.MaxRedirects, c.PoolSize, c.MaintNotificationsConfig = resp%waiting, true, -1, -1, connections, off
			c.DialTimeout, c.ReadTimeout, c.WriteTimeout, c.PoolTimeout = dialTimeout, answerTimeout, answerTimeout, answerTimeout
			return redis.NewClusterClient(&c)
		}
	default:
		opt, err := redis.ParseURL(target)
		if err != nil {
			return nil, plain(err)
		}
		o.open = func(db, resp int) redis.UniversalClient {
			c := *opt
			c.DB, c.Protocol, c.DisableIdentity, c.MaxRetries, c.PoolSize, c.MaintNotificationsConfig = db, resp%waiting, true, -1, connections, off
			c.DialTimeout, c.ReadTimeout, c.WriteTimeout, c.PoolTimeout = dialTimeout, answerTimeout, answerTimeout, answerTimeout
			return redis.NewClient(&c)
		}
	}
	return o, nil
}

// redacted returns a URL without what may be a password.
func redacted(target string) string {
	target, _, _ = strings.Cut(target, "?")
	if i := strings.LastIndexByte(target, '@'); i >= 0 {
		return "…" + target[i:]
	}
	return target
}

// plain drops what package redis writes in front of its errors about URLs.
func plain(err error) error { return errors.New(strings.TrimPrefix(err.Error(), "redis: ")) }

// waiting is added to a protocol version for commands that wait: they have connections of their own, so that others find one free.
const waiting = 16

func (o *old) client(db, resp int) redis.UniversalClient {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.clients[[2]int{db, resp}]
	if c == nil {
		c = o.open(db, resp)
		o.clients[[2]int{db, resp}] = c
	}
	return c
}

// close closes all connections; commands that run end with errors.
func (o *old) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var err error
	for _, c := range o.clients {
		err = errors.Join(err, c.Close())
	}
	clear(o.clients)
	return err
}

// renew makes the next command look for the primary anew. It is called when a server says that it is no primary any more.
func (o *old) renew(db, resp int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.clients[[2]int{db, resp}]; c != nil {
		delete(o.clients, [2]int{db, resp})
		time.AfterFunc(dialTimeout+answerTimeout, func() { _ = c.Close() }) // others may still use it
	}
}

// server returns the client of the server that has the key.
func (o *old) server(ctx context.Context, db, resp int, key string) (redis.UniversalClient, error) {
	c := o.client(db, resp)
	if cluster, is := c.(*redis.ClusterClient); is {
		return cluster.MasterForKey(ctx, key)
	}
	return c, nil
}

// unreachable is the error of commands that the old Redis has not answered, or could not execute.
type unreachable struct {
	err  error
	sent bool // the command may have been executed
}

func (u *unreachable) Unwrap() error { return u.err }

func (u *unreachable) Error() string { return u.err.Error() }

// refusal is an error by which the old Redis has refused a command without executing it.
type refusal string

func (r refusal) Error() string { return string(r) }

// An outcome is what the old Redis has made of commands, and what their keys held before and afterwards.
type outcome struct {
	before, after []state
	replies       []any
}

// run executes commands on the old Redis as one transaction, and reads their keys before and after them.
func (o *old) run(db, resp int, keys []string, commands [][]any) (*outcome, error) {
	var out *outcome
	err := o.onServer(db, resp, keys[0], func(ctx context.Context, c redis.UniversalClient) error {
		look := append([]any{"EVAL", probe, len(keys)}, anys(keys)...)
		pipe := c.Pipeline()
		pipe.Do(ctx, "MULTI")
		pipe.Do(ctx, look...)
		for _, args := range commands {
			pipe.Do(ctx, args...)
		}
		pipe.Do(ctx, look...)
		exec := pipe.Do(ctx, "EXEC")
		cmds, _ := pipe.Exec(ctx) // each command has its own error
		for _, queued := range cmds[:len(cmds)-1] {
			if err := queued.Err(); err != nil {
				return err
			}
		}
		all, err := exec.Slice()
		if err != nil {
			return err
		}
		if len(all) != len(commands)+2 {
			return fmt.Errorf("EXEC has %d replies, not %d", len(all), len(commands)+2)
		}
		out = &outcome{replies: all[1 : len(all)-1]}
		var ok1, ok2 bool
		out.before, ok1 = readStates(all[0], len(keys))
		out.after, ok2 = readStates(all[len(all)-1], len(keys))
		if !ok1 || !ok2 {
			return fmt.Errorf("cannot read the keys: %v", all[0])
		}
		return nil
	})
	if err == nil {
		for _, r := range out.replies {
			if e, is := r.(error); is && notPrimary(e.Error()) && !anyChanged(out.before, out.after) {
				o.renew(db, resp)
				return nil, &unreachable{err: e}
			}
		}
	}
	return out, err
}

// ask executes one command that does not need the states of its keys.
func (o *old) ask(db, resp int, key string, args []any) (any, error) {
	var reply any
	err := o.onServer(db, resp, key, func(ctx context.Context, c redis.UniversalClient) (err error) {
		reply, err = c.Do(ctx, args...).Result()
		if errors.Is(err, redis.Nil) {
			reply, err = nil, nil
		}
		return err
	})
	return reply, err
}

// onServer calls do, and sorts its error into those of unreachable and refusal.
func (o *old) onServer(db, resp int, key string, do func(context.Context, redis.UniversalClient) error) error {
	ctx := context.Background()
	c, err := o.server(ctx, db, resp, key)
	if err != nil {
		return &unreachable{err: err}
	}
	err = do(ctx, c)
	var said redis.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &said):
		if notPrimary(err.Error()) || strings.HasPrefix(err.Error(), "MOVED ") || strings.HasPrefix(err.Error(), "ASK ") {
			if cluster, is := o.client(db, resp).(*redis.ClusterClient); is {
				cluster.ReloadState(ctx)
			} else {
				o.renew(db, resp)
			}
			return &unreachable{err: err}
		}
		return refusal(err.Error())
	default:
		return &unreachable{err: err, sent: !notSent(err)}
	}
}

// notPrimary reports whether an error says that the server cannot write for now, so that the command has no effect.
func notPrimary(text string) bool {
	for _, code := range []string{"READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED"} {
		if strings.HasPrefix(text, code+" ") {
			return true
		}
	}
	return strings.Contains(text, "-READONLY ") // of a script, by a Redis before 7.0
}

// notSent reports whether an error came before the command was sent.
func notSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
}

func anys[T any](list []T) []any {
	out := make([]any, len(list))
	for i := range list {
		out[i] = list[i]
	}
	return out
}

// toReply turns a reply of the old Redis into one for the client. write means that the command is a write or a script, where "OK" is
// a status.
func toReply(v any, write bool) store.Reply {
	switch v := v.(type) {
	case nil:
		return store.Nil
	case error:
		return store.Err(store.Error(v.Error()))
	case string:
		if write && v == "OK" {
			return store.OK
		}
		return store.Str(v)
	case int64:
		return store.Int(v)
	case bool:
		return store.Reply{Kind: store.Bool, Int: store.Flag(v).Int}
	case float64:
		return store.Float(v)
	case []any:
		elems := make([]store.Reply, len(v))
		for i := range v {
			elems[i] = toReply(v[i], write)
		}
		return store.List(elems...)
	case map[any]any:
		r := store.Reply{Kind: store.Map}
		for name, value := range v {
			r.Elems = append(r.Elems, toReply(name, false), toReply(value, write))
		}
		return r
	default:
		return store.Str(fmt.Sprint(v))
	}
}

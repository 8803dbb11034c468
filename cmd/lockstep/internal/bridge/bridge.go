package bridge

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/server"
	"github.com/lockstep-io/lockstep/store"
)

// Options configure a Bridge.
type Options struct {
	URL       string // of the old Redis
	Table     *store.Table
	Monotonic func() time.Duration
	Deliver   func(kind store.PublishKind, channel, message string) // passes messages of the old Redis to the clients of this node
	Log       *slog.Logger
}

// A Bridge is the backend of a node's clients while the old Redis is still in use.
type Bridge struct {
	server.Backend // the node
	opt            Options
	old            *old
	keys           keyLocks
	holds          holds
	waits          waits
	exec           *store.Command
	stop           context.CancelFunc
	ended          chan struct{}
	up             atomic.Bool // the old Redis has answered the last command; while it has not, only sweep asks it
	counts         Counts
}

// Counts is what a Bridge has counted.
type Counts struct {
	Lost     atomic.Uint64 // locks that the old Redis has lost
	Restored atomic.Uint64 // of them, those that the node has put back
	Refused  atomic.Uint64 // commands that the old Redis granted, and lockstep did not
	Alone    atomic.Uint64 // commands that lockstep has decided alone
	Failed   atomic.Uint64 // commands refused or of unknown outcome, because the old Redis did not answer
	Forgot   atomic.Uint64 // locks that are not compared, because there are too many
}

// Open makes a Bridge in front of a node and connects it to the old Redis. It fails if the old Redis does not answer.
func Open(opt Options, node server.Backend) (*Bridge, error) {
	o, err := openOld(opt.URL)
	if err != nil {
		return nil, err
	}
	b := &Bridge{Backend: node, opt: opt, old: o, exec: opt.Table.Lookup([]byte("exec")), ended: make(chan struct{})}
	if _, err := o.ask(0, 2, "", []any{"PING"}); err != nil {
		return nil, errors.Join(err, o.close())
	}
	b.up.Store(true)
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	done := make(chan struct{}, 2)
	go func() { b.listen(ctx); done <- struct{}{} }()
	go func() { b.sweep(ctx); done <- struct{}{} }()
	go func() { <-done; <-done; close(b.ended) }()
	opt.Log.Info("Commands of clients run on the old Redis first (--bridge)", "redis", o.target)
	return b, nil
}

// Close ends the work of the Bridge. It must be called after the server's end. It works on nil.
func (b *Bridge) Close() error {
	if b == nil {
		return nil
	}
	b.stop()
	err := b.old.close()
	<-b.ended
	return err
}

// Counts returns what the Bridge has counted; nil without a Bridge.
func (b *Bridge) Counts() *Counts {
	if b == nil {
		return nil
	}
	return &b.counts
}

// Up reports whether the old Redis answers, and how many locks the node compares with it.
func (b *Bridge) Up() (up bool, holds int) {
	if b == nil {
		return false, 0
	}
	return b.up.Load(), b.holds.len()
}

// Submit implements server.Submitter.
func (b *Bridge) Submit(calls []cluster.Call, dst []store.Reply) []store.Reply {
	dst = b.SubmitPart(nil, calls, dst)
	for len(dst) < len(calls) {
		dst = append(dst, b.SubmitPart(nil, calls[len(dst):], nil)...)
	}
	return dst
}

// SubmitPart implements server.Submitter.
func (b *Bridge) SubmitPart(client *cluster.Client, calls []cluster.Call, dst []store.Reply) []store.Reply {
	if b.allHere(calls) {
		return b.Backend.SubmitPart(client, calls, dst)
	}
	// One call at a time: the next one may depend on this one's reply, and the session's output must not wait for all.
	if b.way(&calls[0]) == wayHere {
		return b.Backend.SubmitPart(client, calls[:1], dst)
	}
	return append(dst[:0], b.run(client, &calls[0]))
}

// SubmitAsync implements server.Submitter.
func (b *Bridge) SubmitAsync(p *cluster.Submission) {
	if b.allHere(p.Calls) {
		b.Backend.SubmitAsync(p)
		return
	}
	go func() {
		p.Replies = b.SubmitPart(p.Client, p.Calls, p.Replies)
		p.Done()
	}()
}

func (b *Bridge) allHere(calls []cluster.Call) bool {
	for i := range calls {
		if b.way(&calls[i]) != wayHere {
			return false
		}
	}
	return true
}

// way is where a command runs.
type way uint8

const (
	wayHere    way = iota // on lockstep only
	wayOld                // on the old Redis only
	wayWrite              // on the old Redis, then on lockstep
	wayBoth               // on both, whatever the old Redis replies: it changes no keys
	wayMessage            // on the old Redis, which passes the message to all
	wayRefuse
)

func (b *Bridge) way(c *cluster.Call) way {
	name := c.Cmd.FullName()
	switch {
	case c.User == store.SystemUser:
		return wayHere
	case c.Txn != nil:
		if c.Txn.Observe {
			return wayRefuse
		}
		w := wayHere
		for i := range c.Txn.Calls {
			switch b.way(&c.Txn.Calls[i]) {
			case wayRefuse:
				return wayRefuse
			case wayHere:
			default:
				w = wayWrite
			}
		}
		return w
	case strings.HasPrefix(name, "lock."):
		if c.Cmd.Is(store.Write) && name != "lock.force" {
			return wayRefuse
		}
		return wayHere
	}
	switch name {
	case "flushall", "flushdb", "swapdb", "move", "migrate":
		return wayRefuse
	case "scan", "keys", "dbsize", "randomkey":
		return wayOld
	case "publish", "spublish":
		return wayMessage
	case "function|load", "function|delete", "function|flush", "function|restore":
		return wayBoth
	}
	keys, ok := c.Cmd.KeysOf(c.Args)
	switch {
	case !ok || len(c.Cmd.Keys) == 0:
		return wayHere
	case c.Cmd.Is(store.Write) && len(keys) > 0, c.Cmd.RunsLua() && !c.Cmd.Is(store.ReadOnly) && len(keys) > 0:
		return wayWrite
	default: // a read, or a script that names no key
		return wayOld
	}
}

// run runs a call that is not only for lockstep.
func (b *Bridge) run(client *cluster.Client, c *cluster.Call) store.Reply {
	name := c.Cmd.FullName()
	if b.KnowsOlder() {
		return store.Err(errOlder)
	}
	switch b.way(c) {
	case wayRefuse:
		switch {
		case c.Txn != nil && c.Txn.Observe:
			return store.Err(errWatch)
		case c.Txn != nil:
			return store.Err(b.refusedIn(c.Txn.Calls))
		}
		return store.Err(refusedHere(name))
	case wayOld:
		return b.read(client, c)
	case wayMessage:
		err := b.known()
		var reply any
		if err == nil {
			reply, err = b.old.ask(c.DB, c.RESP, string(c.Args[1]), anys(c.Args))
		}
		if b.noteUp(err); err != nil {
			return b.here(client, c)
		}
		return toReply(reply, false)
	case wayBoth:
		reply := b.here(client, c)
		if reply.Kind != store.Failure {
			if _, err := b.old.ask(c.DB, c.RESP, "", anys(c.Args)); err != nil {
				b.noteUp(err)
				return store.Err(b.failure(err))
			}
		}
		return reply
	default:
		return b.write(client, c)
	}
}

func refusedHere(name string) store.Error {
	if strings.HasPrefix(name, "lock.") {
		return errNative(strings.ToUpper(name))
	}
	return errWhole(strings.ToUpper(name))
}

func (b *Bridge) refusedIn(calls []cluster.Call) store.Error {
	for i := range calls {
		if b.way(&calls[i]) == wayRefuse {
			return refusedHere(calls[i].Cmd.FullName())
		}
	}
	return ""
}

// here runs a call on lockstep.
func (b *Bridge) here(client *cluster.Client, c *cluster.Call) store.Reply {
	return b.Backend.SubmitPart(client, []cluster.Call{*c}, nil)[0]
}

// read asks the old Redis, which also knows the keys of clients that have not moved. If it does not answer, and for locks that it has lost,
// lockstep answers.
func (b *Bridge) read(client *cluster.Client, c *cluster.Call) store.Reply {
	keys, _ := c.Cmd.KeysOf(c.Args)
	for _, key := range keys {
		if b.holds.lost(c.DB, string(key)) {
			return b.here(client, c)
		}
	}
	first := ""
	if len(keys) > 0 {
		first = string(keys[0])
	}
	args, known := b.spelled(c)
	if !known {
		return b.here(client, c) // NOSCRIPT
	}
	var reply any
	err := b.known()
	if err == nil {
		reply, err = b.old.ask(c.DB, c.RESP, first, args)
	}
	b.noteUp(err)
	var refused refusal
	switch {
	case err == nil:
		return toReply(reply, c.Cmd.RunsLua() || c.Cmd.Name == "type")
	case errors.As(err, &refused):
		return store.Err(store.Error(refused))
	case c.Cmd.Is(store.ReadOnly) && b.holds.any(c.DB, keys):
		b.counts.Alone.Add(1)
		return b.here(client, c)
	}
	return store.Err(b.failure(err))
}

// failure counts a command that the old Redis has not answered, and returns the error for its client.
func (b *Bridge) failure(err error) store.Error {
	b.counts.Failed.Add(1)
	var down *unreachable
	if errors.As(err, &down) {
		if down.sent {
			return errUnknown
		}
		return errDown
	}
	return errRefused(err.Error())
}

// noteUp notes whether the old Redis has answered.
func (b *Bridge) noteUp(err error) {
	var down *unreachable
	switch {
	case errors.Is(err, errKnownDown), errors.Is(err, redis.ErrPoolTimeout): // nobody has asked it
		return
	case errors.As(err, &down):
		if b.up.Swap(false) {
			b.opt.Log.Warn("The old Redis does not answer: locks of clients here stay, and no others are granted", "redis", b.old.target, "error", err)
		}
		return
	}
	if !b.up.Swap(true) {
		b.opt.Log.Info("The old Redis answers again", "redis", b.old.target)
	}
}

// errKnownDown means that the old Redis has not answered an earlier command, and sweep has not found it back.
var errKnownDown = errors.New("it has not answered")

// known returns an error while the old Redis is known not to answer: clients need not wait for it again.
func (b *Bridge) known() error {
	if b.up.Load() {
		return nil
	}
	return &unreachable{err: errKnownDown}
}

// spelled returns a command as it is sent to the old Redis. A script that only its hash names is sent whole, because the old Redis may not
// have it after a failover. known is false if lockstep does not know the script.
func (b *Bridge) spelled(c *cluster.Call) (args []any, known bool) {
	args = anys(c.Args)
	switch c.Cmd.Name {
	case "evalsha", "evalsha_ro":
		body, ok := b.Script(strings.ToLower(string(c.Args[1])))
		if !ok {
			return nil, false
		}
		args[0], args[1] = strings.Replace(strings.ToUpper(c.Cmd.Name), "SHA", "", 1), body
	}
	return args, true
}

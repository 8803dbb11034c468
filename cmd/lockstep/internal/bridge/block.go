package bridge

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// waitStep is for how long one command waits on the old Redis: a client that leaves may take an element for so long, which is then put back.
const waitStep = time.Second

// waits are the blocking commands that wait on the old Redis.
type waits struct {
	mu sync.Mutex
	m  map[*cluster.Blocked]*wait
}

// A wait is one of them.
type wait struct {
	over bool          // it has ended, or its client has left
	quit chan struct{} // closed then
}

// Block implements server.Submitter.
func (b *Bridge) Block(blocked *cluster.Blocked) {
	w := b.way(&blocked.Call)
	if w == wayHere {
		b.Backend.Block(blocked)
		return
	}
	b.waits.mu.Lock()
	if b.waits.m == nil {
		b.waits.m = map[*cluster.Blocked]*wait{}
	}
	one := &wait{quit: make(chan struct{})}
	b.waits.m[blocked] = one
	b.waits.mu.Unlock()
	go func() {
		var reply store.Reply
		switch {
		case w == wayRefuse:
			reply = store.Err(refusedHere(blocked.Call.Cmd.FullName()))
		default:
			reply = b.wait(&blocked.Call, one)
		}
		if b.endWait(blocked) {
			blocked.Done(reply)
		} else {
			b.giveBack(&blocked.Call, reply)
		}
	}()
}

// endWait ends a wait; it returns false if it has ended already.
func (b *Bridge) endWait(blocked *cluster.Blocked) bool {
	b.waits.mu.Lock()
	defer b.waits.mu.Unlock()
	one := b.waits.m[blocked]
	if one == nil || one.over {
		return false
	}
	one.over = true
	close(one.quit)
	delete(b.waits.m, blocked)
	return true
}

// Unblock implements server.Submitter.
func (b *Bridge) Unblock(blocked *cluster.Blocked, reply store.Reply, ended func(bool)) {
	if b.way(&blocked.Call) == wayHere {
		b.Backend.Unblock(blocked, reply, ended)
		return
	}
	first := b.endWait(blocked)
	if ended != nil {
		ended(first)
	}
	if first {
		blocked.Done(reply)
	}
}

// Abandon implements server.Submitter.
func (b *Bridge) Abandon(blocked *cluster.Blocked) {
	if b.way(&blocked.Call) == wayHere {
		b.Backend.Abandon(blocked)
		return
	}
	b.endWait(blocked)
}

// wait runs a blocking command on the old Redis again and again, until it has a reply or its time is over.
func (b *Bridge) wait(c *cluster.Call, one *wait) store.Reply {
	args := anys(c.Args)
	switch c.Cmd.Name {
	case "blpop", "brpop", "blmove", "brpoplpush", "bzpopmin", "bzpopmax":
	default:
		return store.Err(errWaits)
	}
	seconds, err := strconv.ParseFloat(string(c.Args[len(args)-1]), 64)
	if err != nil || seconds < 0 {
		seconds = 0.001 // the old Redis says what is wrong, or does not wait
	}
	keys, _ := c.Cmd.KeysOf(c.Args)
	for end := b.opt.Monotonic() + time.Duration(seconds*float64(time.Second)); ; {
		step := waitStep
		if seconds > 0 {
			step = min(step, max(end-b.opt.Monotonic(), time.Millisecond))
		}
		if err == nil && seconds >= 0 {
			args[len(args)-1] = strconv.FormatFloat(step.Seconds(), 'f', -1, 64)
		}
		reply, failed := b.old.ask(c.DB, c.RESP+waiting, string(keys[0]), args)
		b.noteUp(failed)
		switch {
		case errors.Is(failed, redis.ErrPoolTimeout): // many clients wait: this one tries again
		case failed != nil:
			return store.Err(b.failure(failed))
		case reply != nil:
			b.mirror(c)
			return toReply(reply, false)
		case seconds > 0 && b.opt.Monotonic() >= end:
			return store.WaitTimedOut
		}
		select {
		case <-one.quit:
			return store.Nil
		default:
		}
	}
}

// mirror takes on lockstep what a blocking command has taken on the old Redis. In a transaction the command does not wait.
func (b *Bridge) mirror(c *cluster.Call) {
	b.transact(nil, c, nil, []cluster.Call{*c})
}

// giveBack puts an element back that a client has not waited for.
func (b *Bridge) giveBack(c *cluster.Call, reply store.Reply) {
	if reply.Kind != store.Array || len(reply.Elems) < 2 {
		return
	}
	key := reply.Elems[0].Str
	var args []any
	switch c.Cmd.Name {
	case "blpop":
		args = []any{"LPUSH", key, reply.Elems[1].Str}
	case "brpop":
		args = []any{"RPUSH", key, reply.Elems[1].Str}
	case "bzpopmin", "bzpopmax":
		if len(reply.Elems) == 3 {
			score := reply.Elems[2].Str
			if reply.Elems[2].Kind == store.Double {
				score = store.FormatFloat(reply.Elems[2].Float())
			}
			args = []any{"ZADD", key, score, reply.Elems[1].Str}
		}
	}
	if args == nil {
		return
	}
	if _, err := b.old.ask(c.DB, 2, key, args); err != nil {
		b.opt.Log.Warn("An element that a client has taken from the old Redis and not got is lost", "key", printable(key), "command", strings.ToUpper(c.Cmd.Name), "error", err)
	}
}

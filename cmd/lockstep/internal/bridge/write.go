package bridge

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// Another node may be in the midst of a command on the same key: it has run on the old Redis, and not yet here. So a difference counts
// only if it lasts for settleTime.
const (
	settleTime = 500 * time.Millisecond
	settleStep = 20 * time.Millisecond
)

// slack is how long before its deadline a lock counts as ended on the old Redis, whose clock may run a little faster.
const slack = 20 * time.Millisecond

// commands returns what is sent to the old Redis for a call, and the keys. known is false if a script is unknown here.
func (b *Bridge) commands(c *cluster.Call) (list [][]any, keys []string, known bool) {
	calls := []cluster.Call{*c}
	if c.Txn != nil {
		calls = c.Txn.Calls
	}
	for i := range calls {
		args, known := b.spelled(&calls[i])
		if !known {
			return nil, nil, false
		}
		list = append(list, args)
		found, _ := calls[i].Cmd.KeysOf(calls[i].Args)
		for _, key := range found {
			if !slices.Contains(keys, string(key)) {
				keys = append(keys, string(key))
			}
		}
	}
	return list, keys, true
}

// maxKeys is how many keys one command or transaction may name: the node reads them all on both sides.
const maxKeys = 1000

// write runs a command on the old Redis and, if it changes something there, here.
func (b *Bridge) write(client *cluster.Client, c *cluster.Call) store.Reply {
	commands, keys, known := b.commands(c)
	switch {
	case !known:
		return b.here(client, c) // NOSCRIPT
	case len(keys) > maxKeys:
		return store.Err(errManyKeys)
	case c.Txn != nil && slices.ContainsFunc(c.Txn.Calls, func(in cluster.Call) bool { return in.DB != c.DB }):
		return store.Err(errWhole("SELECT in MULTI"))
	}
	defer b.keys.lock(c.DB, keys)()
	sent := b.opt.Monotonic()
	var o *outcome
	err := b.known()
	if err == nil {
		o, err = b.old.run(c.DB, c.RESP, keys, commands)
	}
	if b.noteUp(err); err != nil {
		return b.alone(client, c, keys, err)
	}
	if anyChanged(o.before, o.after) {
		return b.changed(client, c, keys, o, sent)
	}
	return b.unchanged(client, c, keys, o)
}

func oldReply(c *cluster.Call, o *outcome) store.Reply {
	if c.Txn != nil {
		return toReply(o.replies, true)
	}
	return toReply(o.replies[0], true)
}

// alone runs a command that the old Redis has not answered, if it is about a lock that is held here: its owner may still renew and release
// it, and nobody else gets it.
func (b *Bridge) alone(client *cluster.Client, c *cluster.Call, keys []string, why error) store.Reply {
	var own []int
	for i, key := range keys {
		if _, ok := b.holds.get(c.DB, key); ok {
			own = append(own, i)
		}
	}
	if len(own) == 0 {
		return store.Err(b.failure(why))
	}
	r, ok := b.ifHeld(client, c, keys, own)
	if !ok {
		return store.Err(b.failure(why))
	}
	b.counts.Alone.Add(1)
	for _, i := range own {
		if one, ok := b.holds.get(c.DB, keys[i]); ok {
			one.alone = true
			b.holds.put(c.DB, keys[i], one)
		}
	}
	return r.reply
}

// ifHeld runs a call on lockstep if one of some of its keys is a lock there that somebody holds, and all are of which this node has a hold;
// ok is false if not.
func (b *Bridge) ifHeld(client *cluster.Client, c *cluster.Call, keys []string, some []int) (r *result, ok bool) {
	for range 3 {
		now, versions := b.held(c.DB, keys)
		if now.failed {
			return nil, false
		}
		any := false
		for _, i := range some {
			if _, known := b.holds.get(c.DB, keys[i]); known && !now.locked[i] {
				return nil, false
			}
			any = any || now.locked[i]
		}
		if !any {
			return nil, false
		}
		r = b.local(client, c, keys, versions)
		if !r.failed {
			return r, true
		}
		if r.reply.Kind != store.NullArray { // else a key has changed in between
			return nil, false
		}
	}
	return nil, false
}

// unchanged answers a command that has changed nothing on the old Redis. If a key is missing there, its lock may have been taken before this
// node began to compare: by way of another node, or before there was a bridge.
func (b *Bridge) unchanged(client *cluster.Client, c *cluster.Call, keys []string, o *outcome) store.Reply {
	var gone []int
	for i, key := range keys {
		if _, known := b.holds.get(c.DB, key); b.missing(c.DB, key, o.after[i], false) || !known && o.after[i].kind == "none" {
			gone = append(gone, i)
		}
	}
	if len(gone) == 0 {
		return oldReply(c, o)
	}
	r, ok := b.ifHeld(client, c, keys, gone)
	if !ok {
		return oldReply(c, o)
	}
	b.counts.Alone.Add(1)
	for _, i := range gone {
		b.putBack(c.DB, keys[i], o.after[i], r.after[i], r.locked[i])
	}
	return r.reply
}

// missing reports whether the old Redis has lost a lock of a client here, and counts it. settled means that the two sides have differed for
// settleTime. The caller holds the lock of the key.
func (b *Bridge) missing(db int, key string, now state, settled bool) bool {
	one, ok := b.holds.get(db, key)
	switch {
	case !ok || now.has(&one.last):
		return false
	case one.lost:
		return true
	case b.opt.Monotonic() >= one.until-slack:
		return false
	}
	if !settled && !b.lasts(db, key, one) {
		b.holds.drop(db, key)
		return false
	}
	b.lose(db, key, one, now)
	return true
}

// lasts reports whether the owners of a lock still own it on lockstep after settleTime.
func (b *Bridge) lasts(db int, key string, one hold) bool {
	for end := b.opt.Monotonic() + settleTime; ; {
		r, _ := b.held(db, []string{key})
		if r.failed || !r.locked[0] || !r.after[0].has(&one.last) {
			return false
		}
		if b.opt.Monotonic() >= end {
			return true
		}
		<-time.After(settleStep)
	}
}

func (b *Bridge) lose(db int, key string, one hold, now state) {
	b.counts.Lost.Add(1)
	one.lost = true
	b.holds.put(db, key, one)
	b.opt.Log.Warn("The old Redis has lost a lock; its owner keeps it here", "key", printable(key), "database", db,
		"owner", printable(one.last.ownerText()), "there", printable(now.ownerText()))
}

// putBack gives the old Redis a lock that lockstep has, if the key there still is as expected and nobody owns it.
func (b *Bridge) putBack(db int, key string, expected, to state, locked bool) {
	if !locked {
		b.holds.drop(db, key)
		return
	}
	if expected.kind != "none" {
		return // somebody else owns it there
	}
	b.replaceOld(db, key, expected, to)
}

// replaceOld gives a key of the old Redis the state of a lock here.
func (b *Bridge) replaceOld(db int, key string, expected, to state) {
	sent := b.opt.Monotonic()
	done, err := b.old.replace(db, key, expected, to)
	b.noteUp(err)
	if err != nil || !done {
		return
	}
	if one, known := b.holds.get(db, key); known && one.lost {
		b.counts.Restored.Add(1)
	}
	b.holds.put(db, key, hold{until: deadline(sent, to), last: to})
}

func deadline(sent time.Duration, s state) time.Duration {
	if !s.expires {
		return forever
	}
	return sent + time.Duration(s.ttl)*time.Millisecond
}

// changed runs a command here that has changed something on the old Redis.
func (b *Bridge) changed(client *cluster.Client, c *cluster.Call, keys []string, o *outcome, sent time.Duration) store.Reply {
	end := b.opt.Monotonic() + settleTime
	r := b.local(client, c, keys, nil)
	for !r.failed && len(refusedKeys(o, r)) > 0 && b.opt.Monotonic() < end {
		<-time.After(settleStep)
		r = b.local(client, c, keys, nil)
	}
	if r.failed {
		return b.failedHere(c, keys, o, r)
	}
	if refused := refusedKeys(o, r); len(refused) > 0 {
		return b.refusedHere(c, keys, o, r, refused)
	}
	reply := oldReply(c, o)
	for i, key := range keys {
		one, known := b.holds.get(c.DB, key)
		switch {
		case known && !one.lost && b.opt.Monotonic() < one.until-slack && !o.before[i].has(&one.last) && r.before[i].has(&one.last):
			// The owner takes or renews a lock that the old Redis has lost.
			b.lose(c.DB, key, one, o.before[i])
			fallthrough
		case known && one.lost:
			reply = r.reply
			if r.locked[i] {
				b.replaceOld(c.DB, key, o.after[i], r.after[i])
			} else {
				b.holds.drop(c.DB, key)
			}
		default:
			b.remember(c, key, o.before[i], o.after[i], r, i, sent)
		}
	}
	return reply
}

// remember notes a lock that both sides have. If the key is no lock here and has another content than on the old Redis, lockstep takes over
// that of the old Redis.
func (b *Bridge) remember(c *cluster.Call, key string, before, after state, r *result, i int, sent time.Duration) {
	db := c.DB
	if changed(before, after) && !r.locked[i] && !sameContent(r.after[i], after) {
		// A script that only renews the key is that of an owner, who has taken the lock before it moved.
		b.adopt(db, key, after, c.Cmd.RunsLua() && sameContent(before, after) && after.expires)
		if again, _ := b.held(db, []string{key}); !again.failed {
			r.after[i], r.locked[i] = again.after[0], again.locked[0]
		}
	}
	if !r.locked[i] {
		b.holds.drop(db, key)
		return
	}
	if !b.holds.put(db, key, hold{until: deadline(sent, after), last: r.after[i]}) {
		b.counts.Forgot.Add(1)
	}
}

func sameContent(a, b state) bool { return a.kind == b.kind && slices.Equal(a.content, b.content) }

// refusedKeys returns the keys that the command has taken on the old Redis, while lockstep has kept another owner's lock.
func refusedKeys(o *outcome, r *result) (list []int) {
	if anyChanged(r.before, r.after) {
		return nil
	}
	for i := range r.after {
		if changed(o.before[i], o.after[i]) && r.locked[i] && !r.after[i].has(&o.after[i]) {
			list = append(list, i)
		}
	}
	return list
}

// refusedHere answers a command that the old Redis has executed although another client here owns the lock: the old Redis has lost that.
func (b *Bridge) refusedHere(c *cluster.Call, keys []string, o *outcome, r *result, refused []int) store.Reply {
	b.counts.Refused.Add(1)
	for i, key := range keys {
		if !changed(o.before[i], o.after[i]) {
			continue
		}
		one, known := b.holds.get(c.DB, key)
		if !slices.Contains(refused, i) || !known {
			// This key is only undone: if another node has granted the lock, that node counts it and puts it back.
			b.undo(c.DB, key, o.before[i], o.after[i])
			continue
		}
		if !one.lost && b.opt.Monotonic() < one.until-slack {
			b.lose(c.DB, key, one, o.before[i])
		}
		b.replaceOld(c.DB, key, o.after[i], r.after[i])
	}
	return r.reply
}

// failedHere answers a command that the old Redis has executed and lockstep has not.
func (b *Bridge) failedHere(c *cluster.Call, keys []string, o *outcome, r *result) store.Reply {
	if !strings.HasPrefix(r.reply.Str, "INDETERMINATE") {
		for i, key := range keys {
			if changed(o.before[i], o.after[i]) {
				b.undo(c.DB, key, o.before[i], o.after[i])
			}
		}
	}
	return r.reply
}

// undo gives a key of the old Redis back what it held before a command.
func (b *Bridge) undo(db int, key string, before, after state) {
	if before.kind == "large" || after.kind == "large" {
		return // what it held is not known
	}
	_, err := b.old.replace(db, key, after, before)
	if b.noteUp(err); err != nil {
		b.opt.Log.Warn("A command could not be undone on the old Redis", "key", printable(key), "error", err)
	}
}

// replace gives a key of the old Redis another state, if it still has the expected one.
func (o *old) replace(db int, key string, expected, target state) (done bool, err error) {
	reply, err := o.ask(db, 2, key, append([]any{"EVAL", replace, 1, key}, replaceArgs(expected, target)...))
	if err != nil {
		return false, err
	}
	n, ok := reply.(int64)
	if !ok {
		return false, errors.New("the old Redis replied " + printable(toReply(reply, false).Str))
	}
	return n == 1, nil
}

// printable is a text of the old Redis or a client, as the log shows it.
func printable(text string) string {
	const most = 200
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strconv.QuoteToGraphic(text)
}

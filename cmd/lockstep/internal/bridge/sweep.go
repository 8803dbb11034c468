package bridge

import (
	"context"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// The node compares all locks of clients here with the old Redis once in sweepEvery, sweepKeys at a time. With many locks, a round takes
// longer: sweepPause stands between two parts. While the old Redis does not answer, the node asks once in askEvery whether it is back, and
// then compares at once.
const (
	sweepEvery = time.Second
	askEvery   = 100 * time.Millisecond
	sweepKeys  = 128
	sweepPause = 5 * time.Millisecond
)

// behind is by how many ms a lease on the old Redis may be shorter than here before it is lengthened.
const behind = 1000

func (b *Bridge) sweep(ctx context.Context) {
	for {
		wait := sweepEvery
		if !b.up.Load() {
			wait = askEvery
		}
		if !pause(ctx, wait) {
			return
		}
		b.sweepAll(ctx)
	}
}

// sweepAll compares all holds, one database after the other.
func (b *Bridge) sweepAll(ctx context.Context) {
	if !b.up.Load() {
		_, err := b.old.ask(0, 2, "", []any{"PING"})
		if b.noteUp(err); err != nil {
			return
		}
	}
	var differ []dbKey
	byDB := map[int][]string{}
	for _, k := range b.holds.all() {
		byDB[k.db] = append(byDB[k.db], k.key)
	}
	for db, keys := range byDB {
		for len(keys) > 0 {
			part := keys[:min(len(keys), sweepKeys)]
			keys = keys[len(part):]
			some, ok := b.sweepPart(db, part)
			differ = append(differ, some...)
			if !ok || !pause(ctx, sweepPause) {
				return
			}
		}
	}
	if len(differ) == 0 || !pause(ctx, settleTime) {
		return
	}
	for _, k := range differ {
		if !b.compare(k.db, k.key) {
			return
		}
	}
}

// pause waits; it returns false if the Bridge ends.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// sweepPart compares some holds, and returns those that differ. ok is false if one of the two sides does not answer.
func (b *Bridge) sweepPart(db int, keys []string) (differ []dbKey, ok bool) {
	there, err := b.old.look(db, keys)
	if b.noteUp(err); err != nil {
		return nil, false
	}
	here, _ := b.held(db, keys)
	if here.failed {
		return nil, false
	}
	for i, key := range keys {
		one, ok := b.holds.get(db, key)
		if ok && (one.alone || one.lost || !here.locked[i] || !there[i].has(&here.after[i]) || shorter(there[i], here.after[i])) {
			differ = append(differ, dbKey{db, key})
		}
	}
	return differ, true
}

func shorter(there, here state) bool {
	return there.expires && here.expires && there.ttl+behind < here.ttl || there.expires && !here.expires
}

// compare looks at a lock that has differed settleTime ago again, while no command by way of this node runs on it, and mends what differs.
// It returns false if one of the two sides does not answer.
func (b *Bridge) compare(db int, key string) bool {
	defer b.keys.lock(db, []string{key})()
	one, ok := b.holds.get(db, key)
	if !ok {
		return true
	}
	there, err := b.old.look(db, []string{key})
	if b.noteUp(err); err != nil {
		return false
	}
	here, _ := b.held(db, []string{key})
	if here.failed {
		return false
	}
	old, now := there[0], here.after[0]
	switch {
	case !here.locked[0]:
		if one.alone && old.kind != "none" && old.has(&one.last) && one.last.has(&old) {
			b.replaceOld(db, key, old, state{kind: "none"}) // it was released while the old Redis did not answer
		}
		b.holds.drop(db, key)
	case !now.has(&one.last):
		b.holds.drop(db, key) // its owner has released it by way of another node, which keeps the present lock in mind
	case b.missing(db, key, old, true), !old.has(&now) && old.kind == "none":
		b.putBack(db, key, old, now, true)
	case old.has(&now) && shorter(old, now):
		longer := old
		longer.ttl, longer.expires = now.ttl, now.expires
		b.replaceOld(db, key, old, longer)
	case one.alone:
		one.alone = false
		b.holds.put(db, key, one)
	}
	return true
}

// look reads keys on the old Redis. In a Redis Cluster each key may be on a server of its own.
func (o *old) look(db int, keys []string) ([]state, error) {
	groups := [][]string{keys}
	if o.cluster {
		groups = groups[:0]
		for i := range keys {
			groups = append(groups, keys[i:i+1])
		}
	}
	var all []state
	for _, group := range groups {
		reply, err := o.ask(db, 2, group[0], append([]any{"EVAL", probe, len(group)}, anys(group)...))
		if err != nil {
			return nil, err
		}
		states, ok := readStates(reply, len(group))
		if !ok {
			return nil, refusal("it does not tell what its keys hold")
		}
		all = append(all, states...)
	}
	return all, nil
}

// listen passes the messages of the old Redis to the clients of this node, also those of clients that have not moved.
func (b *Bridge) listen(ctx context.Context) {
	c := b.old.open(0, 2)
	defer func() { _ = c.Close() }()
	sub := c.PSubscribe(ctx, "*")
	defer func() { _ = sub.Close() }()
	for messages := sub.Channel(); ; {
		select {
		case <-ctx.Done():
			return
		case m, ok := <-messages:
			if !ok {
				return
			}
			// Each side tells of its own keyspace.
			if len(m.Channel) < 2 || m.Channel[:2] != "__" {
				b.opt.Deliver(store.Channel, m.Channel, m.Payload)
			}
		}
	}
}

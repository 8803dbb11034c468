package bridge

import (
	"strconv"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// A result is what lockstep has made of a call, and what its keys held before and afterwards.
type result struct {
	before, after []state
	locked        []bool // afterwards the key is a lock that is a string or a hash
	reply         store.Reply
	failed        bool // the reply is an error, and nothing was executed, or its outcome is unknown
}

// look returns the call that reads keys. Nodes of version 0.1.0 do not know it.
func look(db int, keys []string) cluster.Call {
	c := cluster.Call{Cmd: cluster.Look, Args: [][]byte{[]byte(cluster.Look.Name)}, DB: db, RESP: 2, User: store.SystemUser}
	for _, key := range keys {
		c.Args = append(c.Args, []byte(key))
	}
	return c
}

// transact runs calls on lockstep as one transaction. calls must not be empty.
func (b *Bridge) transact(client *cluster.Client, from *cluster.Call, watched []cluster.Watched, calls []cluster.Call) store.Reply {
	exec := cluster.Call{Cmd: b.exec, Args: [][]byte{[]byte("EXEC")}, DB: from.DB, RESP: from.RESP, User: from.User, Users: from.Users,
		Txn: &cluster.Transaction{Watched: watched, Calls: calls}}
	reply := b.Backend.SubmitPart(client, []cluster.Call{exec}, nil)[0]
	reply, _ = store.DetachDenials(reply)
	return reply
}

// local runs a call on lockstep.
func (b *Bridge) local(client *cluster.Client, c *cluster.Call, keys []string, watched []cluster.Watched) *result {
	calls := []cluster.Call{look(c.DB, keys)}
	own := 1
	if c.Txn != nil {
		calls, own = append(calls, c.Txn.Calls...), len(c.Txn.Calls)
	} else {
		calls = append(calls, *c)
	}
	calls = append(calls, look(c.DB, keys))
	reply := b.transact(client, c, watched, calls)
	if reply.Kind != store.Array || len(reply.Elems) != len(calls) {
		return &result{reply: reply, failed: true}
	}
	r := &result{reply: reply.Elems[1]}
	if c.Txn != nil {
		r.reply = store.List(reply.Elems[1 : 1+own]...)
	}
	var ok1, ok2 bool
	r.before, _, ok1 = readLook(reply.Elems[0], len(keys))
	r.after, r.locked, ok2 = readLook(reply.Elems[1+own], len(keys))
	if !ok1 || !ok2 {
		return &result{reply: reply.Elems[0], failed: true}
	}
	return r
}

// readLook reads the reply to look: what the keys hold, and whether they are locks that are strings or hashes.
func readLook(reply store.Reply, n int) (states []state, locked []bool, ok bool) {
	if reply.Kind != store.Array || len(reply.Elems) != n {
		return nil, nil, false
	}
	for _, row := range reply.Elems {
		if len(row.Elems) != 5 {
			return nil, nil, false
		}
		s := state{kind: row.Elems[0].Str, deadline: row.Elems[1].Int, ttl: row.Elems[2].Int, expires: row.Elems[2].Int >= 0}
		for _, c := range row.Elems[3].Elems {
			s.content = append(s.content, c.Str)
		}
		states = append(states, s)
		locked = append(locked, row.Elems[4].Int == 1 && (s.kind == "string" || s.kind == "hash"))
	}
	return states, locked, true
}

// held tells what keys hold on lockstep, and whether they are locks, together with their versions.
func (b *Bridge) held(db int, keys []string) (r *result, watched []cluster.Watched) {
	at := cluster.Call{Cmd: b.exec, Args: [][]byte{[]byte("EXEC")}, DB: db, RESP: 2, User: store.SystemUser, Txn: &cluster.Transaction{Observe: true}}
	for _, key := range keys {
		at.Txn.Watched = append(at.Txn.Watched, cluster.Watched{DB: db, Key: []byte(key)})
	}
	watched = at.Txn.Watched
	replies := b.Backend.Submit([]cluster.Call{at, look(db, keys)}, nil)
	if replies[0].Kind != store.Array || len(replies[0].Elems) != len(keys) {
		return &result{reply: replies[0], failed: true}, nil
	}
	for i := range watched {
		watched[i].Version = uint64(replies[0].Elems[i].Int)
	}
	states, locked, ok := readLook(replies[1], len(keys))
	if !ok {
		return &result{reply: replies[1], failed: true}, nil
	}
	return &result{before: states, after: states, locked: locked}, watched
}

// adopt gives a key on lockstep what it holds on the old Redis, unless it is a lock here by now. lock says that a string becomes a lock.
func (b *Bridge) adopt(db int, key string, to state, lock bool) {
	ttl := int64(-1)
	if to.expires {
		ttl = to.ttl
	}
	c := cluster.Call{Cmd: cluster.Adopt, DB: db, RESP: 2, User: store.SystemUser}
	for _, a := range append([]string{cluster.Adopt.Name, key, to.kind, strconv.FormatInt(ttl, 10), strconv.FormatInt(store.Flag(lock).Int, 10)}, to.content...) {
		c.Args = append(c.Args, []byte(a))
	}
	if to.kind == "large" {
		return // its content is not known
	}
	b.Backend.Submit([]cluster.Call{c}, nil) // if it fails, the old Redis still has the key
}

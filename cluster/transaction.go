package cluster

import (
	"encoding/binary"

	"lockstep/store"
)

// Transaction is what WATCH and EXEC ask of the leader, each as one call.
//
// WATCH learns the versions of keys (store.Txn.Version) and leaves nothing
// behind: they are part of the replicated state, so EXEC may compare them on
// another leader. EXEC brings them along and is evaluated in one piece, as one
// request in one entry, if none of the keys has another version by then.
//
// The queue of MULTI stays in the session, on the client's node. EXEC is refused as a whole
// (EXECABORT) if it would write more than an entry may hold. If its fate is unknown it is run again
// only if it does nothing but read.
//
// A version is the number of the write set that last changed the key. Two writes of one batch give a
// key the same version, so a WATCH of a key that its own batch has written waits for the next batch
// (tooEarly). What WATCH knows of absent keys, and when that is forgotten: store/version.go.
//
// The client's node answers some commands by itself (PING, INFO, SUBSCRIBE ...). They cannot stand in
// the entry. They run when the leader has answered, at their place among the replies: before that
// nobody knows whether the transaction takes place. So a PUBLISH does not reach a SUBSCRIBE that
// stands before it in the same transaction.
type Transaction struct {
	Watched []Watched
	Calls   []Call // of EXEC; none of them is a transaction
	Observe bool   // WATCH: the reply is the list of versions
}

// Watched is a key that WATCH has looked at.
type Watched struct {
	DB      int
	Key     []byte
	Version uint64 // store.Txn.Version
}

// neverWatched is a version that no key has: it would exist.
const neverWatched = 0

// Run evaluates the transaction; run is told to run each of its commands. overrun is why it
// may not take place: it has written too much, or a script of it was stopped.
func (t *Transaction) Run(txn *store.Txn, run func(*store.Ctx) store.Reply) (reply store.Reply, overrun store.Error) {
	if t.Observe {
		return t.observe(txn), ""
	}
	if t.denied(txn) {
		return store.Err(store.ErrExecAbort(txn.ErrNoRoom())), ""
	}
	for i := range t.Watched {
		w := &t.Watched[i]
		if !txn.Unchanged(w.DB, w.Key, w.Version) {
			return store.Reply{Kind: store.NullArray}, ""
		}
	}
	replies := store.Reply{Kind: store.Array, Elems: make([]store.Reply, 0, len(t.Calls))}
	ctx := store.Ctx{Txn: txn, InMulti: true}
	size, limit := 0, int(txn.MaxReply())
	for i := range t.Calls {
		c := &t.Calls[i]
		ctx.Cmd, ctx.Args, ctx.DB, ctx.RESP = c.Cmd, c.Args, c.DB, c.RESP
		txn.SetOrigin(c.Origin)
		// The rights may have changed since the command was queued.
		if refusal, ok := ctx.Authorize(c.User, c.Users); !ok {
			replies.Elems = append(replies.Elems, refusal)
			continue
		}
		// A command that would wait has replied what it does here (wait.go).
		replies.Elems = append(replies.Elems, run(&ctx))
		ctx.Wait = nil
		if ctx.Stopped != "" {
			return store.Reply{}, ctx.Stopped
		}
		if overrun := ctx.Overrun(); overrun != "" {
			return store.Reply{}, overrun
		}
		if size += store.Extent(replies.Elems[len(replies.Elems)-1:], limit); size > limit {
			return store.Reply{}, txn.ErrReply()
		}
	}
	return replies, ""
}

// denied reports whether the transaction would add data while there is no room for any.
func (t *Transaction) denied(txn *store.Txn) bool {
	if !txn.OutOfMemory() {
		return false
	}
	for i := range t.Calls {
		c := &t.Calls[i]
		ctx := store.Ctx{Txn: txn, Cmd: c.Cmd, Args: c.Args, DB: c.DB}
		if _, denied := ctx.NoRoom(); denied {
			return true
		}
	}
	return false
}

func (t *Transaction) observe(txn *store.Txn) store.Reply {
	r := store.Reply{Kind: store.Array, Elems: make([]store.Reply, 0, len(t.Watched))}
	for i := range t.Watched {
		v, settled := txn.Version(t.Watched[i].DB, t.Watched[i].Key)
		if !settled {
			// tooEarly has not kept it out, so it stands behind writes in a
			// request of its own: let EXEC fail rather than miss a change.
			v = neverWatched
		}
		r.Elems = append(r.Elems, store.Int(int64(v)))
	}
	return r
}

// execCall stands for EXEC where only the node of the client knows its row.
var execCall = &store.Command{Name: "exec"}

// append encodes a transaction for a peer of a minor version; see wire.go.
func (t *Transaction) append(buf []byte, minor byte) []byte {
	buf = append(buf, byte(store.Flag(t.Observe).Int))
	buf = binary.AppendUvarint(buf, uint64(len(t.Watched)))
	for i := range t.Watched {
		w := &t.Watched[i]
		buf = binary.AppendUvarint(buf, uint64(w.DB))
		buf = binary.AppendUvarint(buf, uint64(len(w.Key)))
		buf = append(buf, w.Key...)
		buf = binary.AppendUvarint(buf, w.Version)
	}
	return appendCalls(buf, t.Calls, minor)
}

// readTransaction decodes a transaction.
func readTransaction(r *fieldReader, table *store.Table) (*Transaction, error) {
	t := &Transaction{Observe: r.int() != 0}
	for n := r.count(); n > 0 && !r.bad; n-- {
		w := Watched{DB: r.int(), Key: r.bytes(), Version: r.uint64()}
		r.bad = r.bad || w.DB >= store.Databases
		t.Watched = append(t.Watched, w)
	}
	for n := r.count(); n > 0 && !r.bad; n-- {
		c, err := readCall(r, table)
		if err != nil {
			return nil, err
		}
		if c.Txn != nil {
			return nil, errFrame
		}
		t.Calls = append(t.Calls, c)
	}
	if r.bad || t.Observe && len(t.Calls) > 0 {
		return nil, errFrame
	}
	return t, nil
}

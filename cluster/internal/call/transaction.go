package call

import (
	"encoding/binary"

	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/codec"
)

// Transaction is the body of a WATCH or an EXEC; each is one call to the leader.
//
// WATCH leaves nothing behind on the leader. It reads the versions of keys (store.Txn.Version), which are part of the replicated
// state, so any later leader may compare those that EXEC brings along.
//
// If the outcome of an EXEC is unknown, the client's node sends it again only if it does nothing but read, or has a number by
// which the next leader knows it (cluster/once.go).
//
// A version is the number of the write set that last changed the key. So a WATCH of a key that its own batch has written waits
// for the next batch (cluster, tooEarly).
//
// Some commands the client's node answers by itself (PING, INFO, SUBSCRIBE ...), after the leader's answer, which says whether
// the transaction takes place. Therefore a SUBSCRIBE gets no message of a PUBLISH that follows it in the same transaction.
type Transaction struct {
	Watched []Watched
	Calls   []Call // the commands of EXEC; none of them is a transaction
	Observe bool   // true for WATCH: the reply is the list of versions
}

// Watched is a key that WATCH has read.
type Watched struct {
	DB      int
	Key     []byte
	Version uint64 // store.Txn.Version
}

// NeverWatched is a version that no key ever has, so EXEC always fails on it.
const NeverWatched = 0

// Run evaluates the transaction, and calls run for each command of an EXEC. If overrun is set, the transaction must have no
// effect.
func (t *Transaction) Run(txn *store.Txn, run func(ctx *store.Ctx, refusal store.Reply, refused bool) store.Reply) (reply store.Reply, overrun store.Error) {
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
		txn.SetClient(c.Client)
		// The rights may have changed since the command was queued.
		refusal, ok := ctx.Authorize(c.User, c.Users)
		// Outside a transaction, some commands block. Here such a command has not blocked, but returned a reply (store/wait.go).
		replies.Elems = append(replies.Elems, run(&ctx, refusal, !ok))
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

// denied reports whether the data or the data directory is at its limit and the transaction has a command that may add data.
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
			// This request itself has changed the key before the WATCH. EXEC must rather fail than miss a change.
			v = NeverWatched
		}
		r.Elems = append(r.Elems, store.Int(int64(v)))
	}
	return r
}

// append encodes a transaction for a peer. The parameter minor is the minor version of the protocol that the peer speaks.
func (t *Transaction) append(buf []byte, minor byte) []byte {
	buf = append(buf, byte(store.Flag(t.Observe).Int))
	buf = binary.AppendUvarint(buf, uint64(len(t.Watched)))
	for i := range t.Watched {
		w := &t.Watched[i]
		buf = binary.AppendUvarint(buf, uint64(w.DB))
		buf = codec.AppendStr(buf, w.Key)
		buf = binary.AppendUvarint(buf, w.Version)
	}
	return Append(buf, t.Calls, minor)
}

// readTransaction decodes a transaction.
func readTransaction(r *codec.Reader, table *store.Table) (*Transaction, error) {
	t := &Transaction{Observe: r.Int() != 0}
	for n := r.Count(1); n > 0 && !r.Bad; n-- {
		w := Watched{DB: r.Int(), Key: r.Bytes(), Version: r.Uvarint()}
		r.Bad = r.Bad || w.DB >= store.Databases
		t.Watched = append(t.Watched, w)
	}
	for n := r.Count(1); n > 0 && !r.Bad; n-- {
		c, err := readCall(r, table, true)
		if err != nil {
			return nil, err
		}
		t.Calls = append(t.Calls, c)
	}
	if r.Bad || t.Observe && len(t.Calls) > 0 {
		return nil, frame.ErrMalformed
	}
	return t, nil
}

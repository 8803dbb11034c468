// Package forward is the protocol by which nodes carry the commands of their clients to the leader: handshakes, frames, the
// links that they travel on, and what the leader may answer.
package forward

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/codec"
)

// A forwarding connection begins with a handshake in each direction. Then it carries frames, requests one way
// and results the other, many at a time.
//
//	handshake: handshake.go
//	frame:     internal/frame
//
//	kind 1  submit    ticket, calls
//	kind 2  result    status (1 byte: Done … ReplyLater). If it is 0, n and n times reply follow.
//	                  If the request was heavy work, more fields follow the replies: 1, its cost
//	                  in ns, and the leases that it granted, if any (cluster/grants.go). Older
//	                  versions skip these fields
//	kind 3  kill      "k" for SCRIPT KILL, "f" for FUNCTION KILL, "s" for FUNCTION STATS; then
//	                  the version of the user list by which the sender has checked its client's
//	                  rights. Version 0.1.0 sends neither that version nor "k". The result is the
//	                  reply of the command. For "s" it may be status 5; then the sender asks again
//	kind 4  transfer  str id of the member to lead; the result is a status
//	                  reply or an error reply
//	kind 5  block     boot number of the sender, the sender's number of the command,
//	                  token of the link, then n=1 and a call: a blocking command. If the sender
//	                  did not send the command at once, two fields follow: 1 if the command has
//	                  waited at a leader, else 0; and the time since the sender got it from
//	                  its client, in µs. A third follows if a leader has given the command a place
//	                  in the queue: that place. Older versions skip these fields
//	kind 6  cancel    how (1 byte, Link.Cancel). If a block frame had this id, its blocking command
//	                  is to be cancelled. If a submit frame had this id, its client was cut off
//	kind 7  claim     boot number of the sender, token of the link: the sender uses this
//	                  connection for its writes and blocking commands. The result is how far the
//	                  log has come, and a token: the given one if it is valid, else a new one.
//	                  Or the result is one error: BUSY (to version 0.1.0: not executed)
//	kind 8  waits     To the sender of a block frame: the command waits; the body is its place in the
//	                  queue, as a number that grows through all terms. To the sender of a submit
//	                  frame, without a body: one of its scripts runs for long
//	kind 9  alive     the sender has blocked clients and lives. With a body of 1 byte: the sender has
//	                  sent all blocking commands that waited at an earlier leader. Older versions
//	                  skip the body
//	kind 10 admin     what (1 byte) | str id | str peer address: a change of
//	                  membership; the result is a status reply or an error reply
//	kind 20 position  no body, or 1 (1 byte). The result is the index up to which the asked
//	                  node knows the log to be committed: its log has all these entries.
//	                  With a body the question is for a leader: the leader answers
//	                  only after it has checked that it still leads
//	kind 21 clients   n, n times id of a client. The result is a list: for each client a list
//	                  of its address and its name, or null if the node has no such client
//
//	ticket:       0, or: id | low | 1 if the write is sent again, else 0 | token (8 bytes)
//	calls:        internal/call/codec.go
//
// Integers are uvarints, str is a uvarint length and bytes, replies are coded
// as in store/replycodec.go.
const (
	Submit   = 1
	Result   = 2
	Kill     = 3
	Transfer = 4
	Block    = 5
	Cancel   = 6
	Claim    = 7
	Waits    = 8
	Alive    = 9
	Admin    = 10
	Position = 20
	Clients  = 21

	Done        = 0
	NotExecuted = 1
	Unknown     = 2
	Cancelled   = 3
	Stale       = 4
	ReplyLater  = 5

	SaysHeavy = 1
)

func AppendSubmit(buf []byte, from Ticket, token uint64, calls []call.Call, minor byte) []byte {
	buf = binary.AppendUvarint(buf, from.ID)
	if from.ID != 0 {
		buf = binary.AppendUvarint(buf, from.Low)
		buf = append(buf, byte(store.Flag(from.Again).Int))
		buf = binary.BigEndian.AppendUint64(buf, token)
	}
	return call.Append(buf, calls, minor)
}

// maxNumber bounds the number of a write (Ticket.ID). No node forwards so many writes while it runs, and maxNumber plus one does not
// overflow.
const maxNumber = 1 << 62

// ReadSubmit decodes a submit frame. from.Origin stays 0, because the sender has named it when it claimed the connection.
func ReadSubmit(body []byte, table *store.Table) (from Ticket, token uint64, calls []call.Call, err error) {
	r := codec.Reader{B: body}
	if from.ID = r.Uvarint(); from.ID != 0 {
		from.Low, from.Again, token = r.Uvarint(), r.Uvarint() != 0, r.Fixed()
		r.Bad = r.Bad || from.Low == 0 || from.Low > from.ID || from.ID > maxNumber
	}
	if r.Bad {
		return Ticket{}, 0, nil, frame.ErrMalformed
	}
	calls, err = call.Read(r.B, table)
	return from, token, calls, err
}

func AppendReplies(buf []byte, replies []store.Reply) []byte {
	buf = append(buf, Done)
	buf = binary.AppendUvarint(buf, uint64(len(replies)))
	for _, r := range replies {
		buf = store.AppendReply(buf, r)
	}
	return buf
}

// ReadResult decodes the body of a result into dst.
func ReadResult(body []byte, dst []store.Reply) ([]store.Reply, error) {
	dst, _, err := ReadReplies(body, dst, store.ReadReply)
	return dst, err
}

// ReadReplies decodes a result as ReadResult does, and each reply by the function read. It also returns the bytes that follow the
// replies.
func ReadReplies(body []byte, dst []store.Reply, read func([]byte) (store.Reply, []byte, error)) (replies []store.Reply, rest []byte, err error) {
	if len(body) == 0 {
		return dst, nil, frame.ErrMalformed
	}
	switch body[0] {
	case Done:
	case NotExecuted:
		return dst, nil, raftnode.ErrNotExecuted
	case Cancelled:
		return dst, nil, ErrCancelled
	case Stale:
		return dst, nil, ErrStale
	case ReplyLater:
		return dst, nil, ErrReplyLater
	case Unknown:
		return dst, nil, raftnode.ErrUnknown
	default:
		return dst, nil, frame.ErrMalformed
	}
	r := codec.Reader{B: body[1:]}
	n := r.Count(1)
	if r.Bad {
		return dst, nil, frame.ErrMalformed
	}
	rest = r.B
	for range n {
		reply, after, err := read(rest)
		if err != nil {
			return dst, nil, err
		}
		dst, rest = append(dst, reply), after
	}
	return dst, rest, nil
}

// The errors of a forwarded request, besides raftnode.ErrNotExecuted and raftnode.ErrUnknown.
var (
	// ErrCancelled: the blocking command was cancelled, and had no effect.
	ErrCancelled = errors.New("cluster: cancelled")
	// ErrStale: the request was not executed, and the node has to claim the link anew before it sends again.
	ErrStale = errors.New("cluster: the link is not the one for blocking commands")
	// ErrReplyLater: the request had no effect, because the leader has no room for so large a reply now.
	ErrReplyLater = errors.New("cluster: no room for the reply")
	// ErrTooLong: the request was not sent, because its frame would be too long for any peer.
	ErrTooLong = errors.New("cluster: the frame is too long")
)

// Waited says for how long a blocking command has waited before it is sent; zero if it is sent at once.
type Waited struct {
	Age    time.Duration // time since the command came to its node
	Joined bool          // the command has waited at a leader already
	Place  uint64        // the place that an earlier leader has given the command; 0: none
}

func AppendBlock(buf []byte, boot, id, token uint64, c *call.Call, w Waited, minor byte) []byte {
	buf = binary.BigEndian.AppendUint64(buf, boot)
	buf = binary.BigEndian.AppendUint64(buf, id)
	buf = binary.BigEndian.AppendUint64(buf, token)
	buf = call.Append(buf, []call.Call{*c}, minor)
	if w == (Waited{}) || minor < MinorWaited {
		return buf
	}
	buf = append(buf, byte(store.Flag(w.Joined).Int))
	buf = binary.AppendUvarint(buf, uint64(w.Age.Microseconds()))
	if w.Place != 0 {
		buf = binary.AppendUvarint(buf, w.Place)
	}
	return buf
}

// maxAge is longer than any node has been running.
const maxAge = 100 * 365 * 24 * time.Hour

// ReadWaited decodes what may follow the call in a block frame.
func ReadWaited(rest []byte) (Waited, error) {
	if len(rest) == 0 {
		return Waited{}, nil
	}
	r := codec.Reader{B: rest}
	w := Waited{Joined: r.Uvarint() != 0}
	w.Age = time.Duration(min(r.Uvarint(), uint64(maxAge.Microseconds()))) * time.Microsecond
	if len(r.B) > 0 {
		w.Place = r.Uvarint()
	}
	if r.Bad {
		return Waited{}, frame.ErrMalformed
	}
	return w, nil
}

func AppendClaim(buf []byte, boot, token uint64) []byte {
	buf = binary.BigEndian.AppendUint64(buf, boot)
	return binary.BigEndian.AppendUint64(buf, token)
}

// ReadPlace decodes the body of a waits frame; 0 if it has none.
func ReadPlace(body []byte) uint64 {
	r := codec.Reader{B: body}
	if place := r.Uvarint(); !r.Bad {
		return place
	}
	return 0
}

// ReadOneReply decodes a result that is one reply.
func ReadOneReply(body []byte) (store.Reply, error) {
	replies, err := ReadResult(body, nil)
	if err != nil {
		return store.Reply{}, err
	}
	if len(replies) != 1 {
		return store.Reply{}, frame.ErrMalformed
	}
	return replies[0], nil
}

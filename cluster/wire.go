package cluster

import (
	"encoding/binary"

	"lockstep/cluster/internal/call"
	"lockstep/cluster/internal/frame"
	"lockstep/store"
	"lockstep/store/codec"
)

// A forwarding connection begins with a greeting in each direction. Then it carries frames, requests one way
// and results the other, many at a time.
//
//	greeting:  greeting.go
//	frame:     internal/frame
//
//	kind 1  submit    ticket, calls
//	kind 2  result    status (1 byte), for status 0: n, n times reply; then, if it was heavy
//	                  work, 1 and its cost in ns; older versions skip the rest
//	kind 3  kill      no body; the result is SCRIPT KILL's reply; the body "f"
//	                  stands for FUNCTION KILL, "s" for FUNCTION STATS
//	kind 4  transfer  str id of the member to lead; the result is a status
//	                  reply or an error reply
//	kind 5  block     boot of the sender, its number of the command, token of
//	                  the link, then n=1 and a call: a blocking command
//	kind 6  cancel    how (1 byte): cancel the block frame with this id
//	kind 7  claim     boot of the sender, token of the link: this connection is
//	                  the one for its writes and blocking commands; the result
//	                  is how far the log has come, and the token, a new one
//	                  unless the given one is valid
//	kind 8  waits     to the sender of a block: the command waits; to the sender of a
//	                  submit: a script of it runs for long. No body
//	kind 9  alive     the sender has blocked clients and lives. No body
//	kind 10 admin     what (1 byte) | str id | str peer address: a change of
//	                  membership; the result is a status reply or an error reply
//	kind 20 position  no body; the result is the index up to which the asked
//	                  node knows the log to be committed, and so has it
//
//	ticket:       0, or id | low | 1: sent again, 0: not | token (8 bytes)
//	calls:        internal/call/codec.go
//
// Integers are uvarints, str is a uvarint length and bytes, replies are coded
// as in store/replycodec.go.
const (
	frameSubmit   = 1
	frameResult   = 2
	frameKill     = 3
	frameTransfer = 4
	frameBlock    = 5
	frameCancel   = 6
	frameClaim    = 7
	frameWaits    = 8
	frameAlive    = 9
	frameAdmin    = 10
	framePosition = 20

	statusDone        = 0
	statusNotExecuted = 1
	statusUnknown     = 2
	statusCancelled   = 3
	statusStale       = 4
	statusReplyLater  = 5

	saysHeavy = 1
)

func appendSubmit(buf []byte, from ticket, token uint64, calls []Call, minor byte) []byte {
	buf = binary.AppendUvarint(buf, from.id)
	if from.id != 0 {
		buf = binary.AppendUvarint(buf, from.low)
		buf = append(buf, byte(store.Flag(from.again).Int))
		buf = binary.BigEndian.AppendUint64(buf, token)
	}
	return call.Append(buf, calls, minor)
}

// readSubmit decodes a submit frame. The frame does not contain the origin.
func readSubmit(body []byte, table *store.Table) (*request, error) {
	r, req := codec.Reader{B: body}, &request{}
	if req.from.id = r.Uvarint(); req.from.id != 0 {
		req.from.low, req.from.again, req.token = r.Uvarint(), r.Uvarint() != 0, r.Fixed()
		r.Bad = r.Bad || req.from.low == 0 || req.from.low > req.from.id
	}
	if r.Bad {
		return nil, frame.ErrMalformed
	}
	var err error
	req.calls, err = call.Read(r.B, table)
	return req, err
}

func appendReplies(buf []byte, replies []store.Reply) []byte {
	buf = append(buf, statusDone)
	buf = binary.AppendUvarint(buf, uint64(len(replies)))
	for _, r := range replies {
		buf = store.AppendReply(buf, r)
	}
	return buf
}

// readResult decodes the body of a result into dst.
func readResult(body []byte, dst []store.Reply) ([]store.Reply, error) {
	dst, _, err := readReplies(body, dst, store.ReadReply)
	return dst, err
}

// readReplies is readResult that also returns the bytes behind the replies. read decodes one reply.
func readReplies(body []byte, dst []store.Reply, read func([]byte) (store.Reply, []byte, error)) (replies []store.Reply, rest []byte, err error) {
	if len(body) == 0 {
		return dst, nil, frame.ErrMalformed
	}
	switch body[0] {
	case statusDone:
	case statusNotExecuted:
		return dst, nil, errNotExecuted
	case statusCancelled:
		return dst, nil, errCancelled
	case statusStale:
		return dst, nil, errStale
	case statusReplyLater:
		return dst, nil, errReplyLater
	case statusUnknown:
		return dst, nil, errUnknown
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

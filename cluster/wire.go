package cluster

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"lockstep/cluster/brake"
	"lockstep/store"
)

// The peer port carries these protocols. The first byte of a connection chooses one:
//
//	'R'  hashicorp/raft's own transport
//	'A'  entries and heartbeats: append.go
//	'F'  forwarding, below
//	'D'  the facts that the nodes exchange: facts.go
//	'J'  a node that wants to become a member: join.go
//
// A forwarding connection begins with a greeting in each direction. Then it carries frames, requests one way
// and results the other, many at a time.
//
//	greeting:  greeting.go
//	frame:     length of the rest (uint32) | kind (1 byte) | id (uvarint) | body
//
//	kind 1  submit    ticket, n, n times call
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
//	call:         db | resp | origin | argc | argc times str; resp plus 4 if a str user
//	              follows it (absent for the default user), plus 8 if then a uvarint
//	              follows, the version of the users (Call.Users)
//	transaction:  db | resp | origin | 0 | 1: WATCH, 0: EXEC | n, n times (db, str key,
//	              version) | n, n times call
//
// Integers are uvarints, str is a uvarint length and bytes, replies are coded
// as in store/replycodec.go.
const (
	protoRaft    = 'R'
	protoAppend  = 'A'
	protoForward = 'F'

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

	wireUser  = 4
	wireUsers = 8 // from minor version 1 on

	statusDone        = 0
	statusNotExecuted = 1
	statusUnknown     = 2
	statusCancelled   = 3
	statusStale       = 4
	statusReplyLater  = 5

	saysHeavy = 1

	// maxFrame bounds a frame: a request may hold a few arguments of the
	// largest size that a client can send.
	maxFrame = 1 << 30
	// maxShort bounds the frames of facts, and of requests to join.
	maxShort = 1 << 16
)

const (
	// asksVersion is the only command of the table that a node may send in its own name: it asks for the version
	// of the users. All other commands count as commands of a client.
	asksVersion = "acl|load"
	// noUser replaces a user name that a peer must not claim. No user can have this name, because it has a blank.
	noUser = "another node"
)

var errFrame = errors.New("cluster: malformed frame from a peer")

func appendStr(buf []byte, s string) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(s)))
	return append(buf, s...)
}

// beginFrame appends the head of a frame; endFrame fills in the length.
func beginFrame(buf []byte, kind byte, id uint64) []byte {
	buf = append(buf, 0, 0, 0, 0, kind)
	return binary.AppendUvarint(buf, id)
}

func endFrame(buf []byte, start int) []byte {
	binary.BigEndian.PutUint32(buf[start:], uint32(len(buf)-start-4))
	return buf
}

// frame is a received frame. No other frame shares the memory of body.
type frame struct {
	kind byte
	id   uint64
	body []byte
}

func readFrame(r *bufio.Reader) (frame, error) { return readFrameUpTo(r, maxFrame) }

// readShort reads a frame of a kind that is always short.
func readShort(r *bufio.Reader) (frame, error) { return readFrameUpTo(r, maxShort) }

// readFrameUpTo reads a frame of a bounded length.
func readFrameUpTo(r *bufio.Reader, most uint32) (frame, error) {
	n, err := readLength(r, most)
	if err != nil {
		return frame{}, err
	}
	return readRest(r, n)
}

// readLength reads the length of a frame; readRest reads the rest of the frame.
func readLength(r *bufio.Reader, most uint32) (int, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 2 || n > most {
		return 0, errFrame
	}
	return int(n), nil
}

func readRest(r *bufio.Reader, n int) (frame, error) {
	b, err := readBody(r, n)
	if err != nil {
		return frame{}, err
	}
	id, size := binary.Uvarint(b[1:])
	if size <= 0 {
		return frame{}, errFrame
	}
	return frame{kind: b[0], id: id, body: b[1+size:]}, nil
}

// readBody reads n bytes. It allocates memory as the bytes arrive, not as announced: after the first megabyte it
// allocates as much as a client can usually send at once.
func readBody(r io.Reader, n int) ([]byte, error) {
	const step, usual = 1 << 20, 16 << 20
	brake.Bring(n)
	b := make([]byte, 0, min(n, step))
	for len(b) < n {
		more := min(n-len(b), max(len(b), step))
		if len(b) > 0 {
			more = min(n-len(b), max(len(b), usual))
		}
		b = slices.Grow(b, more)
		if _, err := io.ReadFull(r, b[len(b):len(b)+more]); err != nil {
			return nil, err
		}
		b = b[:len(b)+more]
	}
	return b, nil
}

func appendSubmit(buf []byte, from ticket, token uint64, calls []Call, minor byte) []byte {
	buf = binary.AppendUvarint(buf, from.id)
	if from.id != 0 {
		buf = binary.AppendUvarint(buf, from.low)
		buf = append(buf, byte(store.Flag(from.again).Int))
		buf = binary.BigEndian.AppendUint64(buf, token)
	}
	return appendCalls(buf, calls, minor)
}

// readSubmit decodes a submit frame. The frame does not contain the origin.
func readSubmit(body []byte, table *store.Table) (*request, error) {
	r, req := fieldReader{b: body}, &request{}
	if req.from.id = r.uint64(); req.from.id != 0 {
		req.from.low, req.from.again, req.token = r.uint64(), r.uint64() != 0, r.fixed()
		r.bad = r.bad || req.from.low == 0 || req.from.low > req.from.id
	}
	if r.bad {
		return nil, errFrame
	}
	var err error
	req.calls, err = readCalls(r.b, table)
	return req, err
}

// appendCalls encodes calls for a peer with a minor version of the protocol.
func appendCalls(buf []byte, calls []Call, minor byte) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(calls)))
	for i := range calls {
		c := &calls[i]
		buf = binary.AppendUvarint(buf, uint64(c.DB))
		resp := c.RESP
		if c.User != "" {
			resp |= wireUser
		}
		users := c.User != "" && c.Users > 0 && minor >= 1
		if users {
			resp |= wireUsers
		}
		buf = binary.AppendUvarint(buf, uint64(resp))
		if c.User != "" {
			buf = appendStr(buf, c.User)
		}
		if users {
			buf = binary.AppendUvarint(buf, c.Users)
		}
		buf = binary.AppendUvarint(buf, c.Origin)
		if c.Txn != nil {
			buf = c.Txn.append(append(buf, 0), minor)
			continue
		}
		buf = binary.AppendUvarint(buf, uint64(len(c.Args)))
		for _, a := range c.Args {
			buf = binary.AppendUvarint(buf, uint64(len(a)))
			buf = append(buf, a...)
		}
	}
	return buf
}

// fieldReader reads the fields of a frame body. The first fault sets bad, which stays set.
type fieldReader struct {
	b   []byte
	bad bool
}

func (r *fieldReader) int() int {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > maxFrame {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return int(n)
}

func (r *fieldReader) uint64() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

// fixed reads a number of eight bytes.
func (r *fieldReader) fixed() uint64 {
	if len(r.b) < 8 {
		r.bad, r.b = true, nil
		return 0
	}
	n := binary.BigEndian.Uint64(r.b)
	r.b = r.b[8:]
	return n
}

func (r *fieldReader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	n := r.b[0]
	r.b = r.b[1:]
	return n
}

// count reads the number of the fields that follow, each of at least one byte.
func (r *fieldReader) count() int {
	n := r.int()
	if n > len(r.b) {
		r.bad = true
		return 0
	}
	return n
}

func (r *fieldReader) bytes() []byte {
	n := r.int()
	if n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	s := r.b[:n:n]
	r.b = r.b[n:]
	return s
}

// readCalls decodes calls; their arguments point into body.
func readCalls(body []byte, table *store.Table) ([]Call, error) {
	r := fieldReader{b: body}
	calls := make([]Call, 0, 4)
	for n := r.count(); n > 0 && !r.bad; n-- {
		c, err := readCall(&r, table)
		if err != nil {
			return nil, err
		}
		calls = append(calls, c)
	}
	if r.bad || len(calls) == 0 {
		return nil, errFrame
	}
	return calls, nil
}

func readCall(r *fieldReader, table *store.Table) (Call, error) {
	c := Call{DB: r.int(), RESP: r.int()}
	if c.RESP&wireUser != 0 {
		c.RESP &^= wireUser
		c.User = string(r.bytes())
	}
	if c.RESP&wireUsers != 0 {
		c.RESP &^= wireUsers
		c.Users = r.uint64()
	}
	c.Origin = r.uint64()
	argc := r.count()
	if r.bad || c.DB >= store.Databases {
		return Call{}, errFrame
	}
	var err error
	if argc == 0 {
		c.Cmd = execCall
		c.Txn, err = readTransaction(r, table)
		return c, err
	}
	c.Args = make([][]byte, argc)
	for i := range c.Args {
		c.Args[i] = r.bytes()
	}
	if r.bad {
		return Call{}, errFrame
	}
	if string(c.Args[0]) == confirmName && argc == 2 {
		c.Cmd = confirmCommand
		return c, nil
	}
	var ok bool
	if c.Cmd, ok = table.Resolve(c.Args); !ok || c.Cmd.Run == nil {
		return Call{}, fmt.Errorf("cluster: peer forwarded %q, which this node does not know: upgrade it", c.Args[0])
	}
	if c.User == store.SystemUser && (c.Cmd.FullName() != asksVersion || len(c.Args) < 3 || string(c.Args[2]) != "version") {
		c.User = noUser
	}
	return c, nil
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
		return dst, nil, errFrame
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
		return dst, nil, errFrame
	}
	r := fieldReader{b: body[1:]}
	n := r.count()
	if r.bad {
		return dst, nil, errFrame
	}
	rest = r.b
	for range n {
		reply, after, err := read(rest)
		if err != nil {
			return dst, nil, err
		}
		dst, rest = append(dst, reply), after
	}
	return dst, rest, nil
}

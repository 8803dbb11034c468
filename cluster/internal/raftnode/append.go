package raftnode

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/brake"
	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"github.com/lockstep-io/lockstep/store/codec"
)

// Raft sends no other request as often. hashicorp/raft's transport finds the fields by reflection, which took a tenth of the time
// of a write. So AppendEntries has a codec and connections of its own:
//
//	hello:     one byte, 'A', from the node that was called. A node of an earlier version closes
//	           the connection instead, and gets its requests by Raft's own protocol
//	request:   length of the rest (uint32) | term | protocol version | id | address |
//	           index of the previous entry | its term | commit index | n, n times entry
//	entry:     index | term | type (1 byte) | data | extensions | when it was appended:
//	           Unix time in ns (8 bytes), 0 if that is not known
//	answer:    length of the rest (uint32) | 0 | term | protocol version | id | address |
//	           last index | 1 for success, else 0 | 1 if the leader may ask again at once, else 0
//	           or, if the request was refused: length of the rest | 1 | why
//
// Integers are uvarints; id, address, data, extensions and why are a uvarint length and bytes. A connection carries one request
// at a time. A node of an earlier version gets requests longer than maxAppend by Raft's own protocol.

const maxAppend = 1 << 20

// errNotSpoken means that Raft's own transport has to send a request, because the peer does not take it in this codec.
var errNotSpoken = errors.New("cluster: to be asked by Raft's own transport")

// appendRefusal is an error that the peer has sent as its answer.
type appendRefusal string

func (r appendRefusal) Error() string { return string(r) }

// appender sends AppendEntries requests in this codec. It keeps the connections for further requests.
type appender struct {
	dial    func(addr string, proto byte, timeout time.Duration) (net.Conn, error)
	timeout time.Duration // for a request and its answer
	now     func() time.Duration
	older   func(addr string) bool // reports whether the peer at addr may run an earlier version; nil: no peer does

	mu      sync.Mutex
	kept    map[raft.ServerAddress][]*appendConn
	earlier map[raft.ServerAddress]time.Duration // when a peer was found to run an earlier version
}

const (
	// appendersKept is how many idle connections to a peer an appender keeps for further requests.
	appendersKept = 3
	// earlierFor is how long the node treats a peer as one of an earlier version, after the peer has
	// closed a connection without a hello.
	earlierFor = 10 * time.Second
)

// appendConn is a connection that carries one request at a time.
type appendConn struct {
	net.Conn
	in   *bufio.Reader
	out  []byte
	late *time.Timer // closes the connection when the hello or an answer is late
}

// errAppendLate is the error if the hello or an answer has not come in time.
var errAppendLate = &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}

func newAppender(port *peerport.Port, timeout time.Duration, cfg *Config) *appender {
	return &appender{dial: port.Connect, timeout: timeout, now: cfg.Time.Monotonic, older: cfg.Older,
		kept: map[raft.ServerAddress][]*appendConn{}, earlier: map[raft.ServerAddress]time.Duration{}}
}

// ask sends a request and reads the answer. If a kept connection is dead, the peer may receive the request twice.
func (a *appender) ask(to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	size := 0
	for _, l := range req.Entries {
		size += len(l.Data) + len(l.Extensions) + datadir.EntryOverhead
	}
	if size > maxAppend && a.older != nil && a.older(string(to)) {
		return errNotSpoken
	}
	for {
		c, kept, err := a.take(to)
		if err != nil {
			return err
		}
		err = c.ask(req, resp, a.timeout)
		if r := appendRefusal(""); err == nil || errors.As(err, &r) {
			a.keep(to, c)
			return err
		}
		c.Close()
		if !kept || !peerport.Broken(err) {
			return err
		}
	}
}

// take returns a kept or new connection to a peer. It remembers for earlierFor that a peer runs an earlier version
// (errNotSpoken).
func (a *appender) take(to raft.ServerAddress) (c *appendConn, kept bool, err error) {
	a.mu.Lock()
	list := a.kept[to]
	if n := len(list); n > 0 {
		c, a.kept[to] = list[n-1], list[:n-1]
	}
	since, earlier := a.earlier[to]
	a.mu.Unlock()
	if c != nil {
		return c, true, nil
	}
	if earlier && a.now()-since < earlierFor {
		return nil, false, errNotSpoken
	}
	c, err = a.connect(to)
	return c, false, err
}

func (a *appender) keep(to raft.ServerAddress, c *appendConn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.kept[to]) >= appendersKept {
		c.Close()
		return
	}
	a.kept[to] = append(a.kept[to], c)
}

// connect makes a connection and waits for the peer's hello.
func (a *appender) connect(to raft.ServerAddress) (*appendConn, error) {
	conn, err := a.dial(string(to), peerport.ProtoAppend, a.timeout)
	if err != nil {
		return nil, err
	}
	c := &appendConn{Conn: conn, in: bufio.NewReader(conn)}
	c.late = time.AfterFunc(min(a.timeout, peerport.HandshakeTimeout), func() { conn.Close() })
	hello, err := c.in.ReadByte()
	switch {
	case !c.late.Stop():
		err = errAppendLate
	case err == nil && hello == peerport.ProtoAppend:
		return c, nil
	case err == nil:
		err = frame.ErrMalformed
	}
	conn.Close()
	if peerport.Broken(err) {
		a.mu.Lock()
		a.earlier[to] = a.now()
		a.mu.Unlock()
		err = errNotSpoken
	}
	return nil, err
}

func (c *appendConn) ask(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, timeout time.Duration) error {
	c.late.Reset(timeout)
	err := c.exchange(req, resp)
	if !c.late.Stop() {
		return errAppendLate
	}
	return err
}

func (c *appendConn) exchange(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	for _, l := range req.Entries {
		if len(l.Data) >= datadir.LongEntry {
			brake.Bring(len(l.Data))
		}
	}
	c.out = appendRequest(c.out[:0], req)
	_, err := c.Write(c.out)
	if cap(c.out) > 2*maxAppend {
		c.out = nil
	}
	if err != nil {
		return err
	}
	body, err := readAppend(c.in)
	if err != nil {
		return err
	}
	return readAnswer(body, resp)
}

// answerAppends serves the connections on which peers send entries and heartbeats.
func (t *transport) answerAppends(port *peerport.Port) {
	for {
		conn, err := port.AcceptAppends()
		if err != nil {
			return
		}
		go t.answerOn(conn)
	}
}

// answerOn serves one connection on which a peer sends entries and heartbeats.
func (t *transport) answerOn(conn net.Conn) {
	defer conn.Close()
	if err := t.answerAll(conn); err == frame.ErrMalformed {
		t.strangers.Note(peerport.BadHandshake, conn.RemoteAddr().String(), err)
	}
}

func (t *transport) answerAll(conn net.Conn) error {
	if _, err := conn.Write([]byte{peerport.ProtoAppend}); err != nil {
		return err
	}
	in := bufio.NewReaderSize(conn, 64<<10)
	var out []byte
	handshook := false
	for {
		body, err := readAppend(in)
		if err != nil {
			return err
		}
		req, err := readRequest(body)
		if err != nil {
			return err
		}
		if !handshook {
			handshook = true
			peerport.HandshakeDone(conn)
		}
		answers := make(chan raft.RPCResponse, 1)
		rpc := raft.RPC{Command: req, RespChan: answers}
		if handle := t.beatHandler.Load(); heartbeat(req) && handle != nil {
			t.heartbeat(rpc, *handle)
		} else if !t.relayOne(rpc) {
			return net.ErrClosed
		}
		select {
		case a := <-answers:
			out = appendAnswer(out[:0], a)
		case <-t.closed:
			return net.ErrClosed
		}
		if _, err := conn.Write(out); err != nil {
			return err
		}
	}
}

func appendHeader(buf []byte, term uint64, h raft.RPCHeader) []byte {
	buf = binary.AppendUvarint(buf, term)
	buf = binary.AppendUvarint(buf, uint64(h.ProtocolVersion))
	buf = codec.AppendStr(buf, h.ID)
	return codec.AppendStr(buf, h.Addr)
}

func readHeader(r *codec.Reader) (term uint64, h raft.RPCHeader) {
	term = r.Uvarint()
	h.ProtocolVersion = raft.ProtocolVersion(r.Int())
	h.ID, h.Addr = r.Bytes(), r.Bytes()
	return term, h
}

func appendRequest(buf []byte, req *raft.AppendEntriesRequest) []byte {
	start := len(buf)
	buf = appendHeader(append(buf, 0, 0, 0, 0), req.Term, req.RPCHeader)
	for _, n := range []uint64{req.PrevLogEntry, req.PrevLogTerm, req.LeaderCommitIndex, uint64(len(req.Entries))} {
		buf = binary.AppendUvarint(buf, n)
	}
	for _, l := range req.Entries {
		buf = binary.AppendUvarint(buf, l.Index)
		buf = binary.AppendUvarint(buf, l.Term)
		buf = append(buf, byte(l.Type))
		buf = codec.AppendStr(buf, l.Data)
		buf = codec.AppendStr(buf, l.Extensions)
		at := uint64(0)
		if !l.AppendedAt.IsZero() {
			at = uint64(l.AppendedAt.UnixNano())
		}
		buf = binary.BigEndian.AppendUint64(buf, at)
	}
	return frame.End(buf, start)
}

// readRequest decodes what appendRequest wrote. The data of a single entry points into body.
func readRequest(body []byte) (*raft.AppendEntriesRequest, error) {
	r, req := codec.Reader{B: body}, &raft.AppendEntriesRequest{}
	req.Term, req.RPCHeader = readHeader(&r)
	req.PrevLogEntry, req.PrevLogTerm, req.LeaderCommitIndex = r.Uvarint(), r.Uvarint(), r.Uvarint()
	if n := r.Count(1); n > 0 {
		req.Entries = make([]*raft.Log, 0, min(n, maxAppend/datadir.EntryOverhead))
		for ; n > 0 && !r.Bad; n-- {
			l := &raft.Log{Index: r.Uvarint(), Term: r.Uvarint(), Type: raft.LogType(r.Byte()), Data: r.Bytes(), Extensions: r.Bytes()}
			if cap(req.Entries) > 1 {
				l.Data, l.Extensions = bytes.Clone(l.Data), bytes.Clone(l.Extensions) // the log keeps short entries in memory; a clone does not keep the rest of body there
			}
			if at := r.Fixed(); at != 0 {
				l.AppendedAt = time.Unix(0, int64(at))
			}
			req.Entries = append(req.Entries, l)
		}
	}
	if r.Bad || len(r.B) > 0 {
		return nil, frame.ErrMalformed
	}
	return req, nil
}

func appendAnswer(buf []byte, a raft.RPCResponse) []byte {
	start := len(buf)
	buf = append(buf, 0, 0, 0, 0)
	resp, ok := a.Response.(*raft.AppendEntriesResponse)
	if a.Error == nil && !ok {
		a.Error = fmt.Errorf("the answer is a %T", a.Response)
	}
	if a.Error != nil {
		return frame.End(codec.AppendStr(append(buf, 1), a.Error.Error()), start)
	}
	buf = appendHeader(append(buf, 0), resp.Term, resp.RPCHeader)
	buf = binary.AppendUvarint(buf, resp.LastLog)
	for _, is := range []bool{resp.Success, resp.NoRetryBackoff} {
		n := byte(0)
		if is {
			n = 1
		}
		buf = append(buf, n)
	}
	return frame.End(buf, start)
}

// readAnswer decodes what appendAnswer wrote.
func readAnswer(body []byte, resp *raft.AppendEntriesResponse) error {
	r := codec.Reader{B: body}
	if refused := r.Byte() != 0; refused {
		why := r.Bytes()
		if r.Bad {
			return frame.ErrMalformed
		}
		return appendRefusal(why)
	}
	resp.Term, resp.RPCHeader = readHeader(&r)
	resp.LastLog, resp.Success, resp.NoRetryBackoff = r.Uvarint(), r.Byte() == 1, r.Byte() == 1
	if r.Bad || len(r.B) > 0 {
		return frame.ErrMalformed
	}
	return nil
}

// readAppend reads the body of a request or an answer into memory of its own.
func readAppend(r *bufio.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > frame.MaxLength {
		return nil, frame.ErrMalformed
	}
	return frame.ReadBody(r, int(n))
}

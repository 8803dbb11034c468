package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// ZooKeeper is one session. Only one goroutine uses it, and it has only one request at a time.
type ZooKeeper struct {
	conn    net.Conn
	r       *bufio.Reader
	xid     int32
	out     []byte
	in      []byte
	timeout time.Duration
}

// ZooKeeperError is an error code of the server.
type ZooKeeperError int32

func (e ZooKeeperError) Error() string { return "zookeeper: error " + strconv.Itoa(int(e)) }

// These are the error codes that can come up when a client uses locks.
const (
	ErrNoNode     ZooKeeperError = -101
	ErrNodeExists ZooKeeperError = -110
)

// These are types of requests, from ZooKeeper's class ZooDefs.
const (
	opCreate      = 1
	opDeleteNode  = 2
	opExists      = 3
	opGetChildren = 8
	opPing        = 11
	opClose       = -11
)

// These are flags of Create.
const (
	Ephemeral  = 1
	Sequential = 2
)

const (
	pingXID      = -2
	watchXID     = -1
	nodeDeleted  = 2
	everything   = 31 // all permissions
	maxZooKeeper = 4 << 20
)

// DialZooKeeper opens a session. It lives until Close, or until timeout has passed since its last request.
func DialZooKeeper(addr string, timeout time.Duration, traffic *Traffic) (*ZooKeeper, error) {
	conn, err := Dial(context.Background(), addr, traffic)
	if err != nil {
		return nil, err
	}
	z := &ZooKeeper{conn: conn, r: bufio.NewReader(conn), timeout: timeout}
	if err := z.connect(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return z, nil
}

// connect makes the first exchange of a new session: protocol version 0, nothing seen yet, no old session, not read-only.
func (z *ZooKeeper) connect() error {
	z.begin()
	z.putInt(0)
	z.putLong(0)
	z.putInt(int32(z.timeout.Milliseconds()))
	z.putLong(0)
	z.putText(string(make([]byte, 16)))
	z.out = append(z.out, 0)
	if err := z.send(); err != nil {
		return err
	}
	b, err := z.receive()
	if err != nil {
		return err
	}
	if len(b) < 8 {
		return errJute
	}
	granted := time.Duration(binary.BigEndian.Uint32(b[4:])) * time.Millisecond
	if granted <= 0 {
		return errors.New("zookeeper: no session")
	}
	z.timeout = granted
	return nil
}

// Close ends the session, which deletes its ephemeral nodes.
func (z *ZooKeeper) Close() error {
	z.request(opClose)
	_, err := z.answer()
	return errors.Join(err, z.conn.Close())
}

// Create makes a node and returns its path.
func (z *ZooKeeper) Create(path, data string, flags int32) (string, error) {
	z.request(opCreate)
	z.putText(path)
	z.putText(data)
	z.putInt(1) // one entry of the ACL
	z.putInt(everything)
	z.putText("world")
	z.putText("anyone")
	z.putInt(flags)
	b, err := z.answer()
	if err != nil {
		return "", err
	}
	path, _, err = text(b)
	return path, err
}

// Delete deletes a node, whatever the node's version is.
func (z *ZooKeeper) Delete(path string) error {
	z.request(opDeleteNode)
	z.putText(path)
	z.putInt(-1)
	_, err := z.answer()
	return err
}

// Exists reports whether a node exists. With watch, the server will report the deletion of the node.
func (z *ZooKeeper) Exists(path string, watch bool) (bool, error) {
	z.request(opExists)
	z.putText(path)
	z.putBool(watch)
	_, err := z.answer()
	if errors.Is(err, ErrNoNode) {
		return false, nil
	}
	return err == nil, err
}

// Children returns the names of the nodes below a path.
func (z *ZooKeeper) Children(path string) ([]string, error) {
	z.request(opGetChildren)
	z.putText(path)
	z.putBool(false)
	b, err := z.answer()
	if err != nil || len(b) < 4 {
		return nil, errors.Join(err, short(len(b), 4))
	}
	names := make([]string, 0, min(binary.BigEndian.Uint32(b), 1<<16))
	for b = b[4:]; len(b) > 0; {
		var name string
		if name, b, err = text(b); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// AwaitDeletion waits until the server reports the deletion of a watched node. Meanwhile it keeps the session alive.
func (z *ZooKeeper) AwaitDeletion(path string) error {
	for {
		if err := z.conn.SetReadDeadline(time.Now().Add(z.timeout / 3)); err != nil {
			return err
		}
		b, err := z.receive()
		var late net.Error
		switch {
		case errors.As(err, &late) && late.Timeout():
			if err := z.ping(); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		case len(b) < headerSize:
			return errJute
		}
		if told, err := deletionOf(b, path); told || err != nil {
			return errors.Join(err, z.conn.SetReadDeadline(time.Time{}))
		}
	}
}

// deletionOf reports whether a message is the event that path has been deleted.
func deletionOf(b []byte, path string) (bool, error) {
	if xid(b) != watchXID {
		return false, nil // the answer to a ping
	}
	b = b[headerSize:]
	if len(b) < 8 {
		return false, errJute
	}
	name, _, err := text(b[8:])
	return name == path && int32(binary.BigEndian.Uint32(b)) == nodeDeleted, err
}

// ping sends a ping, and does not wait for the answer.
func (z *ZooKeeper) ping() error {
	z.begin()
	z.putInt(pingXID)
	z.putInt(opPing)
	return z.send()
}

// begin begins a request. It leaves room for the length of the request.
func (z *ZooKeeper) begin() { z.out = append(z.out[:0], 0, 0, 0, 0) }

func (z *ZooKeeper) request(op int32) {
	z.begin()
	z.xid++
	z.putInt(z.xid)
	z.putInt(op)
}

func (z *ZooKeeper) putInt(v int32)  { z.out = binary.BigEndian.AppendUint32(z.out, uint32(v)) }
func (z *ZooKeeper) putLong(v int64) { z.out = binary.BigEndian.AppendUint64(z.out, uint64(v)) }

func (z *ZooKeeper) putText(s string) {
	z.putInt(int32(len(s)))
	z.out = append(z.out, s...)
}

func (z *ZooKeeper) putBool(v bool) {
	b := byte(0)
	if v {
		b = 1
	}
	z.out = append(z.out, b)
}

func (z *ZooKeeper) send() error {
	binary.BigEndian.PutUint32(z.out, uint32(len(z.out)-4))
	_, err := z.conn.Write(z.out)
	return err
}

// headerSize is the size in bytes of the header of a reply: xid, zxid and error code.
const headerSize = 16

func xid(b []byte) int32 { return int32(binary.BigEndian.Uint32(b)) }

// answer returns the body of the reply, valid until the next message. It may drop events, because a waiting client sets its watch
// again.
func (z *ZooKeeper) answer() ([]byte, error) {
	if err := z.send(); err != nil {
		return nil, err
	}
	for {
		b, err := z.receive()
		if err != nil {
			return nil, err
		}
		if len(b) < headerSize {
			return nil, errJute
		}
		switch xid(b) {
		case pingXID, watchXID:
			continue
		case z.xid:
		default:
			return nil, fmt.Errorf("zookeeper: reply %d to request %d", xid(b), z.xid)
		}
		if code := int32(binary.BigEndian.Uint32(b[12:])); code != 0 {
			return nil, ZooKeeperError(code)
		}
		return b[headerSize:], nil
	}
}

// receive reads a message. If a timeout comes before the message begins, the caller may go on. A timeout within the message is an
// error.
func (z *ZooKeeper) receive() ([]byte, error) {
	var head [4]byte
	if n, err := io.ReadFull(z.r, head[:]); err != nil {
		if n > 0 {
			return nil, fmt.Errorf("zookeeper: a message broken off: %v", err)
		}
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxZooKeeper {
		return nil, errJute
	}
	if cap(z.in) < int(size) {
		z.in = make([]byte, size)
	}
	z.in = z.in[:size]
	if _, err := io.ReadFull(z.r, z.in); err != nil {
		return nil, fmt.Errorf("zookeeper: a message broken off: %v", err)
	}
	return z.in, nil
}

var errJute = errors.New("zookeeper: a malformed message")

func short(have, want int) error {
	if have < want {
		return errJute
	}
	return nil
}

// text reads a text that has its length before it.
func text(b []byte) (string, []byte, error) {
	if len(b) < 4 {
		return "", nil, errJute
	}
	n := int(int32(binary.BigEndian.Uint32(b)))
	b = b[4:]
	if n < 0 || n > len(b) {
		return "", nil, errJute
	}
	return string(b[:n]), b[n:], nil
}

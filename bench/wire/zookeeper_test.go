package wire

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

// ensembleOf is a server that gives one answer after the other. Each function in answers gets a request and returns the answer to
// it.
func ensembleOf(t *testing.T, answers ...func(request []byte) [][]byte) *ZooKeeper {
	t.Helper()
	mine, its := net.Pipe()
	t.Cleanup(func() { mine.Close(); its.Close() })
	go func() {
		for _, answer := range answers {
			var head [4]byte
			if _, err := io.ReadFull(its, head[:]); err != nil {
				return // the test has ended
			}
			b := make([]byte, binary.BigEndian.Uint32(head[:]))
			if _, err := io.ReadFull(its, b); err != nil {
				return
			}
			for _, m := range answer(b) {
				if _, err := its.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(m))), m...)); err != nil {
					return
				}
			}
		}
	}()
	return &ZooKeeper{conn: mine, r: bufio.NewReader(mine), timeout: time.Minute}
}

// reply returns a reply that has a header and a body.
func reply(xid, code int32, body ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(xid))
	b = binary.BigEndian.AppendUint64(b, 99)
	return append(binary.BigEndian.AppendUint32(b, uint32(code)), body...)
}

func jute(s string) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...) }

func event(kind uint32, path string) []byte {
	b := binary.BigEndian.AppendUint32(reply(watchXID, 0), kind)
	return append(binary.BigEndian.AppendUint32(b, 3), jute(path)...)
}

func TestZooKeeperCreate(t *testing.T) {
	var sent string
	z := ensembleOf(t, func(request []byte) [][]byte {
		sent = hex.EncodeToString(request)
		// The answer to a ping and an event may come before the reply.
		return [][]byte{reply(pingXID, 0), event(1, "/x"), reply(1, 0, jute("/a0000000007")...)}
	})
	path, err := z.Create("/a", "me", Ephemeral|Sequential)
	if err != nil || path != "/a0000000007" {
		t.Errorf("%q, %v", path, err)
	}
	const want = "00000001" + "00000001" + "000000022f61" + "000000026d65" + // xid, create, path, data
		"00000001" + "0000001f" + "00000005776f726c64" + "00000006616e796f6e65" + "00000003"
	if sent != want {
		t.Errorf("sent %s, want %s", sent, want)
	}
}

func TestZooKeeperErrors(t *testing.T) {
	z := ensembleOf(t,
		func([]byte) [][]byte { return [][]byte{reply(1, int32(ErrNodeExists))} },
		func([]byte) [][]byte { return [][]byte{reply(2, int32(ErrNoNode))} },
		func([]byte) [][]byte { return [][]byte{reply(7, 0)} })
	if _, err := z.Create("/a", "", 0); !errors.Is(err, ErrNodeExists) {
		t.Errorf("got %v", err)
	}
	if there, err := z.Exists("/a", false); there || err != nil {
		t.Errorf("%v, %v", there, err)
	}
	if err := z.Delete("/a"); err == nil {
		t.Error("the reply to another request was taken")
	}
}

func TestZooKeeperChildren(t *testing.T) {
	body := append(append([]byte{0, 0, 0, 2}, jute("b")...), jute("a")...)
	z := ensembleOf(t, func([]byte) [][]byte { return [][]byte{reply(1, 0, body...)} },
		func([]byte) [][]byte { return [][]byte{reply(2, 0, append(body, 0, 0)...)} })
	if got, err := z.Children("/"); err != nil || !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := z.Children("/"); !errors.Is(err, errJute) {
		t.Errorf("got %v", err)
	}
}

// Only the deletion of the node ends the wait. Meanwhile the session is kept alive.
func TestZooKeeperAwaitDeletion(t *testing.T) {
	pinged := false
	z := ensembleOf(t,
		func([]byte) [][]byte { return [][]byte{reply(1, 0)} },
		func(request []byte) [][]byte {
			pinged = xid(request) == pingXID
			return [][]byte{event(nodeDeleted, "/b"), event(3, "/a"), reply(pingXID, 0), event(nodeDeleted, "/a")}
		})
	if there, err := z.Exists("/a", true); !there || err != nil {
		t.Fatal(there, err)
	}
	z.timeout = 30 * time.Millisecond
	if err := z.AwaitDeletion("/a"); err != nil {
		t.Error(err)
	}
	if !pinged {
		t.Error("the session was not kept alive")
	}
}

package cluster

import (
	"bufio"
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// A peer of another version is told which one this is, and the log says which
// of the two to upgrade.
func TestPeerOfAnotherVersion(t *testing.T) {
	var log lockedBuffer
	cfg := dataConfig(t, t.TempDir())
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	n := openNode(t, cfg)
	defer closeNode(t, n)
	for _, test := range []struct {
		version byte
		want    string
	}{{wireVersion + 1, "upgrade this node"}, {wireVersion - 1, "upgrade the other node"}} {
		conn, err := net.Dial("tcp", n.cons.(*raftLog).port.ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		hello := greeting{id: "n2", client: "c:1"}.append([]byte{protoForward})
		hello[1+len(wireMagic)] = test.version
		if _, err := conn.Write(hello); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if g, err := readGreeting(bufio.NewReader(conn)); err != nil || g.id != "n1" {
			t.Errorf("version %d is answered %+v, %v", test.version, g, err)
		}
		conn.Close()
		if !strings.Contains(log.String(), test.want) {
			t.Errorf("version %d: the log does not say %q:\n%s", test.version, test.want, log.String())
		}
		if _, err := readGreeting(bufio.NewReader(bytes.NewReader(hello[1:]))); !errors.Is(err, errPeerVersion) {
			t.Error(err)
		}
	}
}

// lockedBuffer is a log that is written and read at once.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

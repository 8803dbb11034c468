package cluster

import (
	"bufio"
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
)

// A node tells a peer of another version its own version, and logs which of the two must be upgraded.
func TestPeerOfAnotherVersion(t *testing.T) {
	var log clustertest.Buffer
	cfg := dataConfig(t, t.TempDir())
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	listening := whereItListens(&cfg)
	n := openNode(t, cfg)
	defer closeNode(t, n)
	for _, test := range []struct {
		version byte
		want    string
	}{{forward.Major + 1, "upgrade this node"}, {forward.Major - 1, "upgrade the other node"}} {
		conn, err := net.Dial("tcp", listening())
		if err != nil {
			t.Fatal(err)
		}
		hello := forward.Handshake{Speaks: current, ID: "n2", Client: "c:1"}.Append([]byte{peerport.ProtoForward})
		hello[1+len(forward.Magic)] = test.version
		if _, err := conn.Write(hello); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if g, err := current.Read(bufio.NewReader(conn)); err != nil || g.ID != "n1" {
			t.Errorf("version %d is answered %+v, %v", test.version, g, err)
		}
		conn.Close()
		if !strings.Contains(log.String(), test.want) {
			t.Errorf("version %d: the log does not say %q:\n%s", test.version, test.want, log.String())
		}
		if _, err := current.Read(bufio.NewReader(bytes.NewReader(hello[1:]))); !errors.Is(err, forward.ErrVersion) {
			t.Error(err)
		}
	}
}

// current is the version that this program speaks.
var current = forward.Version{Major: forward.Major, Minor: forward.Minor}

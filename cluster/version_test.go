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

	"lockstep/cluster/internal/clustertest"
	"lockstep/cluster/internal/peerport"
)

// A peer of another version is told which one this is, and the log says which
// of the two to upgrade.
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
	}{{wireVersion + 1, "upgrade this node"}, {wireVersion - 1, "upgrade the other node"}} {
		conn, err := net.Dial("tcp", listening())
		if err != nil {
			t.Fatal(err)
		}
		hello := greeting{speaks: current, id: "n2", client: "c:1"}.append([]byte{peerport.ProtoForward})
		hello[1+len(wireMagic)] = test.version
		if _, err := conn.Write(hello); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if g, err := current.read(bufio.NewReader(conn)); err != nil || g.id != "n1" {
			t.Errorf("version %d is answered %+v, %v", test.version, g, err)
		}
		conn.Close()
		if !strings.Contains(log.String(), test.want) {
			t.Errorf("version %d: the log does not say %q:\n%s", test.version, test.want, log.String())
		}
		if _, err := current.read(bufio.NewReader(bytes.NewReader(hello[1:]))); !errors.Is(err, errPeerVersion) {
			t.Error(err)
		}
	}
}

// current is what this program speaks.
var current = wireSpeaks{wireVersion, wireMinor}

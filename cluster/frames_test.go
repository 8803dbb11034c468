package cluster

import (
	"bytes"
	"encoding/binary"
	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"github.com/lockstep-io/lockstep/store/codec"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// sayings returns what peers say on the protocols of this package, including the first byte, which names the protocol.
func sayings(from string) (list [][]byte) {
	list = append(list, append([]byte{peerport.ProtoFacts}, sampleFacts.Append(nil)...))
	join := codec.AppendStr(codec.AppendStr(frame.Begin(nil, frameJoin, 0), "n1"), "127.0.0.1:1")
	list = append(list, append([]byte{peerport.ProtoJoin}, frame.End(join, 0)...))
	hello := forward.Handshake{Speaks: current, ID: from, Client: "host:1"}.Append([]byte{peerport.ProtoForward})
	for kind := byte(1); kind <= forward.Position; kind++ {
		body := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 7), 7)
		list = append(list, append(bytes.Clone(hello), frame.End(append(frame.Begin(nil, kind, uint64(kind)), body...), 0)...))
	}
	return list
}

// When peers send spoiled frames, no node ends, nothing is lost, and clients are served. LOCKSTEP_FRAMES and LOCKSTEP_SEED choose
// the frames.
func TestMutatedFrames(t *testing.T) {
	count, seed := clustertest.Number("LOCKSTEP_FRAMES", 1500), clustertest.Number("LOCKSTEP_SEED", uint64(time.Now().UnixNano()))
	t.Logf("LOCKSTEP_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	c := startThree(t)
	c.start(0, 1, 2)
	c.expect(0, "OK", "SET lock owner")
	said := sayings("n2")
	for i := range count {
		conn, err := net.Dial("tcp", c.cfg[i%3].PeerListen)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(clustertest.Garble(rng, said[rng.IntN(len(said))])); err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(ms))
			_, _ = conn.Read(make([]byte, 64)) // or the connection is closed
		}
		conn.Close()
		if i%100 == 99 {
			c.expect(int(i/100)%3, "owner", "GET lock")
			c.voters("n1", "n2", "n3")
		}
	}
	c.expect(c.leader(), "1", "DEL lock")
	c.same()
}

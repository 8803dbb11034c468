package hostile

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"
)

// peerGarbage makes inputs that the peer port cannot understand.
func peerGarbage(g *generator) (list []input) {
	for range 60 {
		b := make([]byte, g.IntN(200))
		for i := range b {
			b[i] = byte(g.IntN(256))
		}
		p := pick(g, b, g.valid(), []byte("GET / HTTP/1.1\r\n\r\n"), []byte("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"), []byte(strings.Repeat("\x00", 5000)),
			[]byte(strings.Repeat("\xff", 5000)), binary.BigEndian.AppendUint64(b, 1<<63), binary.LittleEndian.AppendUint32(b, 1<<31))
		list = append(list, input{door: peerDoor, node: g.node(), pieces: [][]byte{p}, read: pick(g, readNone, readNone, readAll), times: 1 + g.IntN(3)})
	}
	return append(list, input{door: peerDoor, node: g.node(), pieces: [][]byte{[]byte(strings.Repeat("x", 8<<20))}, read: readAll})
}

// peerStrangers makes inputs from another cluster's conversations, some of them changed.
func peerStrangers(g *generator) []input { return g.replays(g.strangers, 40) }

// peerReplays makes inputs from this cluster's own conversations, which a former member or an eavesdropper may have.
func peerReplays(g *generator) []input { return g.replays(g.own, 40) }

func (g *generator) replays(from []*recording, n int) (list []input) {
	if len(from) == 0 {
		return nil
	}
	for range n {
		list = append(list, input{door: peerDoor, node: g.node(), pieces: g.replay(from), read: pick(g, readNone, readAll, readAll), times: 1 + g.IntN(2), hold: time.Duration(g.IntN(50)) * time.Millisecond})
	}
	return list
}

// replay returns a recorded conversation, perhaps with chunks left out, taken from another one, or changed.
func (g *generator) replay(from []*recording) [][]byte {
	r := pick(g, from...)
	chunks := slices.Clone(r.chunks[:min(len(r.chunks), 40)])
	switch g.IntN(4) {
	case 0: // chunks of another conversation after the handshake of this one
		other := pick(g, from...)
		i := g.IntN(len(other.chunks))
		chunks = append(chunks[:1:1], other.chunks[i:min(len(other.chunks), i+10)]...)
	case 1:
		i := g.IntN(len(chunks))
		chunks = append(chunks[:1:1], chunks[i:]...)
	}
	if g.IntN(5) > 0 {
		for range 1 + g.IntN(3) {
			i := g.IntN(len(chunks))
			chunks[i] = g.mutate(chunks[i])
		}
	}
	return chunks
}

package peers

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
)

func reader(b []byte) *bufio.Reader { return bufio.NewReaderSize(bytes.NewReader(b), 16) }

func oneFrame(kind byte, id uint64, body []byte) []byte {
	return frame.End(append(frame.Begin(nil, kind, id), body...), 0)
}

var secretStatus = Status{ID: "n1", Addrs: Addresses{"a:1", "b:2", "c:3", "d:4", "", "e:5"}, RunID: "0123", Applied: 300, Cluster: "blue", You: Stranger, Peer: "p:4", Directory: "D5", ToldMembers: true, Members: []string{"n1", "n2"}}

// TestStatusGolden: the bytes of a status do not change.
func TestStatusGolden(t *testing.T) {
	const want = "00000035" + "01" + "00" + "026e31" + "03613a31" + "03623a32" + "03633a33" + "0430313233" + "ac02" + "04626c7565" + "02" + "03703a34" + "024435" +
		"02" + "026e31" + "026e32" + "03643a34" + "00" + "03653a35"
	if got := hex.EncodeToString(secretStatus.Append(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestStatusRoundTrip(t *testing.T) {
	whole := secretStatus.Append(nil)
	same := func(got, want Status) bool { return reflect.DeepEqual(got, want) }
	if got, err := Read(reader(whole)); err != nil || !same(got, secretStatus) {
		t.Errorf("got %+v, %v", got, err)
	}
	// A later version may say more.
	told := secretStatus
	told.Overruns = []fair.Overrun{{User: "a", Halvings: 7, Rush: 2, Spent: 1500 * time.Millisecond}, {User: "b", Halvings: 1}}
	told.Room, told.Version = 300, "1.2.3"
	if got, err := Read(reader(oneFrame(FrameStatus, 0, append(told.Append(nil)[6:], "more"...)))); err != nil || !same(got, told) {
		t.Errorf("with more behind: %+v, %v", got, err)
	}
	told.Version, told.Wish = "1.2.3+dev", Wish{Never: true, Learner: true, Priority: 1000}
	if got, err := Read(reader(oneFrame(FrameStatus, 0, append(told.Append(nil)[6:], "more"...)))); err != nil || !same(got, told) {
		t.Errorf("with a wish: %+v, %v", got, err)
	}
	told.Wish.Priority++
	if got, err := Read(reader(told.Append(nil))); err == nil {
		t.Errorf("no node says %+v", got.Wish)
	}
	told.Wish = Wish{}
	told.Version = "a b"
	if got, err := Read(reader(told.Append(nil))); err == nil {
		t.Errorf("no node says %q", got.Version)
	}
	told.Version = ""
	wishes := Status{ID: "n1", ToldMembers: true, Wish: Wish{Priority: 3}}
	if got, err := Read(reader(wishes.Append(nil))); err != nil || !same(got, wishes) {
		t.Errorf("with a wish alone: %+v, %v", got, err)
	}
	plain := told
	plain.Room, plain.Version = 0, ""
	plain.Addrs.TLSPlain, plain.Addrs.TLSCluster = "", ""
	if got, err := Read(reader(plain.Append(nil))); err != nil || !same(got, plain) {
		t.Errorf("with users and without TLS: %+v, %v", got, err)
	}
	for _, bad := range [][]fair.Overrun{{{User: "a", Halvings: 65}}, {{User: "a", Rush: 65}}, {{User: strings.Repeat("a", 1025)}}, make([]fair.Overrun, fair.ToldUsers+1)} {
		told.Overruns = bad
		if got, err := Read(reader(told.Append(nil))); err == nil {
			t.Errorf("no node says %+v", got.Overruns)
		}
	}
	body := bytes.Clone(whole[6:])
	// Earlier versions say less.
	size, early := len(whole)-6, secretStatus
	early.Addrs.TLSPlain, early.Addrs.TLSCluster = "", ""
	if got, err := Read(reader(oneFrame(FrameStatus, 0, body[:size-9]))); err != nil || !same(got, early) {
		t.Errorf("without TLS: %+v, %v", got, err)
	}
	early.Members, early.ToldMembers = nil, false
	if got, err := Read(reader(oneFrame(FrameStatus, 0, body[:size-16]))); err != nil || !same(got, early) {
		t.Errorf("without members: %+v, %v", got, err)
	}
	early.Directory = ""
	if got, err := Read(reader(oneFrame(FrameStatus, 0, body[:size-19]))); err != nil || !same(got, early) {
		t.Errorf("without a directory: %+v, %v", got, err)
	}
	early.Cluster, early.You, early.Peer = "", Unknown, ""
	if got, err := Read(reader(oneFrame(FrameStatus, 0, body[:size-29]))); err != nil || !same(got, early) {
		t.Errorf("with less: %+v, %v", got, err)
	}
	for n := range body[:size] {
		if n == size-9 || n == size-16 || n == size-19 || n == size-29 {
			continue
		}
		if got, err := Read(reader(oneFrame(FrameStatus, 0, body[:n]))); err == nil {
			t.Errorf("cut to %d bytes: %+v", n, got)
		}
	}
	if got, err := Read(reader(oneFrame(FrameStatus+1, 0, body))); err == nil {
		t.Errorf("of another kind: %+v", got)
	}
}

// TestTold: a client is told addresses of its own kind, with TLS or without, or else of the other kind.
func TestTold(t *testing.T) {
	top := &Topology{Nodes: []Sighting{{ID: "n1", Addresses: Addresses{Plain: "p1", TLSPlain: "t1", Cluster: "c1"}}, {ID: "n2", Addresses: Addresses{Plain: "p2"}}, {ID: "n3", Addresses: Addresses{TLSPlain: "t3", TLSCluster: "u3"}}}}
	for secret, want := range map[bool][]Addresses{
		false: {{Plain: "p1", Cluster: "c1"}, {Plain: "p2"}, {Plain: "t3", Cluster: "u3"}},
		true:  {{Plain: "t1", Cluster: "c1"}, {Plain: "p2"}, {Plain: "t3", Cluster: "u3"}},
	} {
		for i, n := range top.Told(secret).Nodes {
			if n.Addresses != want[i] {
				t.Errorf("%s, TLS %v: %+v, want %+v", n.ID, secret, n.Addresses, want[i])
			}
		}
	}
	if top.Nodes[0].TLSPlain != "t1" {
		t.Error("the topology itself was changed")
	}
	plain := &Topology{Nodes: []Sighting{{ID: "n2", Addresses: Addresses{Plain: "p2"}}}}
	if plain.Told(true) != plain {
		t.Error("a copy without need")
	}
}

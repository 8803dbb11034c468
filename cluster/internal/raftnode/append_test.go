package raftnode

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
)

var bigRequest = &raft.AppendEntriesRequest{
	RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("n1"), Addr: []byte("host:7379\x00directory\x00promises")},
	Term:      7, PrevLogEntry: 1 << 40, PrevLogTerm: 6, LeaderCommitIndex: 1<<40 - 1,
	Entries: []*raft.Log{
		{Index: 1<<40 + 1, Term: 7, Type: raft.LogCommand, Data: []byte("a write set"), AppendedAt: time.Unix(1700000000, 5)},
		{Index: 1<<40 + 2, Term: 7, Type: raft.LogConfiguration, Data: []byte{0, 1}, Extensions: []byte("e")},
		{Index: 1<<40 + 3, Term: 7, Type: raft.LogNoop},
	},
}

// A request that Raft sends arrives unchanged.
func TestAppendCodec(t *testing.T) {
	for _, req := range []*raft.AppendEntriesRequest{bigRequest, &anEntry, &aHeartbeat} {
		sent := appendRequest(nil, req)
		body, err := readAppend(bufio.NewReader(bytes.NewReader(sent)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := readRequest(body)
		if err != nil {
			t.Fatal(err)
		}
		if again := appendRequest(nil, got); !bytes.Equal(again, sent) {
			t.Errorf("%+v became %+v", req, got)
		}
		if heartbeat(got) != heartbeat(req) {
			t.Errorf("%+v: it is a heartbeat to one side alone", req)
		}
		for n := range body {
			if _, err := readRequest(body[:n]); err != frame.ErrMalformed {
				t.Fatalf("%d of %d bytes: %v", n, len(body), err)
			}
		}
	}
	body := appendRequest(nil, bigRequest)[4:]
	whole, _ := readRequest(body)
	clear(body) // several entries must not share the memory of the body
	for i, l := range whole.Entries {
		want := bigRequest.Entries[i]
		if !l.AppendedAt.Equal(want.AppendedAt) || l.Index != want.Index || l.Type != want.Type || !bytes.Equal(l.Data, want.Data) || !bytes.Equal(l.Extensions, want.Extensions) {
			t.Errorf("entry %d: %+v, want %+v", i, l, want)
		}
	}
}

func TestAppendAnswerCodec(t *testing.T) {
	for _, want := range []raft.AppendEntriesResponse{
		{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("n2"), Addr: []byte("b")}, Term: 9, LastLog: 77, Success: true},
		{RPCHeader: raft.RPCHeader{ID: []byte{}, Addr: []byte{}}, NoRetryBackoff: true},
	} {
		var got raft.AppendEntriesResponse
		sent := appendAnswer(nil, raft.RPCResponse{Response: &want})
		if err := readAnswer(sent[4:], &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v became %+v, %v", want, got, err)
		}
		for n := range len(sent) - 4 {
			if err := readAnswer(sent[4:4+n], &got); err != frame.ErrMalformed {
				t.Fatalf("%d bytes: %v", n, err)
			}
		}
	}
	sent := appendAnswer(nil, raft.RPCResponse{Error: datadir.ErrOtherDirectory})
	err := readAnswer(sent[4:], &raft.AppendEntriesResponse{})
	if r := appendRefusal(""); !errors.As(err, &r) || err.Error() != datadir.ErrOtherDirectory.Error() {
		t.Errorf("a refusal became %v", err)
	}
}

func FuzzAppendCodec(f *testing.F) {
	f.Add(appendRequest(nil, bigRequest)[4:])
	f.Add(appendRequest(nil, &aHeartbeat)[4:])
	f.Add(appendAnswer(nil, raft.RPCResponse{Response: &raft.AppendEntriesResponse{Term: 3, Success: true}})[4:])
	f.Fuzz(func(t *testing.T, body []byte) {
		var resp raft.AppendEntriesResponse
		if readAnswer(body, &resp) == nil {
			var again raft.AppendEntriesResponse
			sent := appendAnswer(nil, raft.RPCResponse{Response: &resp})
			if err := readAnswer(sent[4:], &again); err != nil || !reflect.DeepEqual(again, resp) {
				t.Errorf("%+v became %+v, %v", resp, again, err)
			}
		}
		req, err := readRequest(body)
		if err != nil {
			return
		}
		again, err := readRequest(appendRequest(nil, req)[4:])
		if err != nil || again.Term != req.Term || len(again.Entries) != len(req.Entries) {
			t.Errorf("%+v became %+v, %v", req, again, err)
		}
	})
}

// If a peer of an earlier version closes the connection, the node uses Raft's encoding for a while.
func TestAppendToAnEarlierVersion(t *testing.T) {
	var tried int
	old, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	go func() {
		for conn, err := old.Accept(); err == nil; conn, err = old.Accept() {
			_, _ = conn.Read(make([]byte, 1)) // the byte that chooses the protocol
			conn.Close()
		}
	}()
	a := newPeer(t, "127.0.0.1:0", func(cfg *Config) {
		cfg.Dialer.Network = func(addr string, proto byte, timeout time.Duration) (net.Conn, error) {
			if proto == peerport.ProtoAppend {
				tried++
				addr = old.Addr().String()
			}
			return peerport.DialTCP(addr, proto, timeout)
		}
	})
	b := newPeer(t, "127.0.0.1:0")
	for range 3 {
		if err := a.send(b.address(), anEntry); err != nil {
			t.Fatal(err)
		}
	}
	if tried != 1 {
		t.Errorf("it was asked %d times what it speaks", tried)
	}
}

// If a peer may run an earlier version, a long request goes to it by Raft's own protocol.
func TestAppendThatIsLong(t *testing.T) {
	var raftsOwn int
	var older bool
	a := newPeer(t, "127.0.0.1:0", func(cfg *Config) {
		cfg.Dialer.Network = func(addr string, proto byte, timeout time.Duration) (net.Conn, error) {
			if proto == peerport.ProtoRaft {
				raftsOwn++
			}
			return peerport.DialTCP(addr, proto, timeout)
		}
		cfg.Older = func(string) bool { return older }
	})
	b := newPeer(t, "127.0.0.1:0")
	for _, older = range []bool{false, true} {
		for _, size := range []int{maxAppend / 2, 7 * maxAppend, maxAppend} {
			req := anEntry
			req.Entries = []*raft.Log{{Index: 8, Term: 1, Data: make([]byte, size)}}
			if err := a.send(b.address(), req); err != nil {
				t.Errorf("%d bytes, older %v: %v", size, older, err)
			}
		}
		if raftsOwn > 0 != older {
			t.Errorf("older %v: %d connections of Raft's own", older, raftsOwn)
		}
	}
}

// If a kept connection turns out to be dead, the request is sent again over a new one.
func TestAppendToAPeerThatWasStartedAgain(t *testing.T) {
	a, b := newPeer(t, "127.0.0.1:0"), newPeer(t, "127.0.0.1:0")
	addr := b.address()
	for range 2 {
		for _, req := range []raft.AppendEntriesRequest{aHeartbeat, anEntry} {
			if err := a.send(addr, req); err != nil {
				t.Fatal(err)
			}
		}
		b.Close()
		b.port.Close()
		b = newPeer(t, addr)
	}
}

// If a peer refuses a request, the sender gets that refusal. It connects again at the first refusal, and then uses that connection for
// redialPause.
func TestAppendThatIsRefused(t *testing.T) {
	var dialed int
	a := newPeer(t, "127.0.0.1:0", func(cfg *Config) {
		cfg.Dialer.Network = func(addr string, proto byte, timeout time.Duration) (net.Conn, error) {
			dialed++
			return peerport.DialTCP(addr, proto, timeout)
		}
	})
	b := newPeer(t, "127.0.0.1:0")
	b.meet = func(_, _, _ []byte) error { return datadir.ErrOtherDirectory }
	for range 3 {
		for _, req := range []raft.AppendEntriesRequest{aHeartbeat, anEntry} {
			err := a.exchange("b", raft.ServerAddress(b.address()), &req, &raft.AppendEntriesResponse{}, a.sender(a.appends, a.NetworkTransport))
			if err == nil || !strings.Contains(err.Error(), datadir.ErrOtherDirectory.Error()) {
				t.Errorf("a peer that refuses: %v", err)
			}
		}
	}
	if dialed != 2 {
		t.Errorf("%d connections", dialed)
	}
}

// TestAnotherNodeAtTheAddress: a node that had a member's IP address for a while answers on kept connections. The sender closes these, and
// reaches the member on new ones.
func TestAnotherNodeAtTheAddress(t *testing.T) {
	var at atomic.Pointer[string]
	a := newPeer(t, "127.0.0.1:0", func(cfg *Config) {
		cfg.Dialer.Network = func(_ string, proto byte, timeout time.Duration) (net.Conn, error) {
			return peerport.DialTCP(*at.Load(), proto, timeout)
		}
	})
	b, other := newPeer(t, "127.0.0.1:0"), newPeer(t, "127.0.0.1:0")
	wrong := raft.RPCHeader{ID: []byte("other"), Addr: []byte("b\x00D")}
	other.answer.Store(&raft.AppendEntriesResponse{RPCHeader: wrong, Success: true})
	to := raft.ServerAddress("b:1")
	for _, by := range []struct {
		name string
		send sendAppend
	}{{"entries", a.sender(a.appends, a.NetworkTransport)}, {"heartbeats", a.sender(a.beating, a.beats)}, {"Raft's own protocol", a.NetworkTransport.AppendEntries}} {
		addr := other.address()
		at.Store(&addr)
		req := anEntry
		if err := a.exchange("b", to, &req, &raft.AppendEntriesResponse{}, by.send); err == nil || !strings.Contains(err.Error(), "answers at the address of b") {
			t.Errorf("%s: another node answers: %v", by.name, err)
		}
		addr = b.address()
		at.Store(&addr)
		if err := a.exchange("b", to, &req, &raft.AppendEntriesResponse{}, func(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
			return afresh(func() error { return by.send(id, to, args, resp) })
		}); err != nil {
			t.Errorf("%s: the member is back: %v", by.name, err)
		}
		a.redials.Clear()
	}
}

// TestHeadsKeepNoBodies: the head of a long entry, which stays in memory, does not keep the request's body there.
func TestHeadsKeepNoBodies(t *testing.T) {
	dir, err := openDirectory(memberConfig(t, ""), t.TempDir(), hclog.NewNullLogger(), datadir.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dir.Close)
	var gone atomic.Int32
	const count = 4
	for i := uint64(1); i <= count; i++ {
		sent := raft.AppendEntriesRequest{Term: 1, Entries: []*raft.Log{{Index: i, Term: 1, Data: make([]byte, 2<<20)}}}
		body := bytes.Clone(appendRequest(nil, &sent)[4:])
		runtime.AddCleanup(&body[0], func(struct{}) { gone.Add(1) }, struct{}{})
		req, err := readRequest(body)
		if err != nil {
			t.Fatal(err)
		}
		if err := dir.Log.StoreLogs(req.Entries); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		runtime.GC()
	}
	if n := gone.Load(); n != count {
		t.Errorf("%d of %d bodies have gone", n, count)
	}
	var l raft.Log
	if err := dir.Log.GetLog(count, &l); err != nil || len(l.Data) != 1 {
		t.Errorf("%d bytes, %v", len(l.Data), err)
	}
}

package cluster

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/store"
)

var wireTable = store.NewTable(store.Commands())

func reader(b []byte) *bufio.Reader { return bufio.NewReaderSize(bytes.NewReader(b), 16) }

func oneFrame(kind byte, id uint64, body []byte) []byte {
	return frame.End(append(frame.Begin(nil, kind, id), body...), 0)
}

func sampleCalls(t testing.TB) []Call {
	t.Helper()
	var calls []Call
	for i, line := range []string{"SET lock owner NX PX 30000", "get lock", "object encoding lock"} {
		var args [][]byte
		for _, w := range strings.Fields(line) {
			args = append(args, []byte(w))
		}
		cmd, ok := wireTable.Resolve(args)
		if !ok {
			t.Fatal(line)
		}
		calls = append(calls, Call{Cmd: cmd, Args: args, DB: i * 7, RESP: 2 + i%2, Origin: uint64(i) << 63})
	}
	calls[0].Args[2] = []byte{}
	calls[1].User, calls[1].Users = "bob", 1<<40
	calls[2].User = "alice"
	calls[1].Args[1] = bytes.Repeat([]byte{0, 255, '\r', '\n'}, 1000)
	return calls
}

func TestCallsRoundTrip(t *testing.T) {
	want := sampleCalls(t)
	got, err := call.Read(call.Append(nil, want, forward.Minor), wireTable)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	// A peer of minor version 0 does not know the version of the users.
	want[1].Users = 0
	got, err = call.Read(call.Append(nil, sampleCalls(t), 0), wireTable)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("for minor version 0: got %v, %v", got, err)
	}
}

// TestNobodyIsTheSystemOnTheWire: a command that claims on the wire to be a node's own gets no more rights by that.
func TestNobodyIsTheSystemOnTheWire(t *testing.T) {
	calls := sampleCalls(t)
	for i := range calls {
		calls[i].User = store.SystemUser
	}
	calls = append(calls, Call{Cmd: call.Exec, Txn: &Transaction{Calls: slices.Clone(calls)}})
	got, err := call.Read(call.Append(nil, calls, forward.Minor), wireTable)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append(got[:3:3], got[3].Txn.Calls...) {
		ctx := store.Ctx{Txn: store.New().Begin(store.Time{}, 1, store.Env{}), Cmd: c.Cmd, Args: c.Args}
		if refusal, ok := ctx.Authorize(c.User, c.Users); ok || !strings.HasPrefix(refusal.Str, "NOPERM ") {
			t.Errorf("%s as %q is answered %v", c.Args, c.User, refusal)
		}
	}
}

func TestBadCallsAreRefused(t *testing.T) {
	whole := call.Append(nil, sampleCalls(t), forward.Minor)
	for n := range whole {
		if calls, err := call.Read(whole[:n], wireTable); err == nil {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(whole), calls)
		}
	}
	for name, body := range map[string][]byte{
		"no calls":         {0},
		"no arguments":     {1, 0, 2, 0},
		"database 16":      {1, 16, 2, 1, 3, 'G', 'E', 'T'},
		"a container":      {1, 0, 2, 1, 6, 'O', 'B', 'J', 'E', 'C', 'T'},
		"unknown":          {1, 0, 2, 1, 3, 'X', 'Y', 'Z'},
		"a huge count":     binary.AppendUvarint(nil, 1<<40),
		"an endless count": bytes.Repeat([]byte{255}, 20),
	} {
		if calls, err := call.Read(body, wireTable); err == nil {
			t.Errorf("%s: %v", name, calls)
		}
	}
}

func TestResultRoundTrip(t *testing.T) {
	want := []store.Reply{store.OK, store.Nil, store.Int(-5), store.Err("BUSY x"), store.List(store.Str("a"), store.Strs("b", ""))}
	dst := make([]store.Reply, 0, 8)
	got, err := forward.ReadResult(forward.AppendReplies(nil, want), dst)
	if err != nil || !reflect.DeepEqual(got, want) || &got[0] != &dst[:1][0] {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := forward.ReadResult([]byte{forward.NotExecuted}, nil); err != errNotExecuted {
		t.Errorf("not executed: %v", err)
	}
	if _, err := forward.ReadResult([]byte{forward.Unknown}, nil); err != errUnknown {
		t.Errorf("unknown: %v", err)
	}
	// A request counts as not executed only if the peer says so.
	whole := forward.AppendReplies(nil, want)
	for n := range whole {
		if _, err := forward.ReadResult(whole[:n], nil); err == nil || errors.Is(err, errNotExecuted) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	for status := 2; status < 256; status++ {
		if _, err := forward.ReadResult([]byte{byte(status)}, nil); err == nil || errors.Is(err, errNotExecuted) {
			t.Errorf("status %d: %v", status, err)
		}
	}
}

func TestHandshakeRoundTrip(t *testing.T) {
	want := forward.Handshake{Speaks: current, ID: "n1", Client: "host:6379", More: "later"}
	b := want.Append(nil)
	if got, err := current.Read(reader(b)); err != nil || got != want {
		t.Errorf("got %v, %v", got, err)
	}
	for n := range b {
		if g, err := current.Read(reader(b[:n])); err == nil {
			t.Fatalf("cut to %d bytes: %v", n, g)
		}
	}
	b[len(forward.Magic)]++
	if _, err := current.Read(reader(b)); err == nil || !strings.Contains(err.Error(), fmt.Sprint("version ", forward.Major+1)) {
		t.Errorf("another version: %v", err)
	}
	for _, bad := range []string{"GET / HTTP/1.1\r\n\r\n", forward.Magic + "\x02\xff\xff\xff\x7f"} {
		if g, err := current.Read(reader([]byte(bad))); err == nil {
			t.Errorf("%q: %v", bad, g)
		}
	}
}

func TestFrames(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 3<<16+1) // more than one step of memory
	stream := oneFrame(forward.Submit, 1, []byte("body"))
	stream = append(stream, oneFrame(forward.Result, 1<<63, nil)...)
	stream = append(stream, oneFrame(forward.Kill, 300, big)...)
	r := reader(stream)
	for i, want := range []frame.Frame{{Kind: forward.Submit, ID: 1, Body: []byte("body")}, {Kind: forward.Result, ID: 1 << 63}, {Kind: forward.Kill, ID: 300, Body: big}} {
		f, err := frame.Read(r)
		if err != nil || f.Kind != want.Kind || f.ID != want.ID || !bytes.Equal(f.Body, want.Body) {
			t.Errorf("frame %d: kind %d, id %d, %d bytes, %v", i, f.Kind, f.ID, len(f.Body), err)
		}
	}
	if _, err := frame.Read(r); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	whole := oneFrame(forward.Submit, 1<<40, []byte("body"))
	for n := 1; n < len(whole); n++ {
		if f, err := frame.Read(reader(whole[:n])); err == nil {
			t.Fatalf("cut to %d bytes: %v", n, f)
		}
	}
	for name, b := range map[string][]byte{
		"empty":    {0, 0, 0, 0},
		"no id":    {0, 0, 0, 1, 1},
		"half id":  {0, 0, 0, 2, 1, 200},
		"too long": {255, 255, 255, 255, 1, 1},
	} {
		if f, err := frame.Read(reader(b)); !errors.Is(err, frame.ErrMalformed) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
}

// A length that is announced, but not sent, must not take memory.
func TestAnnouncedLengthTakesNoMemory(t *testing.T) {
	b := binary.BigEndian.AppendUint32(nil, frame.MaxLength)
	b = append(b, make([]byte, 100)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := frame.Read(reader(b)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
		t.Errorf("a frame that never came took %d MB", took>>20)
	}
}

// A node decodes or refuses whatever a peer sends. What it decodes stays the same if it is encoded and decoded once more.
func FuzzWire(f *testing.F) {
	f.Add(oneFrame(forward.Submit, 7, call.Append(nil, sampleCalls(f), forward.Minor)))
	f.Add(oneFrame(forward.Submit, 8, call.Append(nil, sampleTransactions(f), forward.Minor)))
	f.Add(oneFrame(forward.Result, 7, forward.AppendReplies(nil, []store.Reply{store.OK, store.List(store.Nil)})))
	f.Add(store.AppendReply(nil, store.List(store.Str("a"), store.List(store.MapOf(store.OK, store.Float(1))))))
	f.Add(oneFrame(forward.Transfer, 1, transferBody("n2")))
	f.Add([]byte("\x01\x01800\x01\x010")) // a version of the users for the default user
	f.Add(forward.Handshake{Speaks: current, ID: "n1", Client: "host:1"}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if g, err := current.Read(reader(b)); err == nil {
			if again, err := current.Read(reader(g.Append(nil))); err != nil || again != g {
				t.Errorf("handshake %v became %v, %v", g, again, err)
			}
		}
		body := b
		if fr, err := frame.Read(reader(b)); err == nil {
			again, err := frame.Read(reader(oneFrame(fr.Kind, fr.ID, fr.Body)))
			if err != nil || again.Kind != fr.Kind || again.ID != fr.ID || !bytes.Equal(again.Body, fr.Body) {
				t.Errorf("frame %v became %v, %v", fr, again, err)
			}
			body = fr.Body
		}
		if calls, err := call.Read(body, wireTable); err == nil {
			again, err := call.Read(call.Append(nil, calls, forward.Minor), wireTable)
			if err != nil || !reflect.DeepEqual(again, calls) {
				t.Errorf("calls %v became %v, %v", calls, again, err)
			}
		}
		if replies, err := forward.ReadResult(body, nil); err == nil {
			again, err := forward.ReadResult(forward.AppendReplies(nil, replies), nil)
			if err != nil || !reflect.DeepEqual(again, replies) {
				t.Errorf("replies %v became %v, %v", replies, again, err)
			}
		}
		whole, after, err := store.ReadReply(body)
		for levels := range 3 {
			packed, behind, wrong := store.ReadPacked(body, levels)
			if wrong != err || !bytes.Equal(behind, after) || err == nil && !reflect.DeepEqual(unpacked(&packed), whole) {
				t.Errorf("%v is %v and %q, with %d levels %v and %q: %v, %v", body, whole, after, levels, unpacked(&packed), behind, err, wrong)
			}
		}
	})
}

// unpacked decodes a packed reply.
func unpacked(r *store.Reply) store.Reply {
	if r.Kind != store.Packed {
		whole := *r
		for i := range r.Elems {
			whole.Elems[i] = unpacked(&r.Elems[i])
		}
		return whole
	}
	kind, n, elems := r.Unpack()
	whole := store.Reply{Kind: kind, Elems: make([]store.Reply, 0, n)}
	for e := range elems {
		whole.Elems = append(whole.Elems, *e)
	}
	return whole
}

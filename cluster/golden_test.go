package cluster

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/cluster/internal/peers"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/codec"
)

var update = flag.Bool("update", false, "write the golden files anew")

// message is a message between nodes with its recorded bytes. When it changes, forward.Major must change, lest nodes of two
// versions misread each other.
type message struct {
	name string
	b    []byte             // as this program writes it
	read func([]byte) error // decodes it and compares
}

func calls(t *testing.T, db, resp int, user string, lines ...string) (list []Call) {
	t.Helper()
	for _, line := range lines {
		c := Call{DB: db, RESP: resp, Origin: 1 << 40, User: user}
		for _, word := range strings.Fields(line) {
			c.Args = append(c.Args, []byte(word))
		}
		var ok bool
		if c.Cmd, ok = wireTable.Resolve(c.Args); !ok {
			t.Fatal(line)
		}
		list = append(list, c)
	}
	return list
}

// want compares what was decoded.
func want[T any](name string, got T, err error, want T) error {
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s: decoded %+v, want %+v", name, got, want)
	}
	return nil
}

// inFrame is a message that is a frame.
func inFrame(kind byte, id uint64, name string, body []byte, read func(body []byte) error) message {
	return message{name, oneFrame(kind, id, body), func(b []byte) error {
		f, err := frame.Read(reader(b))
		if err != nil || f.Kind != kind || f.ID != id {
			return fmt.Errorf("%s: frame of kind %d with the number %d, %w", name, f.Kind, f.ID, err)
		}
		return read(f.Body)
	}}
}

func submitMessage(name string, from forward.Ticket, token uint64, list []Call) message {
	return inFrame(forward.Submit, 300, name, forward.AppendSubmit(nil, from, token, list, forward.Minor), func(body []byte) error {
		gotFrom, gotToken, calls, err := forward.ReadSubmit(body, wireTable)
		if err != nil {
			return err
		}
		if gotFrom != from || gotToken != token {
			return fmt.Errorf("%s: ticket %+v, token %d", name, gotFrom, gotToken)
		}
		return want(name, calls, nil, list)
	})
}

func bytesMessage(kind byte, name string, body []byte) message {
	return inFrame(kind, 5, name, body, func(got []byte) error { return want(name, string(got), nil, string(body)) })
}

// kill returns the message of a kill frame to a node whose minor version is minor.
func kill(name string, q scriptQuestion, minor byte) message {
	return inFrame(forward.Kill, 5, name, q.body(300, minor), func(b []byte) error {
		got, users, checked, err := readScriptQuestion(b)
		if checked {
			return want(name, []uint64{uint64(got), users}, err, []uint64{uint64(q), 300})
		}
		return want(name, got, err, q)
	})
}

func resultMessage(name string, body []byte, replies []store.Reply, outcome error) message {
	return inFrame(forward.Result, 300, name, body, func(got []byte) error {
		list, err := forward.ReadResult(got, nil)
		if err != outcome {
			return fmt.Errorf("%s: %v, want %v", name, err, outcome)
		}
		return want(name, list, nil, replies)
	})
}

func messages(t *testing.T) []message {
	hello := forward.Handshake{Speaks: forward.Version{Major: 5, Minor: 0}, ID: "n1", Client: "host:6379"}
	later := forward.Handshake{Speaks: forward.Version{Major: 5, Minor: 7}, ID: "n2", Client: "host:6380", More: "what minor 7 says"}
	identity := forward.Identity{Cluster: "blue", Directory: "D3"}
	named := forward.Handshake{Speaks: forward.Version{Major: 5, Minor: forward.MinorIdentity}, ID: "n3", Client: "host:6381", More: identity.More()}
	handshake := func(name string, g forward.Handshake) message {
		return message{name, g.Append(nil), func(b []byte) error {
			got, err := forward.Version{Major: 5, Minor: 0}.Read(reader(b))
			return want(name, got, err, g)
		}}
	}
	watched := []Watched{{DB: 1, Key: []byte("k"), Version: 1 << 50}}
	transaction := []Call{{Cmd: call.Exec, DB: 3, RESP: 3, Origin: 9, Txn: &Transaction{Watched: watched, Calls: calls(t, 3, 3, "", "SET k v", "GET k")}}}
	watch := []Call{{Cmd: call.Exec, RESP: 2, Txn: &Transaction{Watched: watched, Observe: true}}}
	block := calls(t, 0, 2, "", "BLPOP list 0")
	known := calls(t, 0, 2, "alice", "DEL lock")
	known[0].Users = 300
	replies := []store.Reply{store.OK, store.Nil, store.Int(-5), store.Err("ERR x"), store.Str("bulk"), store.List(store.Str("a"), store.List(store.Nil))}
	lease := grants{seq: 1 << 40, at: 5000, list: []grant{{call: 1, key: store.LeasedKey{DB: 3, Key: "lock", Deadline: 35_000}}}}
	heavy := &request{replies: replies, cost: 200 * time.Millisecond, leases: appendGrants(nil, lease)}
	remove := adminRequest{kind: adminRemove, id: "n3"}
	add := adminRequest{kind: adminAdd, id: "n4", addr: "host:7379"}
	admin := func(name string, a adminRequest) message {
		return inFrame(forward.Admin, 6, name, a.append(nil), func(b []byte) error {
			got, err := readAdmin(b)
			return want(name, got, err, a)
		})
	}
	return []message{
		handshake("handshake", hello), handshake("handshake of a later minor", later),
		{"handshake with an identity", named.Append(nil), func(b []byte) error {
			got, err := current.Read(reader(b))
			said, malformed := got.Identity()
			return want("handshake with an identity", said, cmp.Or(err, malformed), identity)
		}},
		submitMessage("submit", forward.Ticket{}, 0, calls(t, 0, 2, "", "SET lock owner NX PX 30000", "GET lock")),
		submitMessage("submit by a user", forward.Ticket{}, 0, calls(t, 15, 3, "alice", "DEL lock")),
		submitMessage("submit by a user who is known by a version", forward.Ticket{}, 0, known),
		submitMessage("submit with a ticket", forward.Ticket{ID: 301, Low: 299}, 1<<64-1, calls(t, 0, 2, "", "DEL lock")),
		submitMessage("submit again", forward.Ticket{ID: 301, Low: 299, Again: true}, 7, calls(t, 0, 2, "", "DEL lock")),
		submitMessage("transaction", forward.Ticket{}, 0, transaction), submitMessage("watch", forward.Ticket{}, 0, watch),
		inFrame(forward.Block, 8, "block", forward.AppendBlock(nil, 1, 2, 3, &block[0], forward.Waited{}, forward.Minor), func(b []byte) error {
			if err := want("block", b[:24], nil, []byte{7: 1, 15: 2, 23: 3}); err != nil {
				return err
			}
			got, err := call.Read(b[24:], wireTable)
			return want("block", got, err, block)
		}),
		inFrame(forward.Block, 8, "block sent again", forward.AppendBlock(nil, 1, 2, 3, &block[0], forward.Waited{Age: time.Minute, Joined: true}, forward.Minor), func(b []byte) error {
			got, rest, err := call.ReadFirst(b[24:], wireTable)
			if err := want("block sent again", got, err, block); err != nil {
				return err
			}
			waited, err := forward.ReadWaited(rest)
			return want("block sent again", waited, err, forward.Waited{Age: time.Minute, Joined: true})
		}),
		bytesMessage(forward.Claim, "claim", forward.AppendClaim(nil, 1<<63, 7)),
		bytesMessage(forward.Cancel, "cancel", []byte{2}), bytesMessage(forward.Waits, "waits", nil), bytesMessage(forward.Alive, "alive", nil),
		kill("script kill", killScript, 0), kill("function kill", killFunction, 0), kill("function stats", runningFunction, 0),
		kill("script kill with users", killScript, forward.Minor), kill("function kill with users", killFunction, forward.Minor),
		kill("function stats with users", runningFunction, forward.Minor), bytesMessage(forward.Position, "position", nil),
		bytesMessage(forward.Transfer, "transfer", transferBody("n2")), admin("remove", remove), admin("add", add),
		resultMessage("result", forward.AppendReplies(nil, replies), replies, nil),
		resultMessage("result of heavy work", heavy.appendResult(nil), replies, nil),
		resultMessage("not executed", []byte{forward.NotExecuted}, nil, errNotExecuted), resultMessage("unknown", []byte{forward.Unknown}, nil, errUnknown),
		resultMessage("cancelled", []byte{forward.Cancelled}, nil, forward.ErrCancelled), resultMessage("stale", []byte{forward.Stale}, nil, forward.ErrStale),
		resultMessage("no room", []byte{forward.ReplyLater}, nil, forward.ErrReplyLater),
		{"facts", earlyFacts.Append(nil), func(b []byte) error {
			got, err := peers.Read(reader(b))
			return want("facts", got, err, earlyFacts)
		}},
		{"facts and members", sampleFacts.Append(nil), func(b []byte) error {
			got, err := peers.Read(reader(b))
			return want("facts and members", got, err, sampleFacts)
		}},
		inFrame(frameJoin, 0, "join", codec.AppendStr(codec.AppendStr(nil, "n4"), "host:7379"), func(b []byte) error {
			r := codec.Reader{B: b}
			return want("join", []string{string(r.Bytes()), string(r.Bytes())}, nil, []string{"n4", "host:7379"})
		}),
		{"taken in", joinAnswer(joinDone, ""), func(b []byte) error { return readJoinAnswer(reader(b)) }},
		{"refused", joinAnswer(joinRefused, "no"), func(b []byte) error {
			return want("refused", fmt.Sprint(readJoinAnswer(reader(b))), nil, "refused: no")
		}},
	}
}

// TestGoldenWire compares every message with testdata/wire.golden, a line for
// each: its name and its bytes in hexadecimal.
func TestGoldenWire(t *testing.T) {
	list, path := messages(t), filepath.Join("testdata", "wire.golden")
	var now strings.Builder
	fmt.Fprintf(&now, "version: %d\n", forward.Major)
	for _, m := range list {
		fmt.Fprintf(&now, "%s: %x\n", m.name, m.b)
	}
	if *update {
		if err := os.WriteFile(path, []byte(now.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	recorded, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(recorded)), "\n")
	if len(lines) != len(list)+1 || lines[0] != fmt.Sprintf("version: %d", forward.Major) {
		t.Fatalf("%d messages of %q are recorded, there are %d of version %d", len(lines)-1, lines[0], len(list), forward.Major)
	}
	for i, m := range list {
		name, digits, _ := strings.Cut(lines[i+1], ": ")
		b, err := hex.DecodeString(digits)
		if err != nil || name != m.name {
			t.Fatalf("line %d is %q, %v; want %q", i+2, name, err, m.name)
		}
		if err := m.read(b); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(b, m.b) {
			t.Errorf("%s: the format has changed, so the version of the protocol must.\ngot  %x\nwant %x", m.name, m.b, b)
		}
	}
}

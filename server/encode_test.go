package server

import (
	"math"
	"slices"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// The size that encodedSize foresees for a reply suffices, and is at most a tenth too large.
func TestEncodedSize(t *testing.T) {
	elems := make([]store.Reply, 100_000)
	for i := range elems {
		elems[i] = store.Str("member-of-a-set")
	}
	whole := store.List(store.Reply{Kind: store.Set, Elems: elems}, store.OK)
	packed, _, err := store.ReadPacked(store.AppendReply(nil, whole.Elems[0]), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []store.Reply{whole, packed} {
		size, is := encodedSize(&r), len(appendReply(nil, &r, 3))
		if size < is || size > is*11/10 {
			t.Errorf("%d bytes are foreseen for %d", size, is)
		}
	}
}

func TestEncode(t *testing.T) {
	of := func(k store.Kind, elems ...store.Reply) store.Reply { return store.Reply{Kind: k, Elems: elems} }
	for _, c := range []struct {
		name         string
		reply        store.Reply
		resp2, resp3 string
	}{
		{"none", of(store.None), "", ""},
		{"null", store.Nil, "$-1\r\n", "_\r\n"},
		{"null array", of(store.NullArray), "*-1\r\n", "_\r\n"},
		{"status", store.OK, "+OK\r\n", "+OK\r\n"},
		{"error", store.Err("ERR no"), "-ERR no\r\n", "-ERR no\r\n"},
		{"error in lines", store.Err("ERR a\r\nb\nc\r\n"), "-ERR a  b c\r\n", "-ERR a  b c\r\n"},
		{"integer", store.Int(math.MinInt64), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"},
		{"bulk", store.Str("a\r\nb"), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"},
		{"empty bulk", store.Str(""), "$0\r\n\r\n", "$0\r\n\r\n"},
		{"array", store.List(store.One, store.Nil), "*2\r\n:1\r\n$-1\r\n", "*2\r\n:1\r\n_\r\n"},
		{"empty array", store.List(), "*0\r\n", "*0\r\n"},
		{"map", store.MapOf(store.Str("a"), store.One), "*2\r\n$1\r\na\r\n:1\r\n", "%1\r\n$1\r\na\r\n:1\r\n"},
		{"set", of(store.Set, store.One), "*1\r\n:1\r\n", "~1\r\n:1\r\n"},
		{"push", of(store.Push, store.Str("a")), "*1\r\n$1\r\na\r\n", ">1\r\n$1\r\na\r\n"},
		{"double", store.Float(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"},
		{"integral double", store.Float(3), "$1\r\n3\r\n", ",3\r\n"},
		{"infinite", store.Float(math.Inf(-1)), "$4\r\n-inf\r\n", ",-inf\r\n"},
		{"not a number", store.Float(math.NaN()), "$3\r\nnan\r\n", ",nan\r\n"},
		{"true", store.Reply{Kind: store.Bool, Int: 1}, ":1\r\n", "#t\r\n"},
		{"false", store.Reply{Kind: store.Bool}, ":0\r\n", "#f\r\n"},
		{"big number", store.Reply{Kind: store.BigNumber, Str: "123"}, "$3\r\n123\r\n", "(123\r\n"},
		{"text", store.Text("hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"},
		{"several", of(store.Multi, store.One, store.OK), ":1\r\n+OK\r\n", ":1\r\n+OK\r\n"},
		{"nested", store.List(store.List(store.MapOf(store.Str("a"), of(store.Set)))),
			"*1\r\n*1\r\n*2\r\n$1\r\na\r\n*0\r\n", "*1\r\n*1\r\n%1\r\n$1\r\na\r\n~0\r\n"},
	} {
		if got := string(appendReply(nil, &c.reply, 2)); got != c.resp2 {
			t.Errorf("%s in RESP2: %q, want %q", c.name, got, c.resp2)
		}
		if got := string(appendReply(nil, &c.reply, 3)); got != c.resp3 {
			t.Errorf("%s in RESP3: %q, want %q", c.name, got, c.resp3)
		}
		packed, rest, err := store.ReadPacked(store.AppendReply(nil, c.reply), 0)
		if err != nil || len(rest) > 0 {
			t.Fatalf("%s packed: %v, %d bytes left", c.name, err, len(rest))
		}
		if got := string(appendReply(nil, &packed, 2)); got != c.resp2 {
			t.Errorf("%s packed, in RESP2: %q, want %q", c.name, got, c.resp2)
		}
		if got := string(appendReply(nil, &packed, 3)); got != c.resp3 {
			t.Errorf("%s packed, in RESP3: %q, want %q", c.name, got, c.resp3)
		}
	}
}

// packedEmpties returns a reply of n empty elements, packed as a leader sends it.
func packedEmpties(t testing.TB, n int) store.Reply {
	packed, _, err := store.ReadPacked(store.AppendReply(nil, store.List(slices.Repeat([]store.Reply{store.Str("")}, n)...)), 0)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// The server counts the encoded size of a reply before it waits for the garbage collector, and cuts off clients whose replies find no
// room.
func TestRoomForRepliesIsTakenFirst(t *testing.T) {
	const limit, clients, elems = 1 << 20, 50, 30_000
	ts := newTestServer(t, nil)
	ts.params.clientLimit.Store(limit)
	r := packedEmpties(t, elems)
	goOn, gone, room := 0, 0, int64(0)
	for range clients {
		s, _ := ts.join(t)
		s.out.gone = func() { gone++ }
		if n, ok := s.takesRoom(&r); ok {
			goOn, room = goOn+1, room+n
		}
	}
	if gone != clients-goOn {
		t.Errorf("%d clients had no room, and the leader was told that %d are cut off", clients-goOn, gone)
	}
	if most := limit * 9 / 8 / len(appendReply(nil, &r, 2)); goOn == 0 || goOn > most {
		t.Errorf("%d clients encode replies that take %d KB, of a limit of %d KB", goOn, int(room)>>10, limit>>10)
	}
}

// TestPackedElementsLeaveNoGarbage: appendReply unpacks the elements of a packed reply one by one, into the same
// memory.
func TestPackedElementsLeaveNoGarbage(t *testing.T) {
	r := packedEmpties(t, 30_000)
	b := make([]byte, 0, encodedSize(&r))
	if n := testing.AllocsPerRun(5, func() { b = appendReply(b[:0], &r, 2) }); n > 10 {
		t.Errorf("%v allocations for 30,000 elements", n)
	}
}

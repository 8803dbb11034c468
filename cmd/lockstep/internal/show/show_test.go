package show

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/server/respclient"
)

// TestJSONKeepsValues: numbers stay numbers, names keep their order, and bytes that are not UTF-8 are there in base64.
func TestJSONKeepsValues(t *testing.T) {
	r, err := RecordOf([]any{"key", "a\xff\x9b", "state-hash", "f0", "token", int64(1<<53 + 1), "ttl", int64(-1), "up", int64(1), "shared", int64(0), "leader", "n1",
		"gone", nil, "owners", []any{[]any{"owner", "größer\n"}, []any{"owner", "b", "holds", int64(2)}}, "none", []any{}, "list", []any{"one", int64(2), nil}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"key": "a\ufffd\ufffd", "key_base64": "Yf+b", "state_hash": "f0", "token": 9007199254740993, "ttl": -1, "up": true, "shared": false, "leader": "n1", ` +
		`"gone": null, "owners": [{"owner": "größer\u000a"}, {"owner": "b", "holds": 2}], "none": [], "list": ["one", 2, null]}`
	if got := string(AppendJSON(nil, r)); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestJSONOfAnyText: whatever bytes a text has, JSON can be parsed, has the exact bytes, and controls no terminal.
func TestJSONOfAnyText(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"a", "\"", "\\", "\x1b]0;x\a", "\x9b", "\u009b", "\u202e", "\u2028", "\x00", "\x7f", "\xff", "\U0001F512", "\U000E0001", "锁", "\n", "\ufffd", "<&>", "\xed\xa0\x80"}
	for range 2000 {
		var b strings.Builder
		for range random.IntN(8) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		text := b.String()
		got := AppendJSON(nil, Record{{"key", text}})
		for _, r := range string(got) {
			if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' || r == '\ufffd' || r == '\u2028' {
				t.Fatalf("%q became %q", text, got)
			}
		}
		var back map[string]string
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatalf("%q became %s: %v", text, got, err)
		}
		exact := back["key"]
		if coded, is := back["key_base64"]; is {
			raw, err := base64.StdEncoding.DecodeString(coded)
			if err != nil {
				t.Fatal(err)
			}
			exact = string(raw)
		}
		if exact != text {
			t.Fatalf("%q became %s", text, got)
		}
	}
}

// TestOtherForms: a reply of another form is an error that is short and says so.
func TestOtherForms(t *testing.T) {
	long := make([]any, 2*mostFields+2)
	for i := range long {
		long[i] = strings.Repeat("a", i+1)
	}
	for _, reply := range []any{nil, "text", int64(1), []any{}, []any{"a"}, []any{"a", "b", "a", "c"}, []any{"A", "b"}, []any{"", "b"}, []any{"a b", "c"},
		[]any{strings.Repeat("a", mostName+1), "b"}, long, []any{"a", respclient.ServerError("ERR no")}, []any{"a", []any{respclient.ServerError("ERR no")}}} {
		r, err := RecordOf(reply)
		var form FormError
		if !errors.As(err, &form) || len(err.Error()) > 1000 {
			t.Errorf("%.100v became %v: %.2000v", reply, r, err)
		}
	}
	for _, reply := range []any{nil, "text", []any{"a"}, []any{[]any{"a"}}} {
		if r, err := RecordsOf(reply); err == nil {
			t.Errorf("%v became %v", reply, r)
		}
	}
	for _, value := range []any{nil, "text", []any{"a"}, Record{}} {
		if r, err := Records(value); err == nil {
			t.Errorf("%v became %v", value, r)
		}
	}
}

// TestTable: columns stand below each other in every part of a table, also below characters that take two columns of a terminal, and long
// names are cut.
func TestTable(t *testing.T) {
	row := func(key, owner string, ttl int64) Record {
		return Record{{"key", key}, {"owner", owner}, {"ttl", ttl}, {"shared", true}}
	}
	var b strings.Builder
	table := NewTable(&b, 10)
	for _, part := range [][]Record{nil, {row("a", "one", 1500), row("锁锁", strings.Repeat("x", 1000), -1)}, {row("a longer name", "e\u0301\x1b", 90_400)}} {
		if err := table.Add(part); err != nil {
			t.Fatal(err)
		}
	}
	const want = "KEY   OWNER       TTL   SHARED\n" +
		"a     one         1.5s  yes\n" +
		"锁锁  xxxxxxxxx…  none  yes\n" +
		"a longer …  e\u0301\\x1b       1m30s  yes\n"
	if got := b.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	for _, other := range []Record{{{"key", "a"}}, {{"key", "a"}, {"owner", "b"}, {"ttl", int64(1)}, {"other", "c"}}} {
		var form FormError
		if err := table.Add([]Record{other}); !errors.As(err, &form) {
			t.Errorf("%v: %v", other, err)
		}
	}
}

// TestMarksAreCut: characters that take no column of a terminal do not make a cell long.
func TestMarksAreCut(t *testing.T) {
	if got := shorten("a"+strings.Repeat("\u0301", 5000), 10); len(got) > 100 {
		t.Errorf("%d bytes", len(got))
	}
	if got := Cell(strings.Repeat("x", 5_000_000)); len(got) > mostCell+100 || !strings.HasSuffix(got, "… (5000000 bytes)") {
		t.Errorf("%d bytes", len(got))
	}
}

// TestUnits: times have units, and numbers that no node sends are no panic.
func TestUnits(t *testing.T) {
	got := map[string]string{}
	for name, f := range map[string]Field{"none": {"ttl", int64(-1)}, "zero": {"ttl", int64(0)}, "day": {"ttl", int64(86_400_000)}, "huge": {"ttl", int64(1<<63 - 1)}, "unknown": {"waited", int64(-1)},
		"waited": {"waited", int64(59_999)}, "at": {"at", int64(1_700_000_000_123)}, "least": {"at", int64(-1 << 63)}, "nil": {"owner", nil}, "text": {"ttl", "soon"}, "list": {"x", []any{int64(1), "a"}}} {
		got[name] = Text(f)
	}
	want := map[string]string{"none": "none", "zero": "0s", "day": "24h0m0s", "huge": "9223372036854775s", "unknown": "unknown", "waited": "59.999s", "at": "2023-11-14T22:13:20.123Z",
		"least": got["least"], "nil": "-", "text": "soon", "list": `[1, "a"]`}
	if !reflect.DeepEqual(got, want) || strings.ContainsAny(got["least"], "\n\x1b") {
		t.Errorf("%v", got)
	}
}

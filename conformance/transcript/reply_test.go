package transcript

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func read(t *testing.T, wire string) Value {
	t.Helper()
	v, err := ReadValue(bufio.NewReader(strings.NewReader(wire)))
	if err != nil {
		t.Fatalf("ReadValue(%q): %v", wire, err)
	}
	return v
}

// replies pairs bytes on the wire with their notation.
var replies = []struct{ wire, want string }{
	{"+OK\r\n", "+OK"},
	{"+\r\n", "+"},
	{"-ERR unknown command 'x', with args beginning with: \r\n", `-"ERR unknown command 'x', with args beginning with: "`},
	{"-a\nb\r\n", `-"a\nb"`},
	{"+\"quoted\"\r\n", `+"\"quoted\""`},
	{"+\xff\r\n", `+"\xff"`},
	{":-1\r\n", ":-1"},
	{"$0\r\n\r\n", `$""`},
	{"$-1\r\n", "$-1"},
	{"$2\r\n-1\r\n", `$"-1"`},
	{"$4\r\na\r\nb\r\n", `$"a\r\nb"`},
	{"$2\r\nй\r\n", `$"й"`},
	{"*0\r\n", "*0"},
	{"*-1\r\n", "*-1"},
	{"*2\r\n:1\r\n*1\r\n$1\r\na\r\n", "*2\n  :1\n  *1\n    $\"a\""},
	{"%1\r\n+a\r\n~1\r\n_\r\n", "%1\n  +a\n  ~1\n    _"},
	{">2\r\n#t\r\n#f\r\n", ">2\n  #t\n  #f"},
	{",3.5\r\n", ",3.5"},
	{"(12345678901234567890\r\n", "(12345678901234567890"},
	{"=7\r\ntxt:a b\r\n", `="txt:a b"`},
	{"!5\r\nERR x\r\n", `!"ERR x"`},
	{"|1\r\n+k\r\n+v\r\n:1\r\n", "|1\n  +k\n  +v\n  :1"},
}

func TestReplyNotation(t *testing.T) {
	for _, tt := range replies {
		v := read(t, tt.wire)
		if got := strings.Join(v.Lines(), "\n"); got != tt.want {
			t.Errorf("%q is shown as\n%s\nwant\n%s", tt.wire, got, tt.want)
		}
		back, rest, err := ParseReply(strings.Split(tt.want, "\n"))
		if err != nil || len(rest) != 0 {
			t.Errorf("ParseReply(%q): %v, %d lines left", tt.want, err, len(rest))
		}
		if got := string(back.Append(nil)); got != tt.wire {
			t.Errorf("%q came back as %q", tt.wire, got)
		}
	}
}

func TestReadValueRefuses(t *testing.T) {
	for _, wire := range []string{
		"OK\r\n", "\r\n", "$1x\r\na\r\n", "$01\r\na\r\n", "$+1\r\na\r\n", "$-2\r\n", "$1\r\nabc", "*01\r\n:1\r\n", "*-2\r\n",
		"#x\r\n", "#\r\n", "_x\r\n", "(closed)\r\n", "(\r\n", "(-\r\n", "~-1\r\n", "$99999999999\r\n", "*99999999999\r\n",
		strings.Repeat("*1\r\n", 1000) + ":1\r\n",
	} {
		if v, err := ReadValue(bufio.NewReader(strings.NewReader(wire))); !errors.Is(err, errWire) {
			t.Errorf("ReadValue(%q) = %v, %v; want errWire", wire, v, err)
		}
	}
	for _, wire := range []string{"+OK", "$5\r\nab", "*2\r\n:1\r\n", "$1\r\n"} {
		if v, err := ReadValue(bufio.NewReader(strings.NewReader(wire))); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("ReadValue(%q) = %v, %v; want an unexpected end", wire, v, err)
		}
	}
}

func TestParseReplyRefuses(t *testing.T) {
	for _, text := range []string{"*1", "*1\n:1", "*1\n   :1", " :1", `$abc`, `$"a`, "?x", "", "*x", "SET k v"} {
		if v, _, err := ParseReply(strings.Split(text, "\n")); err == nil {
			t.Errorf("ParseReply(%q) = %v, want an error", text, v)
		}
	}
}

// FuzzReply: the notation keeps every byte of a reply, and looks like no command, comment or end of a connection.
func FuzzReply(f *testing.F) {
	for _, tt := range replies {
		f.Add([]byte(tt.wire))
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		v, err := ReadValue(bufio.NewReader(bytes.NewReader(wire)))
		if err != nil {
			return
		}
		lines := v.Lines()
		for _, l := range lines {
			if !isReply(l) || l == closed || strings.ContainsAny(l, "\n\r") || strings.TrimRight(l, " \t") != l {
				t.Fatalf("%q has the line %q", wire, l)
			}
		}
		back, rest, err := ParseReply(lines)
		if err != nil || len(rest) > 0 {
			t.Fatalf("%q: %v, rest %q", lines, err, rest)
		}
		if got := back.Append(nil); !bytes.HasPrefix(wire, got) {
			t.Fatalf("%q came back as %q", wire, got)
		}
	})
}

func TestRender(t *testing.T) {
	const flat = "*4\r\n$1\r\nb\r\n:2\r\n$1\r\na\r\n:1\r\n"
	const hello = "*4\r\n$7\r\nversion\r\n$3\r\n7.0\r\n$5\r\nproto\r\n:2\r\n"
	for _, tt := range []struct{ mods, step, wire, want string }{
		{"", "> X", flat, `*4 $"b" :2 $"a" :1`},
		{"@sorted", "> X", flat, `*4 $"a" $"b" :1 :2`},
		{"@sortedpairs", "> X", flat, `*4 $"a" :1 $"b" :2`},
		{"@sorted", "> X", "%2\r\n+b\r\n:1\r\n+a\r\n:2\r\n", `%2 +a :2 +b :1`},
		{"@sorted 1", "> X", "*2\r\n$1\r\n0\r\n*2\r\n+b\r\n+a\r\n", `*2 $"0" *2 +a +b`},
		{"@sortedpairs 1", "> X", "*1\r\n" + flat, `*1 *4 $"a" :1 $"b" :2`},
		{"@sorted", "> X", "+OK\r\n", "+OK"},
		{"@shape", "> X", "*3\r\n+a\r\n$-1\r\n*1\r\n:5\r\n", "*3 + $-1 *1 :"},
		{"@type", "> X", flat, "*"},
		{"@sub /b|a/x/", "> X", flat, `*4 $"x" :2 $"x" :1`},
		{"@sub /a/b/\n@sub /b/c/", "> X", "+a\r\n", "+c"},
		{"", "@hello", hello, `*4 $"version" $ $"proto" :2`},
		{"", "@hello 9", "-NOPROTO unsupported protocol version\r\n", "-NOPROTO unsupported protocol version"},
	} {
		src := tt.step + "\n"
		if tt.mods != "" {
			src = tt.mods + "\n" + src
		}
		f, err := Parse("f", []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		lines := f.Steps[len(f.Steps)-1].lines(read(t, tt.wire))
		for i := range lines {
			lines[i] = strings.TrimLeft(lines[i], " ")
		}
		if got := strings.Join(lines, " "); got != tt.want {
			t.Errorf("%q: %q is shown as %s, want %s", src, tt.wire, got, tt.want)
		}
	}
}

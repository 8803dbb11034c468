package transcript

import (
	"slices"
	"strings"
	"testing"
)

func TestSplitArgs(t *testing.T) {
	for _, tt := range []struct {
		line string
		want []string
	}{
		{"", nil},
		{"SET k v", []string{"SET", "k", "v"}},
		{"  SET\tk  ", []string{"SET", "k"}},
		{`ECHO "a b"`, []string{"ECHO", "a b"}},
		{`ECHO ""`, []string{"ECHO", ""}},
		{`ECHO "\x00\xfF\n\r\t\b\a\"\\\q"`, []string{"ECHO", "\x00\xff\n\r\t\b\a\"\\q"}},
		{`ECHO "\xzz\x1"`, []string{"ECHO", "xzzx1"}},
		{`ECHO 'it\'s \n'`, []string{"ECHO", `it's \n`}},
		{`ECHO a"b c"`, []string{"ECHO", "ab c"}},
		{`KEYS a\*`, []string{"KEYS", `a\*`}},
	} {
		got, err := SplitArgs(tt.line)
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("SplitArgs(%q) = %q, %v; want %q", tt.line, got, err, tt.want)
		}
	}
	for _, line := range []string{`"abc`, `'abc`, `"a"b`, `'a'b`, `"abc\`} {
		if got, err := SplitArgs(line); err == nil {
			t.Errorf("SplitArgs(%q) = %q, want an error", line, got)
		}
	}
}

func TestParseRaw(t *testing.T) {
	for _, tt := range []struct{ src, want string }{
		{`"PING\r\n"`, "PING\r\n"},
		{`"*1\r\n" "$4\r\nPING\r\n"`, "*1\r\n$4\r\nPING\r\n"},
		{`"ab"*3 "\r\n"`, "ababab\r\n"},
		{`"a"*0`, ""},
		{`"\xff\x00"`, "\xff\x00"},
	} {
		got, err := parseRaw(tt.src)
		if err != nil || string(got) != tt.want {
			t.Errorf("parseRaw(%q) = %q, %v; want %q", tt.src, got, err, tt.want)
		}
	}
	for _, src := range []string{`PING`, `"a`, `"a"*x`, `"a"*-1`, `"a"*99999999999`, `"a" b`} {
		if got, err := parseRaw(src); err == nil {
			t.Errorf("parseRaw(%q) = %q, want an error", src, got)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ src, want string }{
		{"+OK", "belongs to no command"},
		{"> PING\n\n+PONG", "belongs to no command"},
		{"> PING\n+PONG\n# comment\n+PONG", "belongs to no command"},
		{"@noreply\n> PING\n+PONG", "belongs to no command"},
		{"@conn a\n+OK", "belongs to no command"},
		{"> ", "empty command"},
		{`> GET "a`, "unbalanced"},
		{"@nosuch", "unknown directive"},
		{"@shape", "modifies nothing"},
		{"@shape\n@conn b", "right above"},
		{"@shape\n\n> PING", "right above"},
		{"@shape x\n> PING", "no operand"},
		{"@until\n> PING", "how the reply begins"},
		{"@until -BUSY\n@push", "a command only"},
		{"@sorted x\n> PING", "invalid syntax"},
		{"@sub /a/\n> PING", "want @sub"},
		{"@sub\n> PING", "want @sub"},
		{"@sub /(/x/\n> PING", "missing closing"},
		{"@advance soon", "invalid duration"},
		{"@conn", "wrong operand"},
		{"@push x", "wrong operand"},
		{"@server x", "want @server"},
	} {
		_, err := Parse("f", []byte(tt.src+"\n"))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Parse(%q): %v; want an error with %q", tt.src, err, tt.want)
		}
	}
}

package luavm

import (
	"runtime"
	"strings"
	"testing"
)

// TestLongFirstLines: the memory for a first line grows with the number of its bytes, not with the number of its words.
func TestLongFirstLines(t *testing.T) {
	const words = 1 << 20
	line := strings.Repeat(" a", words)
	for _, test := range []struct{ command, code, want string }{
		{"eval", "#!lua" + line + "\nreturn 1", "ERR Unknown lua shebang option: a"},
		{"script load", "#!lua" + line + "\nreturn 1", "ERR Unknown lua shebang option: a"},
		{"eval", "#!lua" + line + " \"b\nreturn 1", string(errShebangWords)},
		{"eval", "#!lua flags=no-writes,b" + line + "\nreturn 1", "ERR Unexpected flag in script shebang: b"},
		{"eval", "#!python" + line + "\nreturn 1", "ERR Unexpected engine in script shebang: #!python"},
		{"function load", "#!lua" + line + "\nreturn 1", "ERR Invalid metadata value given: a"},
		{"function load", "#!lua name=a name=b" + line + "\nreturn 1", string(errNameTwice)},
		{"function load", "#!lua name=a" + line + " 'b\nreturn 1", string(errMetadata)},
	} {
		w := newWorld(t, Options{})
		args := append(strings.Fields(test.command), test.code)
		if test.command == "eval" {
			args = append(args, "0")
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := w.do(2, args...)
		runtime.ReadMemStats(&after)
		if r.Str != test.want {
			t.Errorf("%s %.30q: %q, want %q", test.command, test.code, r.Str, test.want)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 4*uint64(len(test.code)) {
			t.Errorf("%s %.30q: took %d bytes", test.command, test.code, took)
		}
	}
}

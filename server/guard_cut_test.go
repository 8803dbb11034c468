package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// TestCutCommands: the guard keeps the beginning of a command that is too long for any user, drops the rest, and reads the
// next command correctly.
func TestCutCommands(t *testing.T) {
	long := strings.Repeat("v", 300_000)
	many := slices.Repeat([]string{"argument"}, 50_000)
	marked := func(args ...string) []string { return append(args, "cut by 100000, batch of 1") }
	for name, c := range map[string]struct {
		args, want []string
	}{
		"one argument":            {[]string{"SET", "k", long}, marked("SET", "k", long[:cutArgument])},
		"the first":               {[]string{long, "k"}, marked(long[:cutArgument], "k")},
		"together":                {[]string{"MSET", "a", long[:60_000], "b", long[:60_000], "c", "d"}, marked("MSET", "a", long[:cutArgument], "b", long[:cutArgument], "c", "d")},
		"many":                    {many, marked(many[:cutArgs]...)},
		"a long one behind many":  {append(many[:100:100], long), marked(many[:cutArgs]...)},
		"as long as may be":       {[]string{"SET", "k", long[:99_996]}, []string{"SET", "k", long[:99_996]}},
		"one byte more than that": {[]string{"SET", "k", long[:99_997]}, marked("SET", "k", long[:cutArgument])},
	} {
		in := array("GET", "a") + array(c.args...) + "GET b\r\n" + array(c.args...) + array("GET", "c")
		want := [][]string{{"GET", "a"}, c.want, {"GET", "b"}, c.want, {"GET", "c"}}
		for seed := range uint64(20) {
			pieces := [][]byte{[]byte(in)}
			if seed > 0 {
				pieces = chop([]byte(in), seed)
			}
			rules := func() *rules { return &rules{max: 512 << 20, query: 1 << 30, long: 100_000} }
			if got, failure := read(slices.Clone(pieces), rules()); !slices.EqualFunc(got, want, slices.Equal) || failure != "" {
				t.Fatalf("%s, seed %d: %.500q, %q", name, seed, got, failure)
			}
			if got, failure := readDirect(slices.Clone(pieces), rules()); !slices.EqualFunc(got, want, slices.Equal) || failure != "" {
				t.Fatalf("%s, direct, seed %d: %.500q, %q", name, seed, got, failure)
			}
		}
	}
}

// TestTooLongTakesNoMemory: a command that is too long for any user is refused, takes no memory, and does not disturb the next.
func TestTooLongTakesNoMemory(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		c := ts.dial(t)
		const length = 100 << 20
		tooLong := "-" + string(ts.table.Lookup([]byte("set")).ErrTooLong(ts.fake.MaxEntry())) + "\r\n"
		piece := strings.Repeat("x", 1<<20)
		flood := func(before string) {
			c.send(before + fmt.Sprintf("$%d\r\n", length))
			for range length / len(piece) {
				if held := ts.clientMemory.large.Load(); held > largeCommand {
					t.Fatalf("%d bytes are held", held)
				}
				c.send(piece)
			}
			c.send("\r\n")
		}
		flood("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n")
		c.expect(tooLong)
		c.do("GET k", "$-1\r\n")
		c.send("SET k v\r\n")
		flood("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n")
		c.send("GET k\r\n")
		c.expect("+OK\r\n" + tooLong + "$1\r\nv\r\n")
		flood("*3\r\n$3\r\nSAT\r\n$1\r\nk\r\n")
		c.expect("-ERR unknown command 'SAT', with args beginning with: 'k' '" + piece[:124] + "' \r\n")
		flood("*3\r\n$3\r\nGET\r\n$1\r\nk\r\n")
		c.expect("-" + string(store.ErrWrongArgs("get")) + "\r\n")
		c.do("MULTI", "+OK\r\n")
		flood("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n")
		c.expect(tooLong)
		c.do("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
		c.do("ACL SETUSER default -set", "+OK\r\n")
		flood("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n")
		c.expect("-NOPERM this user has no permissions to run the 'set' command\r\n")
	})
}

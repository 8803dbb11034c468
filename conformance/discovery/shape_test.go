package discovery

import (
	"bufio"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/transcript"
)

func TestShape(t *testing.T) {
	for in, want := range map[string][]string{
		"+OK\r\n":         {"+OK"},
		"-ERR no 'x'\r\n": {"-ERR no 'x'"},
		":12\r\n":         {":"},
		"*-1\r\n":         {"*-1"},
		"$-1\r\n":         {"$-1"},
		// The names of fields are kept, both in a map and in the array that stands for the map in RESP2.
		"%1\r\n$4\r\nport\r\n$4\r\n6379\r\n":                  {"%2", "  port", "  $<n>"},
		"*2\r\n$4\r\nport\r\n:6379\r\n":                       {"*2", "  port", "  :"},
		"*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n":             {"*2", "  $<host>", "  $<n>"},
		"-MOVED 12182 127.0.0.1:7000\r\n":                     {"-MOVED 12182 <address>"},
		"$40\r\n0123456789012345678901234567890123456789\r\n": {"$<id>"},
		"$38\r\nmymaster 127.0.0.1 6379 127.0.0.1 6380\r\n":   {"$mymaster <address> <address>"},
		"-CLUSTERDOWN Hash slot not served\r\n":               {"-CLUSTERDOWN Hash slot not served"},
		"$36\r\nb 1 connected 0-16383\na 1 connected\n\r\n":   {`$a <n> connected\nb <n> connected <slots>\n`},
		"*4\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n$1\r\n4\r\n":  {"*4", "  $<n>", "  $<n>", "  $<n>", "  $<n>"},
	} {
		v, err := transcript.ReadValue(bufio.NewReader(strings.NewReader(in)))
		if err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		if got := Shape(v, ""); !slices.Equal(got, want) {
			t.Errorf("%q has the shape %q, want %q", in, got, want)
		}
	}
}

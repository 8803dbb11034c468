package ports

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Nobody else gets the address of a node: no other test, and no outgoing connection.
func TestAddrs(t *testing.T) {
	given := map[string]bool{}
	for range 10 {
		for _, addr := range Addrs(t, 10) {
			if given[addr] {
				t.Errorf("%s is given out twice", addr)
			}
			given[addr] = true
			ln, err := net.Listen("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
		}
	}
	outgoing := firstOutgoing(t)
	for addr := range given {
		if held, err := hold(addr); err == nil {
			held.Close()
			t.Errorf("another test would be given %s", addr)
		}
		_, text, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		if port, err := strconv.Atoi(text); err != nil || port >= outgoing {
			t.Errorf("an outgoing connection may have port %s, %v", text, err)
		}
	}
}

// The addresses of a test are free again when the test has ended.
func TestAddrsAreGivenBack(t *testing.T) {
	var list []string
	t.Run("a test", func(t *testing.T) { list = Addrs(t, 3) })
	for _, addr := range list {
		held, err := hold(addr)
		if err != nil {
			t.Fatal(err)
		}
		held.Close()
	}
}

// firstOutgoing returns the first port that this system gives to outgoing connections.
func firstOutgoing(t *testing.T) int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 49_152 // elsewhere it is what IANA names
	}
	port, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		t.Fatal(err)
	}
	if port < end {
		t.Skipf("outgoing connections of this machine begin at port %d", port)
	}
	return port
}

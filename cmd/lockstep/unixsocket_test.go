package main

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// atSocket is a connection to a node's Unix socket.
func atSocket(t *testing.T, path string) *respclient.Conn {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := respclient.NewConn(conn)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestUnixSocket: a node serves clients at a Unix socket with the permissions that it was told, shows them as Redis does, takes the place of
// a socket that a killed process has left behind, and takes away its own when it ends.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	n := nodes.Start(t, 1, "--unixsocket", path, "--unixsocketperm", "600")[0]
	for range 2 {
		info, err := os.Lstat(path)
		if err != nil || info.Mode() != fs.ModeSocket|0o600 {
			t.Fatalf("%v, %v", info, err)
		}
		c := atSocket(t, path)
		list := ask(t, c, "CLIENT", "LIST")
		if want := fmt.Sprintf(" addr=%s:0 laddr=%s:0 ", path, path); !strings.Contains(list, want) || !strings.Contains(list, " flags=U ") {
			t.Errorf("%s, want%s and the flag U", list, want)
		}
		if got := ask(t, c, "CONFIG", "GET", "unixsocket*"); got != "[unixsocket "+path+" unixsocketperm 600]" {
			t.Error(got)
		}
		if code, out := n.Admin("status", "--addr", path); code != exitOK || !strings.Contains(out, "leader") {
			t.Errorf("status at the socket: %d %s", code, out)
		}
		n.Kill()
		n.Run()
		n.WaitReady()
	}
	if code := n.Terminate(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// TestUnixSocketIsLocal: a node that only clients of its machine reach needs no password, and protected mode lets them in.
func TestUnixSocketIsLocal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	n := nodes.Start(t, 1, "--unixsocket", path)[0]
	c := atSocket(t, path)
	if got := ask(t, c, "SET", "k", "v"); got != "OK" {
		t.Error(got)
	}
	// Who must log in at a port must log in here, too.
	ask(t, c, "CONFIG", "SET", "requirepass", "p")
	if got, err := atSocket(t, path).Do("GET", "k"); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("%v %v", got, err)
	}
	if _, err := n.Do("AUTH", "p"); err != nil {
		t.Error(err)
	}
}

// TestUnixSocketFaults: a node takes the place of nothing that is in use, or is no socket, and says what is wrong with the flags.
func TestUnixSocketFaults(t *testing.T) {
	dir := t.TempDir()
	used, file := filepath.Join(dir, "used"), filepath.Join(dir, "file")
	ln, err := net.Listen("unix", used)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"another process listens there":  {"--unixsocket", used},
		"a file that is no socket":       {"--unixsocket", file},
		"no such file or directory":      {"--unixsocket", filepath.Join(dir, "none", "s")},
		"want octal digits":              {"--unixsocket", used, "--unixsocketperm", "rw"},
		"octal digits up to 777":         {"--unixsocket", used, "--unixsocketperm", "1777"},
		"the system allows 103":          {"--unixsocket", "/" + strings.Repeat("x", 103)},
		"neither --listen nor --tls-lis": {},
	} {
		code, _, faults := ran(append([]string{"serve", "--ephemeral", "--listen", "", "--http-listen", ""}, args...)...)
		if code == exitOK || !strings.Contains(faults, want) {
			t.Errorf("%q: exit code %d: %s, want %s", args, code, faults, want)
		}
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if _, _, faults := ran("status", "--tls", "--addr", used); !strings.Contains(faults, "a Unix socket has no TLS") {
		t.Error(faults)
	}
}

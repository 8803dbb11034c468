package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/environ"
	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// service is a node that the test starts as systemd would: with sockets from descriptor 3 on, and a socket for messages.
type service struct {
	t      *testing.T
	cmd    *exec.Cmd
	log    bytes.Buffer
	notify *net.UnixConn
	said   []string // the lines that it has sent
}

// startService starts a node without data. env has further variables; sockets and names are what the manager passes.
func startService(t *testing.T, env []string, names string, sockets []*os.File, flags ...string) *service {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s := &service{t: t, notify: conn}
	// The shell knows the process id that the program will have.
	args := append([]string{"-c", `export LISTEN_PID=$$ WATCHDOG_PID=$$; exec "$@"`, "sh", nodes.Binary(t), "serve", "--ephemeral"}, flags...)
	s.cmd = exec.Command("sh", args...)
	s.cmd.Env = append(append(environ.Environ(), "NOTIFY_SOCKET="+path, fmt.Sprint("LISTEN_FDS=", len(sockets)), "LISTEN_FDNAMES="+names), env...)
	s.cmd.ExtraFiles, s.cmd.Stderr = sockets, &s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	return s
}

// hears waits until the node has sent these lines, in this order and perhaps with others between them, since the last call.
func (s *service) hears(want ...string) {
	s.t.Helper()
	b := make([]byte, 4096)
	for len(want) > 0 {
		for len(s.said) > 0 && len(want) > 0 {
			if strings.HasPrefix(s.said[0], want[0]) {
				want = want[1:]
			}
			s.said = s.said[1:]
		}
		if len(want) == 0 {
			return
		}
		if err := s.notify.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			s.t.Fatal(err)
		}
		n, err := s.notify.Read(b)
		if err != nil {
			s.t.Fatalf("%v; want %q; the node says:\n%s", err, want, s.log.String())
		}
		s.said = append(s.said, strings.Split(strings.TrimSpace(string(b[:n])), "\n")...)
	}
}

// ends waits for the end of the node, and returns its exit code and its log.
func (s *service) ends() (int, string) {
	s.t.Helper()
	_ = s.cmd.Wait() // the exit code says it all
	return s.cmd.ProcessState.ExitCode(), s.log.String()
}

func (s *service) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// socketOf returns a listener and the descriptor that the manager would pass.
func socketOf(t *testing.T, network, addr string) (at string, file *os.File) {
	t.Helper()
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	if u, is := ln.(*net.UnixListener); is {
		u.SetUnlinkOnClose(false)
	}
	t.Cleanup(func() { ln.Close() })
	if file, err = ln.(interface{ File() (*os.File, error) }).File(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return ln.Addr().String(), file
}

// TestNotify: a node tells systemd when it has started, what it is, that it lives, that it reads its files again, and that it stops.
func TestNotify(t *testing.T) {
	s := startService(t, []string{"WATCHDOG_USEC=300000"}, "", nil, "--listen", "127.0.0.1:0", "--http-listen", "")
	s.hears("EXTEND_TIMEOUT_USEC=60000000", "STATUS=reads its log", "READY=1", "STATUS=leads", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1")
	s.signal(syscall.SIGHUP)
	s.hears("RELOADING=1", "MONOTONIC_USEC=", "READY=1", "WATCHDOG=1")
	s.signal(syscall.SIGTERM)
	s.hears("STOPPING=1")
	if code, log := s.ends(); code != exitOK {
		t.Errorf("exit code %d: %s", code, log)
	}
}

// TestNobodyToNotify: a manager that is gone, or reads nothing, holds up no node.
func TestNobodyToNotify(t *testing.T) {
	s := startService(t, nil, "", nil, "--listen", "127.0.0.1:0", "--http-listen", "")
	s.hears("READY=1")
	s.notify.Close()
	s.signal(syscall.SIGTERM)
	if code, log := s.ends(); code != exitOK {
		t.Errorf("exit code %d: %s", code, log)
	}
}

// TestSocketActivation: clients that come to systemd's sockets before the node runs are served when it does, also by the next process; the
// node closes no socket of systemd for good.
func TestSocketActivation(t *testing.T) {
	plain, plainFile := socketOf(t, "tcp", "127.0.0.1:0")
	pages, httpFile := socketOf(t, "tcp", "127.0.0.1:0")
	path, unixFile := socketOf(t, "unix", filepath.Join(t.TempDir(), "s"))
	early, err := net.Dial("tcp", plain)
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	if _, err := io.WriteString(early, "PING\r\n"); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		s := startService(t, nil, "listen:unixsocket:http-listen", []*os.File{plainFile, unixFile, httpFile}, "--listen", plain, "--http-listen", pages, "--unixsocket", path)
		s.hears("READY=1")
		if round == 0 {
			answer := make([]byte, 7)
			if _, err := io.ReadFull(early, answer); err != nil || string(answer) != "+PONG\r\n" {
				t.Errorf("%q, %v", answer, err)
			}
		}
		for _, c := range []struct{ network, addr string }{{"tcp", plain}, {"unix", path}} {
			conn, err := net.Dial(c.network, c.addr)
			if err != nil {
				t.Fatal(err)
			}
			if got := ask(t, respclient.NewConn(conn), "PING"); got != "PONG" {
				t.Error(got)
			}
			conn.Close()
		}
		if status, text := page(t, http.DefaultClient, "http://"+pages+"/healthz", "", "", ""); status != 200 {
			t.Errorf("%d %s", status, text)
		}
		s.signal(syscall.SIGTERM)
		if code, log := s.ends(); code != exitOK {
			t.Errorf("exit code %d: %s", code, log)
		}
	}
}

// TestSocketActivationFaults: a node does not start with a socket for which it has no use, or that is elsewhere than its flag says.
func TestSocketActivationFaults(t *testing.T) {
	at, file := socketOf(t, "tcp", "127.0.0.1:0")
	_, open := socketOf(t, "tcp", "0.0.0.0:0")
	_, unixFile := socketOf(t, "unix", filepath.Join(t.TempDir(), "s"))
	datagrams, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	udp, err := datagrams.File()
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for want, c := range map[string]struct {
		names string
		files []*os.File
	}{
		`with the name "lockstep.socket"`: {"lockstep.socket", []*os.File{file}},
		`with the name "LISTEN_FD_3"`:     {"", []*os.File{file}},
		`two sockets with the name`:       {"listen:listen", []*os.File{file, file}},
		`accepts no connections`:          {"listen", []*os.File{udp}},
		`say so by --tls-listen`:          {"tls-listen", []*os.File{file}},
		`is at [::]:`:                     {"listen", []*os.File{open}},
		`say so by --http-listen`:         {"http-listen", []*os.File{file}},
		`say so by --unixsocket`:          {"unixsocket", []*os.File{unixFile}},
	} {
		s := startService(t, nil, c.names, c.files, "--listen", map[bool]string{true: at, false: "127.0.0.1:0"}[strings.HasPrefix(c.names, "listen")], "--http-listen", "127.0.0.1:1")
		if code, log := s.ends(); code == exitOK || !strings.Contains(log, want) && !strings.Contains(log, strings.ReplaceAll(want, "[::]", "0.0.0.0")) {
			t.Errorf("%s: exit code %d: %s", want, code, log)
		}
	}
}

// TestWhereASocketIs: a socket of systemd is at the address of its flag only if nobody reaches it whom the flag rules out.
func TestWhereASocketIs(t *testing.T) {
	for _, c := range []struct {
		ip, addr string
		want     bool
	}{
		{"127.0.0.1", "127.0.0.1:6379", true}, {"10.0.0.1", "127.0.0.1:6379", false}, {"127.0.0.2", "127.0.0.1:6379", false}, {"127.0.0.1", "127.0.0.1:6380", false},
		{"127.0.0.1", "localhost:6379", true}, {"::1", "localhost:6379", true}, {"10.0.0.1", "localhost:6379", false}, {"10.0.0.1", "n1.example:6379", true},
		{"0.0.0.0", "n1.example:6379", false}, {"::", "0.0.0.0:6379", true}, {"::", ":6379", true}, {"10.0.0.1", "0.0.0.0:6379", false}, {"10.0.0.1", "", false},
	} {
		if got := isAt(&net.TCPAddr{IP: net.ParseIP(c.ip), Port: 6379}, c.addr); got != c.want {
			t.Errorf("%s is at %q: %v", c.ip, c.addr, got)
		}
	}
}

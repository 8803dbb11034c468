package main

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/conformance/ports"
)

// TestSignals: signals that are not meant to end a node, such as SIGHUP, cost no lock and no connection.
func TestSignals(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	c := n.Dial()
	if got, err := c.Do("SET", "lock", "me", "NX"); got != "OK" {
		t.Fatal(got, err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGWINCH} {
		hangups := strings.Count(n.Log(), "SIGHUP")
		if err := n.Process().Signal(sig); err != nil {
			t.Fatal(sig, err)
		}
		if sig == syscall.SIGHUP {
			until(t, "a line", func() bool { return strings.Count(n.Log(), "SIGHUP") > hangups })
		}
		if got, err := c.Do("GET", "lock"); got != "me" {
			t.Fatalf("after %v: %v, %v\n%s", sig, got, err, n.Log())
		}
	}
	if got := strings.Count(n.Log(), "SIGHUP"); got != 2 {
		t.Errorf("%d lines of 2 hangups:\n%s", got, n.Log())
	}
	if err := n.Process().Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := n.Wait(); code != exitOK || !strings.Contains(n.Log(), "Stopped") {
		t.Errorf("after SIGTERM: exit code %d\n%s", code, n.Log())
	}
}

// TestLogThatNobodyReads: the log of a node goes into a pipe, and the program that reads the pipe ends. The node goes on.
func TestLogThatNobodyReads(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	addr := ports.Addrs(t, 1)[0]
	cmd := exec.Command(nodes.Binary(t), "--ephemeral", "--listen", addr, "--http-listen", "")
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	w.Close()
	said := make([]byte, 64<<10)
	for heard := 0; !strings.Contains(string(said[:heard]), "Ready to accept"); {
		n, err := r.Read(said[heard:])
		if err != nil {
			t.Fatal(err)
		}
		heard += n
	}
	r.Close()
	n := &nodes.Node{Addr: addr}
	for range 3 { // each hangup writes a line, and so does each script
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if got, err := n.Do("EVAL", "redis.log(redis.LOG_WARNING, 'to nobody') return 1", "0"); got != int64(1) {
			t.Fatal(got, err)
		}
	}
}

func TestReload(t *testing.T) {
	log := func(list ...reloader) string {
		var b bytes.Buffer
		reload(list, slog.New(slog.NewTextHandler(&b, nil)))
		return b.String()
	}
	var order []string
	read := func(name string, err error) reloader {
		return reloader{name, func() error { order = append(order, name); return err }}
	}
	for _, c := range []struct {
		list []reloader
		want []string
	}{
		{nil, []string{"level=INFO", "nothing to read"}},
		{[]reloader{read("certificates", nil), read("users", nil)}, []string{"level=INFO", "certificates, users"}},
		{[]reloader{read("certificates", errors.New("no such file")), read("users", nil)},
			[]string{"level=ERROR", "certificates: no such file", "read=users", "stays as it was"}},
	} {
		got := log(c.list...)
		for _, w := range c.want {
			if !strings.Contains(got, w) || strings.Count(got, "\n") != 1 {
				t.Errorf("no %q, or more than one line: %s", w, got)
			}
		}
	}
	if got := strings.Join(order, " "); got != "certificates users certificates users" {
		t.Error(got)
	}
	// If SIGHUP comes before the node has its reloaders, they run as soon as they are there.
	hangups, heard := make(chan os.Signal, 1), make(chan bool)
	hangups <- syscall.SIGHUP
	go reloadOn(t.Context(), hangups, func() { heard <- true })
	select {
	case <-heard:
	case <-time.After(10 * time.Second):
		t.Error("it is forgotten")
	}
}

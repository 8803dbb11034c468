package main

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/server"
)

// TestLongPasswords: a password that is longer than a client could send is refused, whether it comes from a flag or a file.
func TestLongPasswords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	for _, end := range []string{"", "\n", "\r\n", "\nmore\n"} {
		for _, c := range []struct {
			size int
			ok   bool
		}{{server.MaxPassword, true}, {server.MaxPassword + 1, false}, {server.MaxPassword + 2, false}, {3 << 20, false}} {
			secret := strings.Repeat("p", c.size)
			if err := os.WriteFile(path, []byte(secret+end), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, arg := range []string{"--requirepass-file=" + path, "--requirepass=" + secret} {
				var got string
				fs := flag.NewFlagSet("test", flag.ContinueOnError)
				fs.SetOutput(io.Discard)
				secretVar(fs, &got, "requirepass", "a password")
				err := fs.Parse([]string{arg})
				if c.ok && (err != nil || got != secret) || !c.ok && (err == nil || !strings.Contains(err.Error(), "too long")) {
					t.Errorf("%d bytes with %q behind them, %.20s: %d bytes, %.200v", c.size, end, arg, len(got), err)
				}
			}
		}
	}
}

// TestPasswordFromAPipe: a password can be read from a pipe whose writer keeps it open.
func TestPasswordFromAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	read := make(chan string, 1)
	go func() {
		secret, err := readSecret(path)
		if err != nil {
			t.Error(err)
		}
		read <- secret
	}()
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := io.WriteString(w, "secret\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-read:
		if got != "secret" {
			t.Errorf("got %q", got)
		}
	case <-time.After(20 * time.Second):
		t.Error("the password is not read")
	}
}

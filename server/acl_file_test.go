package server

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// fileServer starts a server with an ACL file that has the given text.
func fileServer(t *testing.T, text string) (ts *testServer, c *client, path string, log *lines) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	log = new(lines)
	ts = newTestServer(t, func(c *Config) { c.ACLFile, c.Log = path, slog.New(slog.NewTextHandler(log, nil)) })
	return ts, ts.dial(t), path, log
}

// TestHostileACLFiles: whatever kind of file is at the path, ACL LOAD soon answers with a short error, and changes nothing.
func TestHostileACLFiles(t *testing.T) {
	ts, c, path, _ := fileServer(t, "")
	c.do("ACL SETUSER here on", "+OK\r\n")
	random := make([]byte, 1<<20)
	rand.New(rand.NewSource(1)).Read(random)
	file := func(text string) func() error {
		return func() error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	for name, put := range map[string]func() error{
		"huge":                  file(strings.Repeat("user a on\n", maxACLFile/10+1)),
		"huge and sparse":       func() error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) },
		"binary":                file(string(random)),
		"a million lines":       file(strings.Repeat("x\n", 1_000_000)),
		"a million wrong users": file("user a\n" + strings.Repeat("user a\n", 500_000)),
		"one long line":         file("user a " + strings.Repeat("~x ", 1_000_000)),
		"one long name":         file("user a" + strings.Repeat("\t", 3<<20) + "b"),
		"one long rule":         file("user a +" + strings.Repeat("x", 3<<20)),
		"zero bytes":            file("user a on\x00\nuser b on +get\x00+set\n"),
		"a directory":           func() error { return os.Mkdir(path, 0o700) },
		"a pipe":                func() error { return syscall.Mkfifo(path, 0o600) },
		"a device":              func() error { return os.Symlink("/dev/zero", path) },
		"a link to itself":      func() error { return os.Symlink(path, path) },
		"nothing":               func() error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(path)
			if err := put(); err != nil {
				t.Fatal(err)
			}
			before := time.Now()
			got := c.ask("ACL", "LOAD")
			if got.Type != '-' || !strings.HasPrefix(got.Text, "ERR ") || len(got.Text) > 32<<10 {
				t.Errorf("%d bytes: %.300q", len(got.Text), got.Text)
			}
			if took := time.Since(before); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			c.do("ACL USERS", "*2\r\n$7\r\ndefault\r\n$4\r\nhere\r\n")
			_ = os.Remove(path)
		})
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	c.do("ACL SAVE", "-"+string(errACLSave)+"\r\n")
	if _, err := os.ReadDir(path); err != nil {
		t.Error("the directory is gone")
	}
	ts.dial(t).do("PING", "+PONG\r\n")
}

// TestACLSave: ACL SAVE replaces the file as a whole or not at all, and ACL LOAD restores the same users.
func TestACLSave(t *testing.T) {
	_, c, path, log := fileServer(t, "what was there\n")
	real := path + ".real"
	if err := os.Rename(path, real); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, path); err != nil {
		t.Fatal(err)
	}
	c.do("ACL SETUSER bob on >p ~a* %RW~* &c (%R~b +get) +select|0", "+OK\r\n")
	c.do("ACL SAVE", "+OK\r\n")
	info, err := os.Lstat(real)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := os.Readlink(path); err != nil {
		t.Error("the link is gone")
	}
	saved, err := os.ReadFile(real)
	if err != nil || !strings.HasPrefix(string(saved), "user bob on #") {
		t.Fatalf("%q, %v", saved, err)
	}
	list := fmt.Sprint(c.ask("ACL", "LIST"))
	c.do("ACL DELUSER bob", ":1\r\n")
	c.do("ACL LOAD", "+OK\r\n")
	if got := fmt.Sprint(c.ask("ACL", "LIST")); got != list {
		t.Errorf("read back: %q, was %q", got, list)
	}
	if got := c.ask("ACL", "SETUSER", "odd", "on", `("~x)" +get)`); got.Type != '+' {
		t.Fatal(got.Text)
	}
	c.do("ACL SAVE", "-"+string(errACLSave)+"\r\n")
	if n := log.count("cannot be told in a file"); n == 0 {
		t.Error("the log does not say why")
	}
	if now, err := os.ReadFile(real); err != nil || string(now) != string(saved) {
		t.Errorf("the file is %q, %v", now, err)
	}
	if rest, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*tmp*")); err != nil || len(rest) > 0 {
		t.Errorf("%q are left, %v", rest, err)
	}
	c.do("CONFIG GET aclfile", "*2\r\n$7\r\naclfile\r\n"+bulk(path))
}

// FuzzACLFile: the reader returns users, or errors of limited length, for any text. It can read what FormatACLFile writes of these
// users.
func FuzzACLFile(f *testing.F) {
	ts := newTestServer(f, nil)
	for _, text := range []string{"user a on >p ~* +@all\n", "user a (+get\n", "user a (~x +get) (&y)\nuser b\n", "\x00", "user  on\n", "user a +get|x|y\tb\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		users, faults := store.ParseACLFile(ts.table, "f", text, false)
		if faults != "" && (users != nil || len(faults) > 32<<10) {
			t.Errorf("%d users, %d bytes of faults", len(users), len(faults))
		}
		written, wrong, ok := store.FormatACLFile(ts.table, users)
		if !ok {
			if wrong == "" && len(users) > 0 && users[0].Name != "" {
				t.Errorf("%q cannot be told, for nobody", text)
			}
			return
		}
		again, faults := store.ParseACLFile(ts.table, "f", written, false)
		if faults != "" || len(again) != len(users) {
			t.Fatalf("%q is written %q: %s", text, written, faults)
		}
	})
}

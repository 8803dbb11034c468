package server

import (
	"bytes"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/certs"
)

// unwatchedCertificates makes certificates that no server watches. It returns them with their files and their log.
func unwatchedCertificates(t *testing.T) (*Certificates, TLSFiles, *lines) {
	t.Helper()
	made, _, err := certs.Make(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	files := TLSFiles{CertFile: made.Cert, KeyFile: made.Key, AuthClients: "no"}
	log := new(lines)
	c, err := NewCertificates(files, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return c, files, log
}

// TestCertificatesThatCouldNotBeRead: after a failed read, Watch tries again even if the files keep their sizes and times.
func TestCertificatesThatCouldNotBeRead(t *testing.T) {
	c, files, log := unwatchedCertificates(t)
	a, err := certs.NewAuthority("another")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := a.Issue("lockstep", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-time.Minute)
	put := func(path string, text []byte) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
	}
	first := c.Config()
	fails := func(lines int) {
		t.Helper()
		for range 3 {
			c.Watch()
		}
		if n := log.count("cannot be used"); n != lines {
			t.Errorf("%d log lines about files that cannot be used, not %d", n, lines)
		}
		if c.Config() != first {
			t.Error("files that cannot be used have changed something")
		}
	}
	rubbish := func(text []byte) []byte { return bytes.Repeat([]byte("x"), len(text)) }
	put(files.CertFile, pair.Cert)
	put(files.KeyFile, rubbish(pair.Key)) // as if the file could not be read; root, who may run this test, can read any file
	fails(1)
	put(files.CertFile, rubbish(pair.Cert))
	fails(2)
	put(files.CertFile, pair.Cert)
	put(files.KeyFile, pair.Key)
	for range 3 {
		c.Watch()
	}
	if c.Config() == first {
		t.Error("the files that were mended are not in use")
	}
	if n := log.count("were read again"); n != 1 {
		t.Errorf("%d log lines say that the files were read", n)
	}
}

// TestReloadThatFails: a SIGHUP makes the node read the files, and the read fails. Watch then tries again, and does not
// log the failure a second time.
func TestReloadThatFails(t *testing.T) {
	c, files, log := unwatchedCertificates(t)
	old, err := os.Stat(files.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(files.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	put := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(files.KeyFile, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(files.KeyFile, old.ModTime(), old.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
	put(bytes.Repeat([]byte("x"), len(key)))
	if err := c.Reload(); err == nil {
		t.Error("Reload says nothing")
	}
	c.Watch()
	put(key)
	c.Watch()
	if n, again := log.count("cannot be used"), log.count("were read again"); n != 0 || again != 1 {
		t.Errorf("%d log lines about the failure, %d about the end of it", n, again)
	}
}

// TestRefusedTLSSettings: a CONFIG SET that is refused because of its files does not make Watch read the files in use again.
func TestRefusedTLSSettings(t *testing.T) {
	c, files, log := unwatchedCertificates(t)
	if err := c.Set(TLSFiles{CertFile: files.KeyFile, KeyFile: files.KeyFile, AuthClients: "no"}); err == nil {
		t.Fatal("a key is taken for a certificate")
	}
	c.Watch()
	if n := log.count("were read again"); n != 0 {
		t.Errorf("%d log lines say that the files were read again", n)
	}
}

// Package clustertest has the fixtures that the tests of package cluster and its internal packages share.
package clustertest

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Secrets of two clusters.
const (
	Secret      = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
	OtherSecret = "another secret, of another cluster"
)

// Log collects what a node logs, so that a test can look for lines in it.
type Log struct{ Buffer }

// Lines returns the lines of the log that contain the string with (the parameter).
func (l *Log) Lines(with string) (found []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, with) {
			found = append(found, line)
		}
	}
	return found
}

// Logger returns a logger that writes to l.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// SecretFile makes a secret file with the given text. It returns the path, and a function that replaces the text in the file.
func SecretFile(t *testing.T, text string) (path string, write func(text string)) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "secret")
	write = func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	return path, write
}

// Buffer is a bytes.Buffer that one goroutine may read while others write to it.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *Buffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

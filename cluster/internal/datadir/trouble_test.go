package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// A short entry does not end the trouble about a long one. An entry as long as that one ends it, and so does room.
func TestTroubleEndsWhenTheEntryFits(t *testing.T) {
	for _, end := range []struct {
		name string
		by   func(l *fullLog, next uint64) error
	}{
		{"an entry", func(l *fullLog, next uint64) error { return l.long(next) }},
		{"room", func(l *fullLog, _ uint64) error { l.st.Log.Probe(); return nil }},
	} {
		t.Run(end.name, func(t *testing.T) {
			l := newFullLog(t)
			l.disk.full = true
			if err := l.long(11); !errors.Is(err, ErrNoRoom) {
				t.Fatalf("a long entry on a full disk: %v", err)
			}
			l.must(l.append(11, 11))
			l.st.Log.Probe()
			if l.st.Log.Trouble() == "" {
				t.Fatal("a short entry ended the trouble")
			}
			l.disk.full = false
			l.must(end.by(l, 12))
			if why := l.st.Log.Trouble(); why != "" {
				t.Errorf("with room: %q", why)
			}
			for _, text := range []string{"The disk is full", "The log can be written again"} {
				if n := strings.Count(l.said.String(), text); n != 1 {
					t.Errorf("%q is said %d times", text, n)
				}
			}
			if _, err := os.Stat(filepath.Join(l.dir, snapshotDir, probeFile)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file of the probe is still there: %v", err)
			}
		})
	}
}

// long stores an entry that is longer than the disk space that the segment has reserved, so the segment needs more.
func (l *fullLog) long(index uint64) error {
	return l.st.Log.StoreLog(&raft.Log{Index: index, Term: 1, Data: make([]byte, 2*roomStep)})
}

// TestProbeIsDeletedAtTheStart: the file of a probe whose process ended in the middle is deleted.
func TestProbeIsDeletedAtTheStart(t *testing.T) {
	l := newFullLog(t)
	path := filepath.Join(l.dir, snapshotDir, probeFile)
	l.must(os.WriteFile(path, make([]byte, roomStep), 0o600))
	l.reopen()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

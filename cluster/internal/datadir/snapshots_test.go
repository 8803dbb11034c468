package datadir

import (
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// What comes after a snapshot stays while a node is sent it and shortly after, and no longer if that node hangs.
func TestLogStaysWhileASnapshotIsRead(t *testing.T) {
	s, err := openSnapshots(t.TempDir(), SystemDisk(), hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	var now time.Duration
	s.clock = func() time.Duration { return now }
	keepSnapshot(t, s, 10, 1)
	_, r, err := s.Open(s.Newest().ID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := range uint64(5) {
		keepSnapshot(t, s, 20+i, 1)
	}
	for range 3 {
		if got := s.covered(); got != 9 {
			t.Errorf("while it is read, the log may go up to %d, want 9", got)
		}
		if _, err := r.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		now += afterRead
	}
	now++
	if got := s.covered(); got != 23 {
		t.Errorf("when it has not been read for long, the log may go up to %d, want 23", got)
	}
}

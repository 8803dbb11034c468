package server

import (
	"context"
	"io"
	"syscall"

	"github.com/lockstep-io/lockstep/cluster"
)

// Backup returns a backup of more than one piece. The backup is complete if there is a leader.
func (f *fakeBackend) Backup() (*cluster.Backup, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &cluster.Backup{ReadCloser: io.NopCloser(io.LimitReader(zeros{}, BackupPiece+5)), Users: f.store.Accounts()}, !f.unready.Load(), nil
}

// zeros is a reader without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func (f *fakeBackend) Snapshot() error {
	f.snapshots.Add(1)
	if f.noDisk.Load() {
		return syscall.ENOSPC
	}
	return nil
}

func (f *fakeBackend) ClientsOf(context.Context, string, []uint64) (names []cluster.ClientName, ok bool) {
	return nil, false
}

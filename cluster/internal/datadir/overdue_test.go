package datadir

import (
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// hangingDisk is the machine's disk, which hangs when the test says so: a call of WriteAt does not end then.
type hangingDisk struct {
	systemFiles
	hang sync.RWMutex // held for writing while the disk hangs
}

func (d *hangingDisk) Create(path string) (File, error) {
	f, err := d.systemFiles.Create(path)
	return hangingFile{f, d}, err
}

func (d *hangingDisk) Open(path string) (File, error) {
	f, err := d.systemFiles.Open(path)
	return hangingFile{f, d}, err
}

type hangingFile struct {
	File
	d *hangingDisk
}

func (f hangingFile) WriteAt(p []byte, at int64) (int, error) {
	f.d.hang.RLock()
	defer f.d.hang.RUnlock()
	return f.File.WriteAt(p, at)
}

// The directory says that a write is overdue only while the write has waited for longer than overdueAfter.
func TestWritesThatDoNotEndAreOverdue(t *testing.T) {
	var now atomic.Int64
	now.Store(int64(time.Hour))
	disk := &hangingDisk{}
	on := smallSegments()
	on.Files = disk
	st, err := Open(filepath.Join(t.TempDir(), "data"), Options{Disk: on, ID: "n1", LogStore: LogWAL, Lines: hclog.NewNullLogger(),
		Hooks: Hooks{Clock: func() time.Duration { return time.Duration(now.Load()) }, Stop: make(chan struct{})}})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	is := func(when, want string) {
		t.Helper()
		if got := st.Overdue(); got == "" != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q", when, got)
		}
	}
	for what, write := range map[string]func() error{
		"the log":  func() error { return st.Log.StoreLog(&raft.Log{Index: 1, Term: 1}) },
		"the term": func() error { return st.Stable.SetUint64([]byte(currentTerm), 1) },
		"a vote":   func() error { return st.Stable.Set([]byte(lastVoteCandidate), []byte("n1")) },
	} {
		is("before a write of "+what, "")
		disk.hang.Lock()
		ended := done(write)
		for st.Log.writing.since.Load() == 0 && st.voting.since.Load() == 0 {
			time.Sleep(ms)
		}
		now.Add(int64(overdueAfter))
		is("at first", "")
		now.Add(int64(2 * time.Second))
		is("later", what)
		disk.hang.Unlock()
		mustEnd(t, what, ended)
		is("when it has ended", "")
	}
	cut := func() error { return st.Log.DeleteRange(1, 1) }
	disk.hang.Lock()
	ended := done(cut)
	for st.Log.writing.since.Load() == 0 {
		time.Sleep(ms)
	}
	now.Add(int64(3 * time.Second))
	is("during a cut", "the log has been going on for 3 s")
	disk.hang.Unlock()
	mustEnd(t, "the cut", ended)
	is("after the cut", "")
}

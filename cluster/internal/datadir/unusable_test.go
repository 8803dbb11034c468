package datadir

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/metadb"
)

// If rights, file descriptors or another process keep a directory from being used, the error does not call the data damaged.
func TestDataThatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	d, err := openDir(dir, LogWAL)
	if err != nil {
		t.Fatal(err)
	}
	for cause, want := range map[error]string{
		syscall.EACCES: "chown -R", syscall.EPERM: "chown -R", syscall.EMFILE: "ulimit -n", syscall.ENOMEM: "raise the limit",
		syscall.EROFS: "mount it writable", syscall.EFBIG: "ulimit -f",
	} {
		for _, err := range []error{&os.PathError{Op: "open", Path: "x", Err: cause}, errors.New("wal: " + cause.Error())} {
			got := d.Unusable(err, errors.New("damaged")).Error()
			if !strings.Contains(got, "is intact") || !strings.Contains(got, want) || strings.Contains(got, "damaged") {
				t.Errorf("%v: %s", err, got)
			}
		}
	}
	for _, cause := range []error{syscall.ENOLCK, syscall.ENODEV, syscall.EINVAL} {
		err := fmt.Errorf("flock: %w", cause)
		if got := d.Unusable(err, errors.New("damaged")).Error(); ofData(err) || !strings.Contains(got, "the file system refuses what a node needs") || strings.Contains(got, AdviceRejoin) {
			t.Errorf("%v: %s", err, got)
		}
	}
	for _, cause := range append([]syscall.Errno{syscall.EIO}, damagedFS...) {
		err := &os.PathError{Op: "read", Path: "x", Err: cause}
		if got := d.Unusable(err, errors.New("damaged")).Error(); ofData(err) || !strings.Contains(got, "the disk does not work") || !strings.Contains(got, AdviceRejoin) {
			t.Errorf("%v: %s", err, got)
		}
	}
	if err := readHead(dir); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("what cannot be read: %v", err)
	}
	if got := d.Unusable(inUse(boltFile), errors.New("damaged")).Error(); !strings.Contains(got, "raft.db: another process has this file open") || !strings.Contains(got, "is intact") {
		t.Error(got)
	}
	d.Close()
}

// unreadable is a log store that fails to read.
type unreadable struct {
	logStore
	err error
}

func (u unreadable) GetLog(uint64, *raft.Log) error { return u.err }

// TestEntryThatIsRefused: a running node that cannot read an entry calls the entry damaged only if the system has read it.
func TestEntryThatIsRefused(t *testing.T) {
	for cause, damaged := range map[error]bool{syscall.EIO: false, syscall.ESTALE: false, syscall.ENOMEM: false, errEntry: true} {
		var fatal error
		g := &Log{logStore: unreadable{err: fmt.Errorf("read: %w", cause)}, hooks: Hooks{Logger: slog.New(slog.DiscardHandler), Fatal: func(err error) { fatal = err }}}
		if err := g.Read(1, &raft.Log{}); err == nil || fatal == nil || strings.Contains(fatal.Error(), AdviceRejoin) != damaged {
			t.Errorf("%v: %v", cause, fatal)
		}
	}
}

// TestFileSizeLimit: a limit of the process keeps the log from growing. The error does not blame the disk.
func TestFileSizeLimit(t *testing.T) {
	for cause, want := range map[error]string{syscall.EFBIG: "ulimit -f", syscall.EIO: "repair the disk"} {
		if err := notWritten("the log", &os.PathError{Op: "write", Path: "x", Err: cause}); !errors.Is(err, cause) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", cause, err)
		}
	}
}

// TestDataInUse: if another process has locked a database of bbolt, the start says so within a few seconds, and does not call the data
// damaged.
func TestDataInUse(t *testing.T) {
	dir := t.TempDir()
	d, err := openDir(dir, LogWAL)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Finish("", false); err != nil {
		t.Fatal(err)
	}
	d.Close()
	for _, name := range []string{boltFile, walDir + "/" + metadb.FileName} {
		for kind, how := range map[string]int{"alone": syscall.LOCK_EX, "shared": syscall.LOCK_SH} {
			f, err := os.Open(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Flock(int(f.Fd()), how); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				d, err := openDir(dir, LogWAL)
				if err == nil {
					d.Close()
				}
				ended <- err
			}()
			select {
			case err = <-ended:
			case <-time.After(5 * time.Second):
				f.Close()
				t.Errorf("%s, %s: the start waits for ever; then %v", name, kind, <-ended)
				continue
			}
			f.Close()
			if err == nil || !strings.Contains(err.Error(), filepath.Base(name)+": another process has this file open; what it holds is intact") {
				t.Errorf("%s, %s: %v", name, kind, err)
			}
		}
	}
}

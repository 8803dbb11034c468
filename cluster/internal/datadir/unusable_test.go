package datadir

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestDataThatCannotBeOpened: if a lack of rights or of files, or another process, is why a directory cannot be used, the error does
// not call the data damaged, and does not tell the operator to throw it away.
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
	if got := d.Unusable(errInUse, errors.New("damaged")).Error(); !strings.Contains(got, "another process has raft.db open") || !strings.Contains(got, "is intact") {
		t.Error(got)
	}
	d.Close()
}

// TestFileSizeLimit: not the disk is to blame when a limit of the process keeps the log from growing.
func TestFileSizeLimit(t *testing.T) {
	for cause, want := range map[error]string{syscall.EFBIG: "ulimit -f", syscall.EIO: "repair the disk"} {
		if err := notWritten("the log", &os.PathError{Op: "write", Path: "x", Err: cause}); !errors.Is(err, cause) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", cause, err)
		}
	}
}

package server

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestACLSaveRemovesLeftovers: ACL SAVE deletes old unfinished files of crashed ACL SAVEs, and nothing else.
func TestACLSaveRemovesLeftovers(t *testing.T) {
	_, c, path, _ := fileServer(t, "")
	dir := filepath.Dir(path)
	real := filepath.Join(t.TempDir(), "real[1].acl") // a shell would take this name for a pattern
	if err := os.Rename(path, real); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, path); err != nil {
		t.Fatal(err)
	}
	at := filepath.Dir(real)
	for name, old := range map[string]struct{ age, stays bool }{
		filepath.Join(at, ".real[1].acl.tmp-123"):        {age: true},
		filepath.Join(at, ".real[1].acl.tmp-4000000000"): {age: true},
		filepath.Join(at, ".real[1].acl.tmp-124"):        {stays: true}, // another client's ACL SAVE may be writing it
		filepath.Join(at, ".real[1].acl.tmp-x"):          {age: true, stays: true},
		filepath.Join(at, ".real1.acl.tmp-123"):          {age: true, stays: true},
		filepath.Join(at, "real[1].acl.tmp-123"):         {age: true, stays: true},
		filepath.Join(dir, ".users.acl.tmp-123"):         {age: true, stays: true}, // named after the link, not after its target
	} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if then := time.Now().Add(-2 * leftoverAge); old.age {
			if err := os.Chtimes(name, then, then); err != nil {
				t.Fatal(err)
			}
		}
		defer func() {
			if _, err := os.Lstat(name); (err == nil) != old.stays {
				t.Errorf("%s: %v", name, err)
			}
		}()
	}
	c.do("ACL SAVE", "+OK\r\n")
}

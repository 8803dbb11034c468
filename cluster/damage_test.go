package cluster

import (
	"context"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// flip changes a bit in the middle of a file.
func flip(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	overwrite(t, path, b)
}

// If the newest snapshot is damaged, the one before it and the log make it good.
func TestDamagedSnapshotFallsBack(t *testing.T) {
	eachLogStore(t, func(t *testing.T, logStore string) {
		whole := filled(t, logStore)
		for name, spoil := range map[string]func(dir string){
			"a bit of the state":       func(dir string) { flip(t, filepath.Join(dir, stateFile)) },
			"the state cut":            func(dir string) { truncate(t, filepath.Join(dir, stateFile), 100) },
			"no state":                 func(dir string) { os.Remove(filepath.Join(dir, stateFile)) },
			"a bit of the description": func(dir string) { flip(t, filepath.Join(dir, metaFile)) },
			"the description cut":      func(dir string) { truncate(t, filepath.Join(dir, metaFile), 1) },
			"no description":           func(dir string) { os.Remove(filepath.Join(dir, metaFile)) },
		} {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			spoil(newestSnapshot(t, dir))
			n := openNode(t, dataConfig(t, dir))
			if got := lines(t, n, "GET last", "DBSIZE", "STRLEN k0", "STRLEN k59"); got != "v 61 2000 2000" {
				t.Errorf("%s: %q", name, got)
			}
			if err := n.Snapshot(); err != nil {
				t.Error(err)
			}
			closeNode(t, n)
			closeNode(t, openNode(t, dataConfig(t, dir)))
		}
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
		list, err := filepath.Glob(filepath.Join(dir, snapshotDir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range list {
			flip(t, filepath.Join(path, stateFile))
		}
		mustNotOpen(t, dir, "backup", "join")
	})
}

// A log that a snapshot stands for cannot be without it: the node would have
// forgotten what it has acknowledged.
func TestEmptyLogNeedsItsSnapshot(t *testing.T) {
	dir := t.TempDir()
	logs := raftLogger(dataConfig(t, dir).Logger)
	st, err := openStorage(dir, "n1", LogWAL, logs)
	if err != nil {
		t.Fatal(err)
	}
	keepSnapshot(t, st.snaps, 10, 1)
	keepSnapshot(t, st.snaps, 500, 2)
	if err := errors.Join(st.log.StoreLogs(entries(1, 20)), st.log.DeleteRange(1, 20), st.finish("", false)); err != nil {
		t.Fatal(err)
	}
	st.close()
	flip(t, filepath.Join(newestSnapshot(t, dir), stateFile))
	mustNotOpen(t, dir, "entry 500", "backup")
}

// What a newer version wrote is not damage: nothing falls back, nothing is
// deleted, and the error says what to do.
func TestNewerFormatsSayUpgrade(t *testing.T) {
	whole := filled(t, LogWAL)
	for name, change := range map[string]func(dir string){
		"log.last": func(dir string) {
			b := mark{7, 0}.encode()
			b[4] = markVersion + 1
			overwrite(t, filepath.Join(dir, markFile), sealed32(b[:len(b)-4]))
		},
		"snapshot": func(dir string) {
			meta := snapshotMeta{Format: metaFormat + 1}
			b, err := meta.encode()
			if err != nil {
				t.Fatal(err)
			}
			overwrite(t, filepath.Join(newestSnapshot(t, dir), metaFile), b)
		},
		"node.json": func(dir string) {
			overwrite(t, filepath.Join(dir, nodeFile), []byte(`{"format":2,"id":"n1"}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			change(dir)
			mustNotOpen(t, dir, "upgrade")
		})
	}
}

// sealed32 puts the checksum behind bytes.
func sealed32(b []byte) []byte {
	sum := crc32.Checksum(b, markTable)
	return append(slices.Clone(b), byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
}

// The bytes on disk and between nodes. If one of them changes, its version has
// to, and the old form still has to be read.
func TestGoldenFormats(t *testing.T) {
	meta := snapshotMeta{Format: 1, CRC: []byte{1, 2}, SnapshotMeta: raft.SnapshotMeta{Version: 1, ID: "2-300-4", Index: 300, Term: 2, Size: 9,
		Configuration: raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "h:1"}}}, ConfigurationIndex: 5}}
	metaBytes, err := meta.encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ got, want string }{
		"log.last": {hex.EncodeToString(mark{300, 7}.encode()), "4c415354020000002c0100000000000007000000000000007e3e4194"},
		"meta.json": {string(metaBytes), `{"Version":1,"ID":"2-300-4","Index":300,"Term":2,"Peers":null,"Configuration":{"Servers":[{"Suffrage":0,"ID":"n1","Address":"h:1"}]},` +
			`"ConfigurationIndex":5,"Size":9,"CRC":"AQI=","Format":1}` + "\n10fc19d2\n"},
	} {
		if test.got != test.want {
			t.Errorf("%s: the format has changed:\n%s\nwant\n%s", name, test.got, test.want)
		}
	}
	if m, err := decodeMark(sealed32([]byte{44, 1, 0, 0, 0, 0, 0, 0})); err != nil || m != (mark{last: 300}) {
		t.Errorf("log.last of version 1: %v, %v", m, err)
	}
	line := metaBytes[:strings.IndexByte(string(metaBytes), '\n')+1]
	old := strings.Replace(string(line), `,"Format":1`, "", 1)
	if m, err := decodeMeta([]byte(old)); err != nil || m.Index != 300 {
		t.Errorf("meta.json of hashicorp/raft: %v", err)
	}
}

// TestReadsOfRestartingMembers restarts all members at once. Whoever reads before
// the state is whole waits, or is told that there is no leader; nobody is told
// that a key is absent.
func TestReadsOfRestartingMembers(t *testing.T) {
	c := startThree(t, func(cfg *Config) { cfg.FailoverWait = 5 * time.Second })
	c.start(0, 1, 2)
	c.expect(c.leader(), "OK", "SET k v")
	for range 3 {
		for i := range 3 {
			c.stop(i)
		}
		var readers sync.WaitGroup
		for i := range 3 {
			n, err := Open(c.cfg[i])
			if err != nil {
				t.Fatal(err)
			}
			c.nodes[i] = n
			readers.Go(func() {
				for n.WaitReady(shortly(t, time.Millisecond)) != nil {
					if got := lines(t, n, "GET k"); got != "v" && got != "-CLUSTERDOWN" {
						t.Errorf("n%d: before it is ready a read is told %q", i+1, got)
						return
					}
				}
				if got := lines(t, n, "GET k"); got != "v" {
					t.Errorf("n%d: the first read is told %q", i+1, got)
				}
			})
		}
		readers.Wait()
		c.leader()
	}
}

func shortly(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

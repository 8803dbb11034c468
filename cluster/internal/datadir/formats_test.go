package datadir

import (
	"encoding/hex"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// A node whose log was emptied behind a snapshot does not start without that
// snapshot: it would have forgotten what it has acknowledged.
func TestEmptyLogNeedsItsSnapshot(t *testing.T) {
	dir := t.TempDir()
	st, err := openDir(dir, LogWAL)
	if err != nil {
		t.Fatal(err)
	}
	keepSnapshot(t, st.Snapshots, 10, 1)
	keepSnapshot(t, st.Snapshots, 500, 2)
	if err := errors.Join(st.Log.StoreLogs(entries(1, 20)), st.Log.DeleteRange(1, 20), st.Finish("", false)); err != nil {
		t.Fatal(err)
	}
	newest := newestSnapshot(dir, st.Snapshots)
	st.Close()
	flip(t, filepath.Join(newest, stateFile))
	mustNotOpen(t, dir, "entry 500", "backup")
}

// Files that a newer version wrote are not damaged. No older file takes their place, nothing is deleted, and the error says what
// to do.
func TestNewerFormatsSayUpgrade(t *testing.T) {
	whole := t.TempDir()
	st, err := openDir(whole, LogWAL)
	if err != nil {
		t.Fatal(err)
	}
	keepSnapshot(t, st.Snapshots, 10, 1)
	keepSnapshot(t, st.Snapshots, 20, 1)
	if err := errors.Join(st.Log.StoreLogs(entries(1, 30)), st.Finish("", false)); err != nil {
		t.Fatal(err)
	}
	newest := st.Snapshots.Newest().ID
	st.Close()
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
			overwrite(t, filepath.Join(dir, snapshotDir, newest, metaFile), b)
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

// If the bytes of a file's format change, the version of the format must change, too, and the old format must still be read.
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

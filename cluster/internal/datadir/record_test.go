package datadir

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestGoldenNodeFile: every form of node.json that was ever written is read, and is written again with the same fields.
func TestGoldenNodeFile(t *testing.T) {
	for _, test := range []struct {
		recorded string
		want     nodeRecord
	}{
		{`{"format":1,"id":"n1","log":"wal","cluster":"blue"}`, nodeRecord{Format: 1, ID: "n1", Log: LogWAL, Cluster: "blue"}},
		{`{"format":1,"id":"n1","log":"bolt","new":true}`, nodeRecord{Format: 1, ID: "n1", Log: LogBolt, New: true}},
		{`{"format":1,"id":"n4","log":"wal","joining":true}`, nodeRecord{Format: 1, ID: "n4", Log: LogWAL, Joining: true}},
		{`{"format":1,"id":"n1","log":"wal","cluster":"blue","directory":"A1","peers":{"n2":{"directory":"B2","since":7}}}`,
			nodeRecord{Format: 1, ID: "n1", Log: LogWAL, Cluster: "blue", Directory: "A1", Peers: map[string]metPeer{"n2": {"B2", 7}}}},
	} {
		var got nodeRecord
		if err := json.Unmarshal([]byte(test.recorded), &got); err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s is read as %+v, %v", test.recorded, got, err)
		}
		st := &Dir{path: t.TempDir(), disk: SystemDisk()}
		if err := st.mark(test.want); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(st.path, nodeFile))
		if want := test.recorded[:len(test.recorded)-1] + `,"sum":"`; err != nil || !strings.HasPrefix(string(b), want) || len(b) != len(want)+len(noSum)+3 {
			t.Errorf("%+v is written as %s, %v; the format has changed, so its number must", test.want, b, err)
		}
		for _, file := range []string{string(b), test.recorded + "\n"} { // with a checksum, and without one, as version 0.1.0 wrote it
			if got, ok := decodeRecord([]byte(file)); !ok || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%s is read as %+v, %v", file, got, ok)
			}
		}
	}
}

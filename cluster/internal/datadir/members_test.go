package datadir

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

// A member's directory is forgotten if a configuration lacks the member, or a snapshot may have skipped its removal. Replayed
// configurations remove nothing.
func TestWhoIsRemembered(t *testing.T) {
	st := &Dir{path: t.TempDir(), disk: SystemDisk(), rec: nodeRecord{ID: "n1", Log: LogWAL, Directory: "one"}}
	known := func(when string, want ...string) {
		t.Helper()
		var got []string
		for id, p := range st.rec.Peers {
			got = append(got, id+" "+p.Directory)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: knows %q, want %q", when, got, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(st.Remember("n2", "two", 1))
	must(st.Remember("n3", "three", 1))
	if err := st.Remember("n3", "other", 1); err == nil {
		t.Error("n3 is met with two directories")
	}
	must(st.ForgetRemoved(5, []string{"n1", "n2"}))
	known("n3 is removed", "n2 two")
	must(st.ForgetRemoved(6, []string{"n1", "n2", "n3"}))
	must(st.Remember("n3", "other", 6))
	known("n3 is new", "n2 two", "n3 other")
	must(st.ForgetRemoved(5, []string{"n1", "n2"}))
	must(st.ForgetRemoved(6, []string{"n1", "n2", "n3"}))
	must(st.ForgetBefore(6))
	known("after a restart", "n2 two", "n3 other")
	must(st.ForgetBefore(7))
	known("a snapshot has a later configuration")

	must(st.Remember("n2", "two", 7))
	b, err := os.ReadFile(filepath.Join(st.path, nodeFile))
	must(err)
	var kept nodeRecord
	must(json.Unmarshal(b, &kept))
	if kept.Sum == "" {
		t.Error("what is kept has no checksum")
	}
	kept.Sum = "" // it is made when the record is written
	if !reflect.DeepEqual(kept, st.rec) || kept.Peers["n2"] != (metPeer{"two", 7}) {
		t.Errorf("kept is %+v of %+v", kept, st.rec)
	}
}

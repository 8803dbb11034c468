package redissuite

import (
	"fmt"
	"strings"
	"testing"
)

// TestReadReport: the tests in the suite's output are counted, although the output has colours. The lines after a failure belong to
// that failure.
func TestReadReport(t *testing.T) {
	r := ReadReport("Starting test server at port 1\n[ready]: 5\n\x1b[1;37;49mTesting unit/x\x1b[0m\n" +
		"[\x1b[0;32;49mok\x1b[0m]: one: (two) (3 ms)\n[\x1b[0;33;49mskip\x1b[0m]: three\n[\x1b[0;36;49mignore\x1b[0m]: four: Not supported on external server\n" +
		"[ignore]: Tag: needs:repl denied\n[ignore]: five: Tag: needs:repl denied\n[\x1b[0;31;49merr\x1b[0m]: six in tests/unit/x.tcl\nExpected '1'\n[ok]: seven (0 ms)\n" +
		"[exception]: Executing test client: ERR x.\nERR x\n[1/1 \x1b[0;33;49mdone\x1b[0m]: unit/x (2 seconds)\n\n                   The End\n\n*** [err]: six in tests/unit/x.tcl\n")
	got := fmt.Sprintf("%q %q %q %v %t", r.Passed, r.Skipped, r.Failed, r.Ignored, r.Done)
	want := `["one: (two)" "seven"] ["three"] ["six in tests/unit/x.tcl\nExpected '1'" "Executing test client: ERR x.\nERR x"] map[Not supported on external server:1 Tag: needs:repl denied:2] true`
	if got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	if r := ReadReport("[ok]: one (1 ms)\n"); r.Done {
		t.Error("a suite that was cut off counts as done")
	}
}

func TestReadList(t *testing.T) {
	units, err := ReadList(strings.NewReader("# text\nunit/a quick within\n\tone => two\n\nunit/b: why\n"))
	if got := fmt.Sprintf("%+v %v", units, err); got != "[{Name:unit/a Quick:true Within:true Absent: Skips:[{Test:one Reason:two}]} {Name:unit/b Quick:false Within:false Absent:why Skips:[]}] <nil>" {
		t.Error(got)
	}
	for _, bad := range []string{"unit/a slow", "unit/a: ", "\tone => two", "unit/a\n\tone", "unit/a\n\tone => ", "unit/a: why\n\tone => two"} {
		if units, err := ReadList(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is %+v", bad, units)
		}
	}
}

// TestSectionOfTheList: every file in suite.txt has been run, and its tests have been counted.
func TestSectionOfTheList(t *testing.T) {
	if _, err := Section("."); err != nil {
		t.Error(err)
	}
}

package compatibility

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Sights are read as they were written, and a row of the document says how often they were right.
func TestSights(t *testing.T) {
	sights := []Sight{
		{"a", "1", "plain", 1, "plain", "poller", true, true, true, true, true, true},
		{"a", "1", "plain", 3, "plain", "", true, true, false, false, true, false},
		{"b", "2", "plain", 1, "redisson", "", true, false, false, false, false, false},
	}
	dir := t.TempDir()
	if err := WriteSights(filepath.Join(dir, "sight", "x.jsonl"), []Sight{sights[2], sights[1], sights[0]}); err != nil {
		t.Fatal(err)
	}
	got, err := ReadSights(filepath.Join(dir, "sight"))
	if err != nil || !slices.Equal(got, sights) {
		t.Errorf("%v, %v", got, err)
	}
	var b strings.Builder
	writeSights(&b, got)
	want := "| a | 1 | plain | yes | yes | 1 of 2 | 1 of 2 | 1 of 2 | not shown, poller |\n| b | 2 | redisson | yes | no | no | not known | no | not shown |\n"
	if !strings.HasSuffix(b.String(), want) {
		t.Errorf("%s, want\n%s", b.String(), want)
	}
}

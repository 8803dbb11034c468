package store

import (
	"strings"
	"testing"
	"time"
)

// If work is stopped before it has used the whole time limit of the node, the error says so.
func TestShortLimit(t *testing.T) {
	for _, c := range []struct {
		full, had time.Duration
		told      string
	}{
		{0, 0, ""}, {5 * time.Second, 5 * time.Second, ""}, {5 * time.Second, 4900 * time.Millisecond, ""},
		{5 * time.Second, 500 * time.Millisecond, "500ms of 5s"}, {time.Second, -time.Second, "0s of 1s"},
	} {
		if got := ShortLimit(c.full, c.had); !strings.Contains(got, c.told) || (got == "") != (c.told == "") {
			t.Errorf("%v of %v: %q", c.had, c.full, got)
		}
	}
}

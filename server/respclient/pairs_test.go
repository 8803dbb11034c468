package respclient

import (
	"maps"
	"testing"
)

func TestPairs(t *testing.T) {
	got, err := Pairs([]any{"role", "leader", "term", int64(3)})
	if want := map[string]string{"role": "leader", "term": "3"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []any{nil, "role", []any{"role"}} {
		if got, err := Pairs(bad); err == nil {
			t.Errorf("%v: %v", bad, got)
		}
	}
}

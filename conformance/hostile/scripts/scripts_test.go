package scripts

import (
	"strings"
	"testing"
)

// TestOneSeedOneScript: a seed makes the same script again, another seed another one, and
// no script has a production left in it.
func TestOneSeedOneScript(t *testing.T) {
	seen := map[string]uint64{}
	for seed := range uint64(2000) {
		s := Generate(seed)
		if again := Generate(seed); again.Text != s.Text || strings.Join(again.Args, " ") != strings.Join(s.Args, " ") || again.Loose != s.Loose {
			t.Fatalf("seed %d made two scripts:\n%s\n%s", seed, s.Text, again.Text)
		}
		if strings.Contains(s.Text, "$") {
			t.Fatalf("seed %d left a production:\n%s", seed, s.Text)
		}
		if other, ok := seen[s.Text]; ok {
			t.Logf("seeds %d and %d made one script", other, seed)
		}
		seen[s.Text] = seed
	}
	if len(seen) < 1900 {
		t.Fatalf("2000 seeds made only %d scripts", len(seen))
	}
}

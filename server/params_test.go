package server

import (
	"os"
	"strings"
	"testing"
)

// docs/operations.md names each parameter that has an effect, and says of no other that
// it has.
func TestParametersWithAnEffectAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "### Parameters")
	section, _, _ = strings.Cut(section, "All other names")
	ts := newTestServer(t, nil)
	p := ts.params
	for name, def := range p.defs {
		acts := def.apply != nil || def.shared || name == "requirepass"
		if named := strings.Contains(section, "`"+name+"`"); name == def.name && named != acts {
			t.Errorf("%s has an effect: %v; docs/operations.md says so: %v", name, acts, named)
		}
	}
}

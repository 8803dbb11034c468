package server

import (
	"os"
	"strings"
	"testing"

	"lockstep/store"
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
		acts := def.apply != nil || def.shared || def.tls != nil || name == "requirepass"
		if named := strings.Contains(section, "`"+name+"`"); name == def.name && named != acts {
			t.Errorf("%s has an effect: %v; docs/operations.md says so: %v", name, acts, named)
		}
	}
}

// TestFormsWaitForOlderNodes: a node of version 0.1.0 would keep other forms, so nobody sets
// those parameters while one may be there.
func TestFormsWaitForOlderNodes(t *testing.T) {
	for _, older := range []bool{true, false} {
		txn := store.New().Begin(store.Time{}, 1, store.Env{Older: func() bool { return older }})
		for _, def := range forms() {
			c := &store.Ctx{Txn: txn}
			for _, arg := range []string{"config", "set", store.ParamMaxEntry, "2mb", def.name, "7"} {
				c.Args = append(c.Args, []byte(arg))
			}
			if r := runConfigSet(c); r.IsError() != older {
				t.Errorf("%s, older %t: %v", def.name, older, r)
			}
			if _, set := txn.Config(def.name); set == older {
				t.Errorf("%s, older %t: set is %t", def.name, older, set)
			}
		}
	}
}

package scripts

import (
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// TestSame: replies are the same if they differ only in addresses, or only in the place at which the stack overflowed. Any other
// difference counts.
func TestSame(t *testing.T) {
	reply := func(texts ...string) transcript.Value {
		v := transcript.Value{Type: '*'}
		for _, text := range texts {
			v.Elems = append(v.Elems, transcript.Value{Type: '$', Text: text})
		}
		return v
	}
	for _, c := range []struct {
		here, redis transcript.Value
		same        bool
	}{
		{reply("a"), reply("a"), true},
		{reply("a"), reply("b"), false},
		{reply("a"), reply("a", "a"), false},
		{reply("2 true 'table: 0x7f0000000040'"), reply("2 true 'table: 0x7f13b622b160'"), true},
		{reply("function: 0x7f0000000040 thread: 0x1"), reply("function: 0x55d0 thread: 0x7f13b622b160"), true},
		{reply("table: 0x7f0000000040table: 0x7f0000000040"), reply("table: 0x7fc4ec428cf0table: 0x7fc4ec428cf0"), true},
		{reply("userdata: 0x7f0000000040"), reply("table: 0x7f0000000040"), false},
		{reply("table: 0x7f0000000040 x"), reply("table: 0x7f0000000040 y"), false},
		{reply("value: 0x40"), reply("value: 0x41"), false},
		{transcript.Value{Type: '-', Text: "ERR table: 0x40"}, transcript.Value{Type: '-', Text: "ERR table: 0x41"}, true},
		{reply("false 'user_script:19: stack overflow'"), reply("false 'err_handler_def:4: stack overflow'"), true},
		{reply("false 'user_script:19: stack overflow'"), reply("false 'user_script:19: C stack overflow'"), false},
		{transcript.Value{Type: '+', Text: "x"}, transcript.Value{Type: '$', Text: "x"}, false},
	} {
		if Same(c.here, c.redis) != c.same {
			t.Errorf("Same(%q, %q) is not %v", c.here.Lines(), c.redis.Lines(), c.same)
		}
	}
}

// TestOneSeedOneScript: the same seed makes the same script, and another seed makes another one. No script contains an unreplaced
// $NAME.
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

package server

import (
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/conformance/transcript"
	"github.com/lockstep-io/lockstep/store"
)

// TestParametersWithAnEffectAreDocumented: docs/operations.md lists exactly the parameters that have an effect.
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

// TestFormsWaitForOlderNodes: the leader refuses the parameters of the compact forms while a node of version 0.1.0 might ignore them.
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

// TestFormsAreNotSentToOlderNodes: while some node may run version 0.1.0, no node sends the parameters of the compact forms to the leader.
// A leader of that version would answer OK, but no node would follow them.
func TestFormsAreNotSentToOlderNodes(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	for _, older := range []bool{true, false} {
		ts.fake.mayBeOld.Store(older)
		for _, def := range forms() {
			want := "+OK\r\n"
			if older {
				want = "-" + string(errParam(def.name, faultOlder)) + "\r\n"
			}
			c.do("CONFIG SET max-entry-size 3mb "+def.name+" 7", want)
			if _, set := ts.fake.Config(def.name); set == older {
				t.Errorf("%s, older %t: set is %t", def.name, older, set)
			}
		}
		if _, set := ts.fake.Config(store.ParamMaxEntry); set == older {
			t.Errorf("older %t: the other parameter is set: %t", older, set)
		}
	}
}

// TestPasswordWaitsForOlderNodes: a node sends no requirepass to a leader of version 0.1.0, which would answer OK and set none.
func TestPasswordWaitsForOlderNodes(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	ts.fake.older.Store(true)
	for _, password := range []string{"secret", `""`} {
		c.do("CONFIG SET max-entry-size 3mb requirepass "+password, "-"+string(errPasswordOlder)+"\r\n")
	}
	if _, set := ts.fake.Config(store.ParamMaxEntry); set {
		t.Error("the refused command has set another parameter")
	}
	ts.dial(t).do("PING", "+PONG\r\n")
	ts.fake.older.Store(false)
	c.do("CONFIG SET requirepass secret", "+OK\r\n")
	ts.dial(t).do("AUTH secret", "+OK\r\n")
}

// TestNewCommandsWaitForOlderNodes: a command that version 0.1.0 does not know is refused while a node runs that version, because a leader
// of that version would end the link to the node that has sent it.
func TestNewCommandsWaitForOlderNodes(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	ts.fake.knownOlder.Store(true)
	refused := "-" + string(errCommandOlder) + "\r\n"
	for _, line := range []string{"LOCK.TOKEN l", "LOCK.CHECK l 1", "LOCK.FENCE l 1", "LOCK.ACQUIRE l me PX 1000", "LOCK.ACQUIRE l me PX 1000 WAIT 1000",
		"LOCK.RENEW l me PX 1000", "LOCK.RELEASE l me", "DELIFEQ l me", "DELEX l"} {
		c.do(line, refused)
	}
	c.do("SET l me", "+OK\r\n")
	c.do("MULTI", "+OK\r\n")
	c.do("DELIFEQ l me", refused)
	c.do("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
	ts.fake.knownOlder.Store(false)
	c.do("DELIFEQ l me", ":1\r\n")
}

// TestPatternsForParametersAreBounded: CONFIG GET refuses very many patterns, because matching them could take minutes. Names without
// wildcards may be many.
func TestPatternsForParametersAreBounded(t *testing.T) {
	ts := newTestServer(t, nil)
	get := func(pattern string, times int) (values []store.Reply, ok bool) {
		return ts.params.get(slices.Repeat([][]byte{[]byte(pattern)}, times), func(defs []*paramDef) []string { return make([]string, len(defs)) })
	}
	for _, pattern := range []string{"x*", "*" + strings.Repeat("[a-z]", 30) + "*" + strings.Repeat("?", 8) + "_"} {
		if _, ok := get(pattern, 1_000_000); ok {
			t.Errorf("a million patterns %s are looked for", pattern)
		}
	}
	for _, pattern := range []string{"maxmemory", "maxmemor?", "MAXMEMOR[y]"} {
		if values, ok := get(pattern, 100); !ok || len(values) != 2 {
			t.Errorf("a hundred times %s: %v, %v", pattern, values, ok)
		}
	}
	if values, ok := get("timeout", 100_000); !ok || len(values) != 2 {
		t.Errorf("a name that is given 100,000 times: %v, %v", values, ok)
	}
	c := ts.dial(t)
	c.send(array(append([]string{"CONFIG", "GET"}, slices.Repeat([]string{"x*"}, 10_000)...)...))
	c.expect("-" + string(errManyPatterns) + "\r\n")
}

// TestMaxMemoryBeyondTheMachineIsWarnedOf: the log warns of a maxmemory beyond the machine's memory, because the kernel would end the node
// first.
func TestMaxMemoryBeyondTheMachineIsWarnedOf(t *testing.T) {
	for _, has := range []int64{0, 1 << 30} {
		log := new(lines)
		ts := newTestServer(t, func(c *Config) { c.Memory, c.Log = has, slog.New(slog.NewTextHandler(log, nil)) })
		c := ts.dial(t)
		c.do("CONFIG SET maxmemory 1gb timeout 5", "+OK\r\n")
		ts.WarnOfMaxMemory(ts.MaxMemory())
		if log.count("maxmemory") > 0 {
			t.Error("what the machine has is called too much")
		}
		c.do("CONFIG SET timeout 0 maxmemory 1073741825", "+OK\r\n")
		if n := log.count("maxmemory=1073741825 memory=1073741824"); n != min(int(has), 1) {
			t.Errorf("memory %d: %d warnings", has, n)
		}
	}
}

// TestConfigGetAsksOnce: CONFIG GET asks the leader once for all its parameters, because without a leader each question waits until
// the failover is over.
func TestConfigGetAsksOnce(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	c.do("CONFIG SET maxmemory 100mb notify-keyspace-events KEA", "+OK\r\n")
	asked := func() int {
		ts.fake.mu.Lock()
		defer ts.fake.mu.Unlock()
		return len(ts.fake.batch)
	}
	begin := asked()
	c.ask("CONFIG", "GET", "maxmemory")
	once := asked() - begin // includes the question about the client's rights
	all := c.ask("CONFIG", "GET", "*")
	if n := asked() - begin - once; n != once {
		t.Errorf("the leader is asked %d times for all parameters, and %d times for one", n, once)
	}
	for name, want := range map[string]string{"maxmemory": "104857600", "notify-keyspace-events": "AKE", "cluster-enabled": "no", "hash-max-listpack-entries": "512"} {
		i := slices.IndexFunc(all.Elems, func(r transcript.Value) bool { return r.Text == name })
		if i < 0 || all.Elems[i+1].Text != want {
			t.Errorf("%s is not %s", name, want)
		}
	}
	ts.fake.refusal.Store(cluster.ErrClusterDown)
	c.do("CONFIG GET maxmemory", "*2\r\n$9\r\nmaxmemory\r\n$9\r\n104857600\r\n")
}

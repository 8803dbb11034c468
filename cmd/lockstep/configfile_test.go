package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

func configOf(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "node.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestConfigFile: the command line is stronger than the environment, and that is stronger than the file.
func TestConfigFile(t *testing.T) {
	path := configOf(t, `
id = "from-the-file"
listen = "127.0.0.1:1"
data = 'd1'
failover-wait = "3s"
maxclients = 500
lease-reads = true
without = ["io_uring", "direct-io"]
requirepass = "from the file"
`)
	t.Setenv("LOCKSTEP_LISTEN", "127.0.0.1:2")
	t.Setenv("LOCKSTEP_DATA", "d2")
	t.Setenv("LOCKSTEP_CONFIG", path)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("from a file of its own\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var o options
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	o.define(fs)
	if _, err := parseWithFile(fs, []string{"--data", "d3", "--requirepass-file", secret}); err != nil {
		t.Fatal(err)
	}
	if o.id != "from-the-file" || o.listen != "127.0.0.1:2" || o.data != "d3" || o.failoverWait.Seconds() != 3 || o.maxClients != 500 || !o.leaseReads ||
		!o.without.has(ioUring) || !o.without.has(directIO) || o.password != "from a file of its own" {
		t.Errorf("%+v", o)
	}
}

// manyKeys is a file with too many keys.
func manyKeys() string {
	var b strings.Builder
	for i := range mostKeys + 1 {
		fmt.Fprintf(&b, "k%d = 1\n", i)
	}
	return b.String()
}

// TestConfigFaults: a fault names the file, the line and what to do, and no secret.
func TestConfigFaults(t *testing.T) {
	for text, want := range map[string][]string{
		"id = \"n1\"\nlisten = \"a":                          {":2: "},
		"id = \"n1\"\n\nlisen = \"127.0.0.1:1\"":             {":3: lisen: ", "did you mean listen?"},
		"colour = \"red\"":                                   {":1: colour: ", "lockstep help"},
		"[tls]\ncert-file = \"x\"":                           {":1: tls: ", "[parameters]"},
		"[[parameters]]\ntimeout = \"1\"":                    {":1: parameters: ", "table"},
		"parameters = 5":                                     {":1: parameters: ", "table"},
		"failover-wait = \"3\"":                              {":1: failover-wait: ", "duration"},
		"lease-reads = 5.5":                                  {":1: lease-reads: ", "want a text, a number, true or false"},
		"maxclients = \"many\"":                              {":1: maxclients: ", "whole number"},
		"config = \"other.toml\"":                            {":1: config: "},
		"id = \"a\"\nid = \"b\"":                             {":2: "},
		"requirepass = \"geheim\"\nrequirepass-file = \"x\"": {":2: requirepass-file: ", "twice"},
		"[parameters]\nnotify-keyspace-events = \"KEA\"":     {"notify-keyspace-events", "whole cluster"},
		"[parameters]\nrequirepass = \"geheim\"":             {"requirepass", "above [parameters]"},
		"[parameters]\ntimeout = \"soon\"":                   {"timeout", "integer"},
		"[parameters]\nport = 1":                             {"port", "can't be changed"},
		"id = \"n1\"\n[parameters]\nsloglog-max-len = 5":     {"sloglog-max-len"},
		"aclfile = \"/nowhere/users.acl\"":                   {"/nowhere/users.acl"},
		"tls-cert-file = \"/nowhere/c\"\ntls-key-file = \"/nowhere/k\"\ntls-listen = \"127.0.0.1:1\"": {"/nowhere/c"},
		"peer-secret-file = \"/nowhere/secret\"":                                                      {"/nowhere/secret"},
		"bridge = \"redis://:geheim@host:port\"":                                                      {"--bridge"},
		"id = \"n1\"\nrequirepass = geheim":                                                           {":2: ", "requirepass"},
		"id = \"n1\"\nrequirepass = \"x\" geheim":                                                     {":2: "},
		"[parameters]\nmaxclients = 500":                                                              {":2: maxclients: ", "above [parameters]"},
		"[parameters]\nprotected-mode = \"no\"":                                                       {":2: protected-mode: ", "above [parameters]"},
		manyKeys():                                                                                    {"keys, more than"},
		"peers = \"n1\"":                                                                              {"--peers"},
		strings.Repeat("# long\n", mostConfig/7+1):                                                    {"larger than 1 MB"},
		"id = \"\xff\"":                                                                               {":1: "},
	} {
		var errs strings.Builder
		code := run([]string{"--config", configOf(t, text), "--config-check", "--http-listen", ""}, io.Discard, &errs)
		for _, w := range want {
			if !strings.Contains(errs.String(), w) {
				t.Errorf("%.60q: no %q in %s", text, w, errs.String())
			}
		}
		if code != exitUsage || strings.Contains(errs.String(), "geheim") {
			t.Errorf("%.60q: exit code %d: %s", text, code, errs.String())
		}
	}
	var out, errs strings.Builder
	if code := run([]string{"--config=" + configOf(t, "id = \"n1\"\n[parameters]\ntimeout = 60\n"), "--config-check"}, &out, &errs); code != exitOK || out.String() != "the configuration is right\n" {
		t.Errorf("exit code %d: %s%s", code, out.String(), errs.String())
	}
	if code := run([]string{"--config", "/nowhere/node.toml"}, io.Discard, &errs); code != exitUsage || !strings.Contains(errs.String(), "/nowhere/node.toml") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

// TestParametersAreWrittenInPlace: comments, order and everything else in the file stay.
func TestParametersAreWrittenInPlace(t *testing.T) {
	pairs := []string{"latency-monitor-threshold", "5", "slowlog-max-len", "99", "client-output-buffer-limit", `normal 0 0 0 "x"`}
	for text, want := range map[string]string{
		"": "\n# Parameters of this node, written by CONFIG REWRITE.\n[parameters]\nlatency-monitor-threshold = \"5\"\nslowlog-max-len = \"99\"\nclient-output-buffer-limit = \"normal 0 0 0 \\\"x\\\"\"\n",
		"# mine\nid = \"n1\" # name\n\n[parameters] # of CONFIG SET\n# few\nSlowlog-Max-Len = 5 # enough\ntimeout = 60\n\n# the end\n": "# mine\nid = \"n1\" # name\n\n[parameters] # of CONFIG SET\n# few\nslowlog-max-len = \"99\" # enough\ntimeout = 60\n\n# the end\nlatency-monitor-threshold = \"5\"\nclient-output-buffer-limit = \"normal 0 0 0 \\\"x\\\"\"\n",
	} {
		got, err := withKeys([]byte(text), parametersTable, pairs)
		if err != nil || string(got) != want {
			t.Errorf("%v: got\n%s\nwant\n%s", err, got, want)
		}
		if again, err := withKeys(got, parametersTable, pairs); err != nil || string(again) != string(got) {
			t.Errorf("%v: the second time\n%s", err, again)
		}
		if _, err := parseConfig("x", got, serveFlags()); err != nil {
			t.Error(err)
		}
	}
}

// TestConfigRewriteLasts: what CONFIG SET has changed is there after a restart, if CONFIG REWRITE has written it. A file that cannot be written stays
// as it is.
func TestConfigRewriteLasts(t *testing.T) {
	node := nodes.Start(t, 1, "--config", configOf(t, "# mine\nlog-level = \"info\"\n\n[parameters]\nslowlog-max-len = 77 # few\n"))[0]
	do := func(want string, args ...string) {
		t.Helper()
		reply, err := node.Do(args...)
		got, _ := reply.(string)
		if list, is := reply.([]any); is && len(list) == 2 {
			got, _ = list[1].(string)
		}
		if err != nil || got != want {
			t.Errorf("%q: %v, %v, want %s", args, reply, err, want)
		}
	}
	do("77", "CONFIG", "GET", "slowlog-max-len")
	do("OK", "CONFIG", "SET", "slowlog-max-len", "128") // the default
	do("OK", "CONFIG", "REWRITE")
	node.Terminate()
	node.Run()
	node.WaitReady()
	do("128", "CONFIG", "GET", "slowlog-max-len")
	do("OK", "CONFIG", "SET", "slowlog-max-len", "99", "latency-monitor-threshold", "5", "maxclients", "600")
	do("OK", "CONFIG", "REWRITE")
	do("OK", "CONFIG", "SET", "slowlog-max-len", "100")
	node.Terminate()
	node.Run()
	node.WaitReady()
	do("99", "CONFIG", "GET", "slowlog-max-len")
	do("5", "CONFIG", "GET", "latency-monitor-threshold")
	do("600", "CONFIG", "GET", "maxclients")
	file := ""
	for _, a := range strings.Fields(must(node.Do("INFO", "server"))) {
		if rest, is := strings.CutPrefix(a, "config_file:"); is {
			file = rest
		}
	}
	text := read(t, file)
	if want := "# mine\nlog-level = \"info\"\nmaxclients = \"600\"\n\n[parameters]\nslowlog-max-len = \"99\" # few\nlatency-monitor-threshold = \"5\"\n"; text != want {
		t.Errorf("the file is\n%s\nwant\n%s", text, want)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if reply, err := node.Do("CONFIG", "REWRITE"); err == nil || !strings.HasPrefix(err.Error(), "ERR Rewriting config file: ") {
		t.Errorf("without its file: %v, %v", reply, err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".lockstep-config-*")); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
	// SIGHUP: parameters and the log level follow, other flags are named, and a broken file changes nothing.
	hangup := func(text, says string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := node.Process().Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		await(t, "the log has "+says, func() bool { return strings.Contains(node.Log(), says) })
	}
	hangup("log-level = \"debug\"\nfailover-wait = \"9s\"\n\n[parameters]\nslowlog-max-len = 55\n", "keys=\"failover-wait, maxclients, parameters.latency-monitor-threshold\"")
	do("55", "CONFIG", "GET", "slowlog-max-len")
	hangup("lisen = 1\n[parameters]\nslowlog-max-len = 1\n", "did you mean listen?")
	do("55", "CONFIG", "GET", "slowlog-max-len")
	hangup("[parameters]\nslowlog-max-len = \"x\"\n", "argument couldn't be parsed into an integer")
	do("55", "CONFIG", "GET", "slowlog-max-len")
	hangup("log-level = \"loud\"\n[parameters]\nslowlog-max-len = 1\n", "loud")
	do("55", "CONFIG", "GET", "slowlog-max-len")
	hangup("failover-wait = \"soon\"\n[parameters]\nslowlog-max-len = 1\n", "a duration with its unit")
	do("55", "CONFIG", "GET", "slowlog-max-len")
	do("PONG", "PING")
}

func must(reply any, err error) string {
	if err != nil {
		return err.Error()
	}
	text, _ := reply.(string)
	return text
}

// TestFlagsTable: docs/configuration.md has all flags of lockstep serve. With LOCKSTEP_RECORD=1, they are written there.
func TestFlagsTable(t *testing.T) {
	const path, begin, end = root + "/docs/configuration.md", "<!-- flags -->\n", "<!-- end of flags -->"
	doc := read(t, path)
	before, rest, found := strings.Cut(doc, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatal("docs/configuration.md has no place for the flags")
	}
	var b strings.Builder
	b.WriteString("| flag | value | default | |\n|---|---|---|---|\n")
	serveFlags().VisitAll(func(f *flag.Flag) {
		name, usage := flag.UnquoteUsage(f)
		value := f.DefValue
		if value != "" {
			value = "`" + value + "`"
		}
		cell := func(text string) string {
			return strings.NewReplacer("|", "\\|", "\n", " ").Replace(text)
		}
		b.WriteString("| `--" + f.Name + "` | " + cell(name) + " | " + cell(value) + " | " + cell(usage) + " |\n")
	})
	if want := before + begin + b.String() + end + after; doc != want {
		if !records {
			t.Fatal("docs/configuration.md is not true any more: LOCKSTEP_RECORD=1 go test ./cmd/lockstep -run '^TestFlagsTable$'")
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// message is a writer for the messages of run, which writes them in another goroutine: on a busy machine perhaps after its return.
type message struct {
	mu    sync.Mutex
	text  strings.Builder
	wrote chan struct{}
}

func (m *message) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	nudge(m.wrote)
	return m.text.Write(b)
}

func (m *message) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.String()
}

// ran runs a command line in this process, and returns the exit code, the output and the messages. A command that fails has a message.
func ran(args ...string) (code int, out, faults string) {
	var o bytes.Buffer
	m := &message{wrote: make(chan struct{}, 1)}
	code = run(args, &o, m)
	for code != exitOK && m.String() == "" {
		select {
		case <-m.wrote:
		case <-time.After(time.Minute):
			return code, o.String(), ""
		}
	}
	return code, o.String(), m.String()
}

// oneJSON parses a text that is one JSON value. Its names have a form that programs need not quote.
func oneJSON(t *testing.T, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		t.Fatalf("more than one value (%v): %q", err, text)
	}
	for _, m := range regexp.MustCompile(`"([^"]*)":`).FindAllStringSubmatch(text, -1) {
		if !regexp.MustCompile(`^[a-z][a-z0-9_]*$`).MatchString(m[1]) {
			t.Errorf("a name %q: %s", m[1], text)
		}
	}
	return v
}

// names returns the names of an object, sorted.
func names(v any) (list []string) {
	m, _ := v.(map[string]any)
	for name := range m {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// TestOutputOfEveryCommand: every command prints its result for people, and with --output json as one JSON value with the names that programs
// count on.
func TestOutputOfEveryCommand(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	backupNames := "committed complete file index keys node sequence taken"
	for _, c := range []struct {
		args []string // FORM becomes the name of the form
		text string   // a regular expression
		json string   // the names of the object
	}{
		{[]string{"status", "--addr", n.Addr}, `(?m)^role +leader$`, "applied clients commit deadlines expired id keys leader leader_client leader_for membership role scripts sequence state_hash state_index term uptime"},
		{[]string{"members", "--addr", n.Addr}, `(?m)^ID +PEER +CLIENT +LEADER +VOTER +UP +STATE +BEHIND +VERSION +PRIORITY +NEVER-LEAD\nn1 +\S+ +\S+ +yes +yes +yes +leader +0 +0\.1\.0\+dev +0 +no\n1 of 1 voters are up: the cluster may lose none$`, ""},
		{[]string{"add", "n1", n.PeerAddr, "--addr", n.Addr}, `^OK$`, "result"},
		{[]string{"remove", "n9", "--addr", n.Addr}, `^n9 is no member: there is nothing to remove$`, "result"},
		{[]string{"transfer", "n1", "--addr", n.Addr}, `^OK$`, "result"},
		{[]string{"snapshot", "--addr", n.Addr}, `^OK$`, "result"},
		{[]string{"health", "--http-listen", n.HTTPAddr}, `^ready$`, "ready text"},
		{[]string{"backup", file("FORM.backup"), "--addr", n.Addr}, `^\S+ is whole: 0 keys, taken on n1 at `, backupNames},
		{[]string{"backup", "--verify", file("FORM.backup")}, `^\S+ is whole: 0 keys, taken on n1 at `, backupNames},
		{[]string{"restore", file("FORM.backup"), "--data", file("FORM")}, `(?s)is whole: 0 keys.*is the data of node n1`, "committed complete data file id index keys node peer_advertise peer_listen sequence taken"},
		{[]string{"secret", file("FORM.secret")}, ` holds a new secret: `, "file made"},
		{[]string{"secret", file("FORM.secret")}, ` exists; it stays as it is$`, "file made"},
		{[]string{"version"}, `^lockstep 0\.1\.0\+dev `, "arch go modified os revision version"},
	} {
		for _, form := range []string{"text", "json"} {
			args := slices.Clone(c.args)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "FORM", form)
			}
			code, out, faults := ran(append(args, "--output", form)...)
			if code != exitOK || faults != "" || !strings.HasSuffix(out, "\n") {
				t.Errorf("%q: exit code %d: %s%s", args, code, out, faults)
				continue
			}
			if form == "text" {
				if !regexp.MustCompile(c.text).MatchString(strings.TrimSuffix(out, "\n")) {
					t.Errorf("%q: %q, want %s", args, out, c.text)
				}
				continue
			}
			v := oneJSON(t, out)
			if list, is := v.([]any); is {
				v, c.json = list[0], "behind client id leader never_lead peer priority state up version voter"
			}
			if got := strings.Join(names(v), " "); got != c.json {
				t.Errorf("%q: %s, want %s: %s", args, got, c.json, out)
			}
		}
	}
	t.Setenv("LOCKSTEP_OUTPUT", "json")
	for _, args := range [][]string{{"status", "--addr", n.Addr}, {"health", "--http-listen", n.HTTPAddr}, {"version"}, {"secret", file("json.secret")}} {
		if _, out, _ := ran(args...); !strings.HasPrefix(out, "{") {
			t.Errorf("%q by the environment: %q", args, out)
		}
	}
	if _, out, _ := ran("version", "--output", "text"); !strings.HasPrefix(out, "lockstep") {
		t.Errorf("a flag beside the environment: %q", out)
	}
}

// TestErrorsInJSON: --output json changes neither where errors go nor the exit codes.
func TestErrorsInJSON(t *testing.T) {
	n := nodes.Start(t, 1, "--requirepass", "secret")[0]
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"status", "--addr", n.Addr}, exitRuntime, "NOAUTH"},
		{[]string{"remove", "n1", "--addr", n.Addr, "--requirepass", "secret"}, exitRuntime, "ERR "},
		{[]string{"add", "n4"}, exitUsage, "want add ID"},
		{[]string{"backup", "--verify", filepath.Join(t.TempDir(), "absent")}, exitRuntime, "no such file"},
		{[]string{"health", "--http-listen", "127.0.0.1:1"}, exitRuntime, "no node answers"},
	} {
		textCode, textOut, textFaults := ran(c.args...)
		code, out, faults := ran(append(c.args, "--output", "json")...)
		if code != c.code || code != textCode || out+textOut != "" || faults != textFaults || !strings.Contains(faults, c.says) {
			t.Errorf("%q: exit codes %d and %d, %q and %q, %q and %q", c.args, code, textCode, out, textOut, faults, textFaults)
		}
	}
	for _, form := range []string{"xml", "", "JSON"} {
		code, _, faults := ran("members", "--output", form)
		if code != exitUsage || !strings.Contains(faults, "want text or json") {
			t.Errorf("%q: exit code %d: %s", form, code, faults)
		}
	}
	t.Setenv("LOCKSTEP_OUTPUT", "xml")
	for _, command := range []string{"version", "members"} {
		if code, _, faults := ran(command); code != exitUsage || !strings.Contains(faults, "LOCKSTEP_OUTPUT: want text or json") {
			t.Errorf("%s: exit code %d: %s", command, code, faults)
		}
	}
}

// TestEachCommandHasExamples: the help of each command names exit codes, and shows examples whose flags the command has.
func TestEachCommandHasExamples(t *testing.T) {
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^  lockstep \[?([a-z-]+)`).FindAllStringSubmatch(strings.Split(helpText(), "\n\nTry it:")[0], -1) {
		command := m[1]
		listed[command] = true
		text := helpOf(command)
		if !strings.Contains(text, "\nExit codes:") || len(examples[command]) == 0 {
			t.Errorf("help of %s:\n%s", command, text)
		}
		flags := []string{"help"}
		for _, group := range flagGroups() {
			if slices.Contains(regexp.MustCompile(`[a-z-]+`).FindAllString(group.of, -1), command) {
				group.flags.VisitAll(func(f *flag.Flag) { flags = append(flags, f.Name) })
			}
		}
		for _, example := range examples[command] {
			if !strings.Contains(text, "\n  "+example+"\n") || !strings.HasPrefix(example+" ", "lockstep "+command+" ") && command != "serve" {
				t.Errorf("help of %s lacks %q, or it is none of %s", command, example, command)
			}
			for _, used := range matches(anyFlag, example) {
				if !slices.Contains(flags, used) {
					t.Errorf("%q: %s has no flag --%s", example, command, used)
				}
			}
		}
	}
	for command := range examples {
		if !listed[command] {
			t.Errorf("there is no command %s", command)
		}
	}
}

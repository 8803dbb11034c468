package main

import (
	"bytes"
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/conformance/ports"
)

// start runs the program until it ends and returns its exit code and output.
func start(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(nodes.Binary(t), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Dir = t.TempDir()
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// refused checks the exit code and the output: one message with the given words, and no stack trace.
func refused(t *testing.T, want int, words []string, args ...string) {
	t.Helper()
	code, out := start(t, args...)
	if code != want {
		t.Errorf("lockstep %v: exit code %d, want %d\n%s", args, code, want, out)
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			t.Errorf("lockstep %v: %q does not say %q", args, out, w)
		}
	}
	if strings.Contains(out, "goroutine ") {
		t.Errorf("lockstep %v: a stack trace:\n%s", args, out)
	}
	if n := strings.Count(out, "lockstep: "); n != 1 {
		t.Errorf("lockstep %v: %d messages, want one:\n%s", args, n, out)
	}
}

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct {
		args  []string
		words []string
	}{
		{[]string{"--no-such-flag"}, []string{"no-such-flag", "lockstep help"}},
		{[]string{"--maxclients", "-5"}, []string{"--maxclients -5", "from 1 on"}},
		{[]string{"status", "--timeout", "0s"}, []string{"--timeout must be more than 0"}},
		{[]string{"members", "--timeout", "-1s"}, []string{"--timeout must be more than 0"}},
		{[]string{"backup", ""}, []string{"want one FILE"}},
		{[]string{"frobnicate"}, []string{"unknown command", "frobnicate"}},
		{[]string{"serve", "extra"}, []string{"unexpected argument", "extra"}},
		{[]string{"--id", "n9", "--peers", "n1=127.0.0.1:1,n2=127.0.0.1:2"}, []string{"--peers does not include this node", "n9"}},
		{[]string{"--peers", "n1"}, []string{"id=host:port"}},
		{[]string{"--peers", "n1=0.0.0.0:7379", "--protected-mode", "no"}, []string{"--peers", "0.0.0.0:7379", "every address"}},
		{[]string{"--peer-advertise", "[::]:7379"}, []string{"--peer-advertise", "every address"}},
		{[]string{"--peers", "n1=127.0.0.1:7379,n2=127.0.0.1:7380", "--peer-listen", "127.0.0.1:7380"}, []string{"127.0.0.1:7380 is the address of n2", "--id n2"}},
		{[]string{"--peers", "n1=127.0.0.1:7379", "--peer-advertise", "127.0.0.1:7380"}, []string{"--peer-advertise 127.0.0.1:7380", "127.0.0.1:7379"}},
		{[]string{"--peers", ""}, []string{"--peers", "LOCKSTEP_PEERS", "is empty", "leave it out"}},
		{[]string{"--join", " "}, []string{"--join", "LOCKSTEP_JOIN", "is empty", "leave it out"}},
		{[]string{"--peers", "n1=127.0.0.1:1,n1=127.0.0.1:2"}, []string{"twice"}},
		{[]string{"--listen", "nonsense"}, []string{"--listen", "host:port"}},
		{[]string{"--listen", "127.0.0.1:99999"}, []string{"--listen", "127.0.0.1:99999", "host:port"}},
		{[]string{"--advertise", "lock1:99999"}, []string{"--advertise", "lock1:99999", "host:port"}},
		{[]string{"--peer-advertise", "lock1"}, []string{"--peer-advertise", "lock1", "host:port"}},
		{[]string{"--http-listen", "127.0.0.1:-1"}, []string{"--http-listen", "host:port"}},
		{[]string{"--join", "lock1:0x1"}, []string{"--join", "host:port", "--peer-listen of a member"}},
		{[]string{"--peers", "n1=127.0.0.1:70000"}, []string{"--peers", "127.0.0.1:70000", "id=host:port"}},
		{[]string{"--id", strings.Repeat("n", 3000)}, []string{"--id", "use a name", "such as n4"}},
		{[]string{"--id", "n\x1b[1m"}, []string{"--id", "use a name", "such as n4"}},
		{[]string{"--listen", "0.0.0.0:0"}, []string{"--requirepass", "--protected-mode=no"}},
		{[]string{"--peer-listen", "0.0.0.0:7379"}, []string{"--peer-secret-file", "lockstep secret", "--protected-mode=no"}},
		{[]string{"--peer-listen", "10.0.0.1:7379", "--peer-tls", "optional"}, []string{"--peer-tls optional needs"}},
		{[]string{"--peer-tls", "required"}, []string{"--peer-tls required needs"}},
		{[]string{"--peer-tls", "yes"}, []string{"required or optional"}},
		{[]string{"--peer-tls-cert-file", "x"}, []string{"give all three"}},
		{[]string{"secret"}, []string{"secret FILE"}},
		{[]string{"--failover-wait", "5"}, []string{"failover-wait", "such as 2.5s"}},
		{[]string{"--ephemeral=maybe"}, []string{"ephemeral", "true or false"}},
		{[]string{"--log-level", "loud"}, []string{"--log-level"}},
		{[]string{"--without", "event-loops,caches"}, []string{"without", "want some of event-loops"}},
		{[]string{"--ephemeral", "--peers", "n1=127.0.0.1:1,n2=127.0.0.1:2"}, []string{"--ephemeral"}},
		{[]string{"status", "--addr", "foo"}, []string{"--addr", "host:port, such as 127.0.0.1:6379"}},
		{[]string{"status", "--addr", "127.0.0.1:redis"}, []string{"--addr", "host:port, such as 127.0.0.1:6379"}},
		{[]string{"members", "-p", "6379"}, []string{"no flag --p", "--addr HOST:PORT"}},
		{[]string{"--port", "6379"}, []string{"no flag --port", "--listen HOST:PORT"}},
		{[]string{"-p", "6379"}, []string{"no flag --p:", "--listen HOST:PORT"}},
		{[]string{"--host", "10.0.0.1"}, []string{"no flag --host", "--listen HOST:PORT"}},
		{[]string{"status", "--bind", "10.0.0.1"}, []string{"no flag --bind", "--addr HOST:PORT"}},
		{[]string{"--peer-lisen", "127.0.0.1:7379"}, []string{"did you mean --peer-listen?"}},
	} {
		refused(t, exitUsage, c.words, c.args...)
	}
	// An address that cannot be parsed gets no error that says that it is open to other machines.
	if _, out := start(t, "--listen", "6379"); strings.Contains(out, "open to other machines") {
		t.Errorf("a false fault: %s", out)
	}
}

// TestForeignFlags: if a flag of redis-server is refused, the error says what to use instead. The flags that it names exist.
func TestForeignFlags(t *testing.T) {
	known := map[string]bool{}
	for _, g := range flagGroups() {
		g.flags.VisitAll(func(f *flag.Flag) { known["--"+f.Name] = true })
	}
	for name, instead := range foreignFlags {
		for _, word := range regexp.MustCompile(`--[a-z-]+`).FindAllString(instead, -1) {
			if !known[word] {
				t.Errorf("--%s: there is no %s either", name, word)
			}
		}
		for _, g := range flagGroups() {
			if g.flags.Lookup(name) != nil {
				continue
			}
			err := parseFlags(g.flags, []string{"--" + name, "1"})
			if err == nil || !strings.Contains(err.Error(), "no flag --"+name+": instead of it there is ") {
				t.Errorf("%s: --%s: %v", g.of, name, err)
			}
		}
	}
}

// A node does not start if AUTOMEMLIMIT cannot be parsed, because the node would then have no memory limit.
func TestFractionOfMemory(t *testing.T) {
	for _, value := range []string{"half", "1.1", "0", "-1", "NaN", ""} {
		t.Setenv("AUTOMEMLIMIT", value)
		refused(t, exitUsage, []string{"AUTOMEMLIMIT " + strconv.Quote(value), "such as 0.8", "off"}, "--listen", "127.0.0.1:0")
	}
	for _, value := range []string{"off", "1", "0.5"} {
		t.Setenv("AUTOMEMLIMIT", value)
		if err := fractionOfMemory(); err != nil {
			t.Errorf("%q: %v", value, err)
		}
	}
}

// TestNoSuchHost: if a host cannot be found, the error says what to check.
func TestNoSuchHost(t *testing.T) {
	refused(t, exitRuntime, []string{"--addr", "the host cannot be found", "is its name right?"}, "status", "--addr", "no-such-host.invalid:6379")
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"--help"}, {"serve", "-h"}} {
		code, out := start(t, args...)
		if code != exitOK || !strings.Contains(out, "--peer-listen") || !strings.Contains(out, "redis-cli SET my-lock") {
			t.Errorf("lockstep %v: exit code %d:\n%s", args, code, out)
		}
	}
}

// TestHelpOfOneCommand: the help for one command describes only that command. Help for an unknown command is refused.
func TestHelpOfOneCommand(t *testing.T) {
	for _, c := range []struct {
		args          []string
		with, without string
	}{
		{[]string{"help", "members"}, "who is in the cluster", "--peer-listen"},
		{[]string{"members", "--help"}, "--addr", "--peer-listen"},
		{[]string{"help", "backup"}, "--verify", "--ephemeral"},
		{[]string{"restore", "-h"}, "--data", "--ephemeral"},
		{[]string{"health", "--help"}, "--timeout", "--ephemeral"},
		{[]string{"help", "serve"}, "--ephemeral", "take a member out"},
		{[]string{"secret", "--help"}, "--peer-secret-file", "--ephemeral"},
		{[]string{"version", "-h"}, "the version", "--ephemeral"},
	} {
		code, out := start(t, c.args...)
		if code != exitOK || !strings.Contains(out, c.with) || strings.Contains(out, c.without) {
			t.Errorf("lockstep %v: exit code %d:\n%s", c.args, code, out)
		}
	}
	refused(t, exitUsage, []string{`there is no command "foo"`}, "help", "foo")
	refused(t, exitUsage, []string{"one command at most"}, "help", "add", "remove")
	refused(t, exitUsage, []string{`unexpected argument "x"`}, "version", "x")
}

// TestSecretGivenTwice: a node refuses a secret that two flags give, or two variables. If a flag and a variable give it, the flag
// wins.
func TestSecretGivenTwice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("of the file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const twice = "the secret is given twice, by --requirepass and --requirepass-file (variables: LOCKSTEP_REQUIREPASS, LOCKSTEP_REQUIREPASS_FILE)"
	refused(t, exitUsage, []string{twice}, "--requirepass", "x", "--requirepass-file", file)
	refused(t, exitUsage, []string{twice}, "--requirepass-file", file, "--requirepass", "x")
	read := func(args ...string) (string, error) {
		var o options
		fs := flag.NewFlagSet("serve", flag.ContinueOnError)
		o.define(fs)
		err := parse(fs, args)
		return o.password, err
	}
	t.Setenv("LOCKSTEP_REQUIREPASS", "of the variable")
	if got, err := read("--requirepass-file", file); got != "of the file" || err != nil {
		t.Errorf("the file of a flag: %q, %v", got, err)
	}
	t.Setenv("LOCKSTEP_REQUIREPASS_FILE", file)
	if _, err := read(); err == nil || !strings.Contains(err.Error(), twice) {
		t.Errorf("two variables: %v", err)
	}
}

// TestSecretIsNotShown: the error about a refused secret does not show the secret. An error of package flag would show it.
func TestSecretIsNotShown(t *testing.T) {
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	new(options).define(fs)
	file := filepath.Join("..", "..", "deploy", "compose-password")
	err := parse(fs, []string{"--requirepass-file", file, "--requirepass", "hunter2"})
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.HasPrefix(err.Error(), "the secret is given twice") {
		t.Errorf("the error is %v", err)
	}
}

// TestMissingPeerFile: the error about a missing file names the flag that gave it.
func TestMissingPeerFile(t *testing.T) {
	refused(t, exitRuntime, []string{"--peer-secret-file: open nosuch"}, "--data", t.TempDir(), "--http-listen", "", "--peer-secret-file", "nosuch")
}

// TestBench: `lockstep bench` runs the separate program for measurements, with its arguments and its exit code.
func TestBench(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	refused(t, exitRuntime, []string{"lockstep-bench", "make build"}, "bench", "--help")
	if err := os.WriteFile(filepath.Join(dir, benchProgram), []byte("#!/bin/sh\necho \"$# $1 $2\"; exit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if code, out := start(t, "bench", "--clients", "1 2"); code != 7 || out != "2 --clients 1 2\n" {
		t.Errorf("exit code %d: %q", code, out)
	}
}

func TestPortsTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken := ln.Addr().String()
	free := ports.Addrs(t, 2)
	refused(t, exitRuntime, []string{"--listen", taken}, "--listen", taken)
	refused(t, exitRuntime, []string{"--peer-listen", taken}, "--listen", free[0], "--peer-listen", taken, "--http-listen", "")
	refused(t, exitRuntime, []string{"--http-listen", taken}, "--listen", free[0], "--peer-listen", free[1], "--http-listen", taken)
}

func TestDataDirectoryRefused(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	if got, err := n.Do("SET", "k", "v"); got != "OK" {
		t.Fatal(got, err)
	}
	free := ports.Addrs(t, 2)
	flags := func(id string) []string {
		return []string{"--id", id, "--data", n.Data, "--listen", free[0], "--peer-listen", free[1], "--http-listen", ""}
	}
	refused(t, exitRuntime, []string{"in use by another lockstep process", "--data"}, flags("n1")...)
	n.Kill()
	refused(t, exitRuntime, []string{`belongs to node "n1"`, "--id"}, flags("n2")...)

	db := filepath.Join(n.Data, "raft.db")
	whole, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"truncated": whole[:len(whole)/2],
		"garbage":   bytes.Repeat([]byte("garbage!"), 4096),
		"tiny":      whole[:100],
	} {
		if err := os.WriteFile(db, b, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			refused(t, exitRuntime, []string{n.Data, "damaged", "backup"}, flags("n1")...)
		})
	}
	if err := os.Remove(db); err != nil {
		t.Fatal(err)
	}
	refused(t, exitRuntime, []string{"lost its log"}, flags("n1")...)
	if err := os.WriteFile(db, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	n.Run()
	n.WaitReady()
	if got, err := n.Do("GET", "k"); got != "v" {
		t.Errorf("after the right log is back: %v, %v", got, err)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("LOCKSTEP_LISTEN", "nonsense")
	refused(t, exitUsage, []string{"--listen", "nonsense"})
	t.Setenv("LOCKSTEP_LISTEN", "")
	t.Setenv("LOCKSTEP_FAILOVER_WAIT", "soon")
	refused(t, exitUsage, []string{"LOCKSTEP_FAILOVER_WAIT", "such as 2.5s"})
}

// A peer port beyond loopback needs a secret, certificates, or the operator's explicit permission.
func TestPeerPortIsProtected(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	if code, out := start(t, "secret", path); code != exitOK || !strings.Contains(out, "--peer-secret-file") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if code, out := start(t, "secret", path); code != exitOK || !strings.Contains(out, "stays as it is") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, text) || len(text) != 65 {
		t.Errorf("%q became %q, %v", text, again, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	free := ports.Addrs(t, 2)
	_, port, err := net.SplitHostPort(free[1])
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{"--data", filepath.Join(dir, "data"), "--listen", free[0], "--http-listen", "", "--peer-listen", "0.0.0.0:" + port}
	refused(t, exitUsage, []string{"whoever reaches it"}, flags...)
	weak := filepath.Join(dir, "weak")
	if err := os.WriteFile(weak, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, exitRuntime, []string{weak, "needs 16", "lockstep secret FILE"}, append(flags, "--peer-secret-file", weak)...)
	refused(t, exitRuntime, []string{"no such file"}, append(flags, "--peer-secret-file", filepath.Join(dir, "absent"))...)
	t.Setenv("LOCKSTEP_PEER_SECRET", "secret")
	refused(t, exitRuntime, []string{"LOCKSTEP_PEER_SECRET", "needs 16"}, flags...)
	refused(t, exitUsage, []string{"leave one of them out"}, append(flags, "--peer-secret-file", path)...)
}

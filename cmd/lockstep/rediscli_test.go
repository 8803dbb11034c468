package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// redisCLI runs the real redis-cli against a node. It is ended after patience:
// some of its modes never end by themselves.
type redisCLI struct {
	t    *testing.T
	port string
}

func newRedisCLI(t *testing.T) *redisCLI {
	t.Helper()
	for _, program := range []string{"redis-cli", "stdbuf"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
	node, stop := startInProcess(t, nil)
	t.Cleanup(stop)
	_, port, err := net.SplitHostPort(node.addr)
	if err != nil {
		t.Fatal(err)
	}
	return &redisCLI{t, port}
}

// run returns what redis-cli prints, and whether it ended well.
func (r *redisCLI) run(patience time.Duration, stdin string, args ...string) (string, bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// What is not ended by itself must not keep its output to itself.
	cmd := exec.CommandContext(ctx, "stdbuf", append([]string{"-oL", "redis-cli", "-p", r.port}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Dir = r.t.TempDir()
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// endless is how long a mode is watched that does not end.
const endless = 1500 * time.Millisecond

// TestRedisCLIModes runs the modes of redis-cli that operators use.
func TestRedisCLIModes(t *testing.T) {
	cli := newRedisCLI(t)
	cli.run(time.Minute, "", "EVAL", "for i = 1, 500 do redis.call('set', 'key:' .. i, i) end redis.call('hset', 'h', 'a', 1, 'b', 2) redis.call('rpush', 'l', 1, 2, 3)", "0")
	for _, c := range []struct {
		name     string
		args     []string
		stdin    string
		patience time.Duration
		fails    bool
		words    []string
	}{
		{"stat", []string{"--stat", "-i", "0.2"}, "", endless, true, []string{"keys", "clients", "502"}},
		{"scan", []string{"--scan", "--pattern", "key:49?"}, "", time.Minute, false, []string{"key:490\n", "key:499\n"}},
		{"bigkeys", []string{"--bigkeys"}, "", time.Minute, false, []string{"Sampled 502 keys", "Biggest   hash found '\"h\"' has 2 fields", "Biggest   list found '\"l\"' has 3 items"}},
		{"memkeys", []string{"--memkeys"}, "", time.Minute, false, []string{"Sampled 502 keys", "Biggest   hash found"}},
		{"hotkeys", []string{"--hotkeys"}, "", time.Minute, true, []string{"LFU"}},
		{"latency", []string{"--latency", "-i", "1"}, "", time.Minute, false, []string{"0 "}},
		{"latency history", []string{"--latency-history", "-i", "1"}, "", endless, true, []string{"0 "}},
		{"intrinsic latency", []string{"--intrinsic-latency", "1"}, "", time.Minute, false, []string{"Max latency so far"}},
		{"RESP3", []string{"-3", "--no-raw", "HGETALL", "h"}, "", time.Minute, false, []string{"1# \"a\" => \"1\""}},
		{"pipe", []string{"--pipe"}, "SET piped 1\r\nINCR piped\r\nGET piped\r\n", time.Minute, false, []string{"errors: 0, replies: 3"}},
		{"argument from stdin", []string{"-x", "SET", "stdin"}, "a value", time.Minute, false, []string{"OK"}},
		{"rdb", []string{"--rdb", "dump.rdb"}, "", time.Minute, true, []string{"SYNC and PSYNC are not supported"}},
		{"functions rdb", []string{"--functions-rdb", "functions.rdb"}, "", time.Minute, true, []string{"not supported"}},
		{"cluster help", []string{"--cluster", "help"}, "", time.Minute, true, []string{"Cluster Manager Commands"}},
		{"csv", []string{"--csv", "LRANGE", "l", "0", "-1"}, "", time.Minute, false, []string{`"1","2","3"`}},
		{"repeat", []string{"-r", "3", "INCR", "repeated"}, "", time.Minute, false, []string{"1\n2\n3\n"}},
		{"eval", []string{"--eval", scriptFile(t), "key:7", ",", "x"}, "", time.Minute, false, []string{"7x"}},
		{"interactive", nil, "SELECT 1\nSET other 1\nDBSIZE\nSELECT 0\n", time.Minute, false, []string{"OK\nOK\n1\nOK\n"}},
		{"help of commands", nil, "help set\n", time.Minute, false, []string{"SET"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cli := &redisCLI{t, cli.port}
			out, ended := cli.run(c.patience, c.stdin, c.args...)
			if ended == c.fails {
				t.Errorf("redis-cli %v: ended well: %v, want %v\n%s", c.args, ended, !c.fails, out)
			}
			for _, w := range c.words {
				if !strings.Contains(out, w) {
					t.Errorf("redis-cli %v: no %q in\n%s", c.args, w, out)
				}
			}
		})
	}
}

func scriptFile(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "script.lua")
	if err := os.WriteFile(path, []byte("return redis.call('get', KEYS[1]) .. ARGV[1]"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRedisCLIMonitor: what one client does is seen by another.
func TestRedisCLIMonitor(t *testing.T) {
	cli := newRedisCLI(t)
	seen := make(chan string, 1)
	go func() {
		out, _ := cli.run(3*time.Second, "", "MONITOR")
		seen <- out
	}()
	for {
		// It is the node that says when the other one watches.
		if out, _ := cli.run(time.Minute, "", "CLIENT", "LIST"); strings.Contains(out, "flags=O") {
			break
		}
	}
	cli.run(time.Minute, "", "EVAL", "return redis.call('set', KEYS[1], 'v')", "1", "k")
	out := <-seen
	for _, w := range []string{"OK\n", `] "EVAL" "return redis.call('set', KEYS[1], 'v')" "1" "k"`, `[0 lua] "set" "k" "v"`} {
		if !strings.Contains(out, w) {
			t.Errorf("no %q in\n%s", w, out)
		}
	}
}

// TestDashboardCommands are what RedisInsight and its kin ask for at their
// start and while they show a database.
func TestDashboardCommands(t *testing.T) {
	cli := newRedisCLI(t)
	cli.run(time.Minute, "", "EVAL", "redis.call('set', 'k', 'v') redis.call('hset', 'h', 'f', 'v') redis.call('zadd', 'z', 1, 'm')", "0")
	for _, line := range []string{
		"INFO", "INFO everything", "INFO server", "INFO keyspace", "INFO cpu memory", "CLIENT LIST", "CLIENT SETNAME redisinsight", "CLIENT INFO",
		"MODULE LIST", "COMMAND", "COMMAND COUNT", "COMMAND DOCS get", "CONFIG GET databases", "CONFIG GET maxmemory*", "CONFIG GET requirepass",
		"DBSIZE", "SCAN 0 MATCH * COUNT 100", "SCAN 0 TYPE hash COUNT 100", "TYPE k", "TTL k", "PTTL k", "STRLEN k", "MEMORY USAGE k", "MEMORY USAGE h SAMPLES 0",
		"MEMORY STATS", "MEMORY DOCTOR", "OBJECT ENCODING h", "OBJECT IDLETIME h", "OBJECT HELP", "HLEN h", "HSCAN h 0 COUNT 100", "ZCARD z", "ZSCAN z 0",
		"SLOWLOG GET 50", "SLOWLOG LEN", "LATENCY LATEST", "LATENCY HISTORY command", "LATENCY DOCTOR", "LATENCY HISTOGRAM",
		"CONFIG GET slowlog*", "PUBSUB CHANNELS *", "PUBSUB NUMPAT", "ROLE", "LASTSAVE", "TIME", "SCRIPT EXISTS 0", "LOLWUT", "WAIT 0 0",
	} {
		// With -e an error reply is an exit code.
		if out, ok := cli.run(time.Minute, "", append([]string{"-e"}, strings.Fields(line)...)...); !ok {
			t.Errorf("%s: %s", line, out)
		}
	}
}

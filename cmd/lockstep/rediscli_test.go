package main

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// redisCLI runs the real redis-cli against a node. Some modes of redis-cli never end by themselves, so it is stopped after a
// given time.
type redisCLI struct {
	t    *testing.T
	port string
}

func needRedisCLI(t *testing.T) {
	t.Helper()
	for _, program := range []string{"redis-cli", "redis-benchmark", "stdbuf"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
}

func newRedisCLI(t *testing.T, addr string) *redisCLI {
	t.Helper()
	_, port := hostPort(t, addr)
	return &redisCLI{t, port}
}

// oneAndThree runs a test twice: on a single node, and through a follower of three nodes.
func oneAndThree(t *testing.T, test func(t *testing.T, cli *redisCLI)) {
	needRedisCLI(t)
	t.Run("one node", func(t *testing.T) {
		node, stop := startInProcess(t, nil)
		t.Cleanup(stop)
		test(t, newRedisCLI(t, node.addr))
	})
	t.Run("through a follower", func(t *testing.T) {
		s := &scene{startMembers(t)}
		test(t, newRedisCLI(t, s.followers()[0].o.listen))
	})
}

// run returns what redis-cli prints, and whether its exit code is 0.
func (r *redisCLI) run(patience time.Duration, stdin string, args ...string) (string, bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// A mode that does not end by itself must not buffer its output.
	cmd := exec.CommandContext(ctx, "stdbuf", append([]string{"-oL", "redis-cli", "-p", r.port}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Dir = r.t.TempDir()
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// endless is how long a mode that does not end by itself may run.
const endless = 1500 * time.Millisecond

// mode is a way to run redis-cli.
type mode struct {
	name     string
	args     []string
	stdin    string
	patience time.Duration // how long it may run; 0: a minute, because it ends by itself
	fails    bool
	words    []string
}

// redisCLIModes expect 502 keys in database 0. So the modes that write use other databases.
func redisCLIModes(t *testing.T) []mode {
	return []mode{
		{name: "stat", args: []string{"--stat", "-i", "0.2"}, patience: endless, fails: true, words: []string{"keys", "clients", "requests"}},
		{name: "scan", args: []string{"--scan", "--pattern", "key:49?"}, words: []string{"key:490\n", "key:499\n"}},
		{name: "bigkeys", args: []string{"--bigkeys"}, words: []string{"Sampled 502 keys", "Biggest   hash found '\"h\"' has 2 fields", "Biggest   list found '\"l\"' has 3 items"}},
		{name: "memkeys", args: []string{"--memkeys"}, words: []string{"Sampled 502 keys", "Biggest   hash found"}},
		{name: "memkeys samples", args: []string{"--memkeys-samples", "2"}, words: []string{"Sampled 502 keys", "Biggest   list found"}},
		{name: "hotkeys", args: []string{"--hotkeys"}, fails: true, words: []string{"An LFU maxmemory policy is not selected"}},
		{name: "latency", args: []string{"--latency", "-i", "1"}, words: []string{"0 "}},
		{name: "latency history", args: []string{"--latency-history", "-i", "1"}, patience: endless, fails: true, words: []string{"0 "}},
		{name: "latency spectrum", args: []string{"--latency-dist", "-i", "1"}, patience: endless, fails: true},
		{name: "intrinsic latency", args: []string{"--intrinsic-latency", "1"}, words: []string{"Max latency so far"}},
		{name: "RESP3", args: []string{"-3", "--no-raw", "HGETALL", "h"}, words: []string{"1# \"a\" => \"1\""}},
		{name: "RESP2", args: []string{"-2", "--no-raw", "HGETALL", "h"}, words: []string{"1) \"a\"\n"}},
		{name: "json", args: []string{"--json", "HGETALL", "h"}, words: []string{`{"a":"1","b":"2"}`}},
		{name: "pipe", args: []string{"-n", "1", "--pipe"}, stdin: "SET piped 1\r\nINCR piped\r\nGET piped\r\n", words: []string{"errors: 0, replies: 3"}},
		{name: "pipe of RESP", args: []string{"-n", "1", "--pipe"}, stdin: strings.Repeat("*3\r\n$5\r\nLPUSH\r\n$6\r\npiped2\r\n$3\r\na\r\n\r\n", 3000), words: []string{"errors: 0, replies: 3000"}},
		{name: "pipe with an error", args: []string{"-n", "1", "--pipe"}, stdin: "SET piped3 1\r\nLPUSH piped3 1\r\n", fails: true, words: []string{"errors: 1, replies: 2"}},
		{name: "argument from stdin", args: []string{"-n", "1", "-x", "SET", "stdin"}, stdin: "a value", words: []string{"OK"}},
		{name: "tagged argument from stdin", args: []string{"-n", "1", "-X", "tag", "SET", "tag", "v"}, stdin: "a key", words: []string{"OK"}},
		{name: "rdb", args: []string{"--rdb", "dump.rdb"}, fails: true, words: []string{"SYNC and PSYNC are not supported"}},
		{name: "functions rdb", args: []string{"--functions-rdb", "functions.rdb"}, fails: true, words: []string{"not supported"}},
		{name: "replica", args: []string{"--replica"}, fails: true, words: []string{"SYNC and PSYNC are not supported"}},
		{name: "cluster help", args: []string{"--cluster", "help"}, fails: true, words: []string{"Cluster Manager Commands"}},
		{name: "cluster check of a plain node", args: []string{"--cluster", "check", "PLAIN"}, fails: true, words: []string{"is not configured as a cluster node"}},
		{name: "csv", args: []string{"--csv", "LRANGE", "l", "0", "-1"}, words: []string{`"1","2","3"`}},
		{name: "delimiters", args: []string{"-d", "+", "-D", "!", "LRANGE", "l", "0", "-1"}, words: []string{"1+2+3!"}},
		{name: "repeat", args: []string{"-n", "1", "-r", "3", "-i", "0.1", "INCR", "repeated"}, words: []string{"1\n2\n3\n"}},
		{name: "eval", args: []string{"--eval", scriptFile(t), "key:7", ",", "x"}, words: []string{"7x"}},
		{name: "error as exit code", args: []string{"-e", "INCR", "h"}, fails: true, words: []string{"WRONGTYPE"}},
		{name: "quoted input", args: []string{"--quoted-input", "GET", `"\x6bey:7"`}, words: []string{"7"}},
		{name: "interactive", stdin: "SELECT 2\nSET other 1\nDBSIZE\nMULTI\nINCR other\nEXEC\nSELECT 0\n", words: []string{"OK\nOK\n1\nOK\nQUEUED\n2\nOK\n"}},
		{name: "help of commands", stdin: "help set\n", words: []string{"SET"}},
	}
}

// TestRedisCLIModes runs the modes of redis-cli that operators use.
func TestRedisCLIModes(t *testing.T) {
	oneAndThree(t, func(t *testing.T, cli *redisCLI) {
		cli.run(time.Minute, "", "EVAL", "for i = 1, 500 do redis.call('set', 'key:' .. i, i) end redis.call('hset', 'h', 'a', 1, 'b', 2) redis.call('rpush', 'l', 1, 2, 3)", "0")
		for _, m := range redisCLIModes(t) {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				m.check(t, cli.port)
			})
		}
	})
}

func (m mode) check(t *testing.T, port string) {
	cli := &redisCLI{t, port}
	args := slices.Clone(m.args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "PLAIN", "127.0.0.1:"+port)
	}
	out, ended := cli.run(cmp.Or(m.patience, time.Minute), m.stdin, args...)
	if ended == m.fails {
		t.Errorf("redis-cli %v: ended well: %v, want %v\n%s", args, ended, !m.fails, out)
	}
	for _, w := range m.words {
		if !strings.Contains(out, w) {
			t.Errorf("redis-cli %v: no %q in\n%s", args, w, out)
		}
	}
}

// TestRedisCLIOnACluster: with the flag -c, redis-cli follows the redirection from a follower to the leader. The cluster manager of
// redis-cli finds no fault.
func TestRedisCLIOnACluster(t *testing.T) {
	needRedisCLI(t)
	s := &scene{startMembers(t)}
	follower := s.followers()[0].o.clusterListen
	_, port := hostPort(t, follower)
	for _, m := range []mode{
		{name: "follow", args: []string{"-c", "SET", "foo", "1"}, words: []string{"OK"}},
		{name: "follow and go on", args: []string{"-c"}, stdin: "SET foo 2\nGET foo\nINCR foo\n", words: []string{"OK\n2\n3\n"}},
		{name: "without -c", args: []string{"GET", "foo"}, words: []string{"MOVED 12182 " + s.leader().o.clusterListen}},
		{name: "check", args: []string{"--cluster", "check", follower}, words: []string{"[OK] All nodes agree about slots configuration.", "[OK] All 16384 slots covered."}},
		{name: "info", args: []string{"--cluster", "info", follower}, words: []string{"16384 slots | 2 slaves."}},
		{name: "call", args: []string{"--cluster", "call", follower, "PING"}, words: []string{s.leader().o.clusterListen + ": PONG"}},
	} {
		t.Run(m.name, func(t *testing.T) { m.check(t, port) })
	}
}

// TestRedisBenchmark: the default tests of redis-benchmark run. The option --cluster is left out: it needs at least two masters,
// even with a real Redis Cluster.
func TestRedisBenchmark(t *testing.T) {
	bench := func(t *testing.T, args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, "redis-benchmark", append([]string{"-q", "-n", "300", "-c", "10"}, args...)...).CombinedOutput()
		if err != nil || strings.Contains(strings.ToLower(string(out)), "error") {
			t.Errorf("%v\n%s", err, out)
		}
		for _, name := range []string{"SET", "GET", "INCR", "LPUSH", "SADD", "HSET", "ZADD", "LRANGE_600", "MSET"} {
			if !strings.Contains(string(out), name) {
				t.Errorf("no result of %s in\n%s", name, out)
			}
		}
	}
	oneAndThree(t, func(t *testing.T, cli *redisCLI) {
		bench(t, "-p", cli.port)
		bench(t, "-p", cli.port, "-P", "8", "-r", "100")
	})
}

func scriptFile(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "script.lua")
	if err := os.WriteFile(path, []byte("return redis.call('get', KEYS[1]) .. ARGV[1]"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRedisCLIMonitor: MONITOR on one connection shows the commands of another.
func TestRedisCLIMonitor(t *testing.T) { oneAndThree(t, checkMonitor) }

func checkMonitor(t *testing.T, cli *redisCLI) {
	seen := make(chan string, 1)
	go func() {
		out, _ := cli.run(3*time.Second, "", "MONITOR")
		seen <- out
	}()
	for {
		// Only the node can say when the other redis-cli has begun to get the commands of MONITOR.
		if out, _ := cli.run(time.Minute, "", "CLIENT", "LIST"); strings.Contains(out, "flags=O") {
			break
		}
	}
	cli.run(time.Minute, "", "EVAL", "return redis.call('set', KEYS[1], 'v')", "1", "k")
	out := <-seen
	words := []string{"OK\n", `] "EVAL" "return redis.call('set', KEYS[1], 'v')" "1" "k"`}
	if strings.Contains(t.Name(), "one") {
		// MONITOR shows a script's commands only on the node that runs the script, the leader.
		words = append(words, `[0 lua] "set" "k" "v"`)
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			t.Errorf("no %q in\n%s", w, out)
		}
	}
}

// TestDashboardCommands sends the commands that tools such as RedisInsight use to show a database.
// The transcript clients/redisinsight.txt has the commands that they send at their start.
func TestDashboardCommands(t *testing.T) { oneAndThree(t, checkDashboard) }

func checkDashboard(t *testing.T, cli *redisCLI) {
	cli.run(time.Minute, "", "EVAL", "redis.call('set', 'k', 'v') redis.call('hset', 'h', 'f', 'v') redis.call('zadd', 'z', 1, 'm')", "0")
	for _, line := range []string{
		"INFO", "INFO everything", "INFO server", "INFO keyspace", "INFO cpu memory", "CLIENT LIST", "CLIENT SETNAME redisinsight", "CLIENT INFO",
		"MODULE LIST", "COMMAND", "COMMAND COUNT", "COMMAND DOCS get", "CONFIG GET databases", "CONFIG GET maxmemory*", "CONFIG GET requirepass",
		"DBSIZE", "SCAN 0 MATCH * COUNT 100", "SCAN 0 TYPE hash COUNT 100", "TYPE k", "TTL k", "PTTL k", "STRLEN k", "MEMORY USAGE k", "MEMORY USAGE h SAMPLES 0",
		"MEMORY STATS", "MEMORY DOCTOR", "OBJECT ENCODING h", "OBJECT IDLETIME h", "OBJECT HELP", "HLEN h", "HSCAN h 0 COUNT 100", "ZCARD z", "ZSCAN z 0",
		"SLOWLOG GET 50", "SLOWLOG LEN", "LATENCY LATEST", "LATENCY HISTORY command", "LATENCY DOCTOR", "LATENCY HISTOGRAM",
		"CONFIG GET slowlog*", "PUBSUB CHANNELS *", "PUBSUB NUMPAT", "ROLE", "LASTSAVE", "TIME", "SCRIPT EXISTS 0", "LOLWUT", "WAIT 0 0",
	} {
		// With -e, redis-cli exits with an error code after an error reply.
		if out, ok := cli.run(time.Minute, "", append([]string{"-e"}, strings.Fields(line)...)...); !ok {
			t.Errorf("%s: %s", line, out)
		}
	}
}

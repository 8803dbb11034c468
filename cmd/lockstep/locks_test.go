package main

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// redissonOwner is the name of an owner of Redisson.
const redissonOwner = "0c5e3c4e-9d1f-4b1c-8a55-1f2b6d0a7e11:1"

// locksOfAllKinds makes locks of several kinds. A client waits for the lock nightly-report.
func locksOfAllKinds(t *testing.T, n *nodes.Node) {
	t.Helper()
	c := n.Dial()
	for _, command := range [][]string{
		{"SET", "nightly-report", "host-7:4711", "NX", "PX", "60000"},
		{"SET", "evil\x1b]0;owned\a\n\u202e", "me\xff\x9b", "NX"},
		{"HSET", "order:7", redissonOwner, "2"}, {"PEXPIRE", "order:7", "60000"},
		{"LOCK.ACQUIRE", "catalogue", "reader-1", "PX", "60000", "SHARED"}, {"LOCK.ACQUIRE", "catalogue", "reader-2", "PX", "60000", "SHARED"},
		{"SET", "no lock", "text"},
		{"SELECT", "3"}, {"SET", "other", "elsewhere", "NX"},
	} {
		if got, err := c.Do(command...); err != nil {
			t.Fatal(command, got, err)
		}
	}
	waits := n.Dial()
	if err := waits.Send("LOCK.ACQUIRE", "nightly-report", "host-9:17", "PX", "60000", "WAIT", "60000"); err != nil {
		t.Fatal(err)
	}
	until(t, "a client that waits", func() bool {
		reply, err := n.Do("LOCK.WAITERS", "nightly-report")
		list, _ := reply.([]any)
		return err == nil && len(list) == 1
	})
}

// keysOf returns the names of the locks in the JSON of `lockstep locks`, sorted.
func keysOf(t *testing.T, out string) string {
	t.Helper()
	list, is := oneJSON(t, out).([]any)
	if !is {
		t.Fatalf("no list: %s", out)
	}
	keys := []string{}
	for _, row := range list {
		m, _ := row.(map[string]any)
		keys = append(keys, fmt.Sprint(m["key"]))
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

// TestLocksOnTheCommandLine finds who holds locks and who waits, and ends locks, in both forms.
func TestLocksOnTheCommandLine(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	if code, out, _ := ran("locks", "--addr", n.Addr); code != exitOK || out != "no locks\n" {
		t.Errorf("exit code %d: %q", code, out)
	}
	if code, out, _ := ran("locks", "--addr", n.Addr, "--output", "json"); code != exitOK || out != "[]\n" {
		t.Errorf("exit code %d: %q", code, out)
	}
	locksOfAllKinds(t, n)
	const evil = "evil\x1b]0;owned\a\n\u202e"
	for _, c := range []struct {
		args string // blanks between the arguments
		keys string
	}{
		{"", "catalogue " + evil + " nightly-report order:7"},
		{"--match n*", "nightly-report"},
		{"--kind redisson", "order:7"},
		{"--kind shared", "catalogue"},
		{"--owner host-*", "nightly-report"},
		{"--owner reader-2", "catalogue"},
		{"--min-waiters 1", "nightly-report"},
		{"--min-waiters 2", ""},
		{"--db 3", "other"},
		{"--db 4", ""},
	} {
		args := append([]string{"locks", "--addr", n.Addr, "--output", "json"}, strings.Fields(c.args)...)
		if code, out, faults := ran(args...); code != exitOK || keysOf(t, out) != c.keys {
			t.Errorf("%q: exit code %d: %q %s", c.args, code, out, faults)
		}
	}
	if _, out, _ := ran("locks", "--addr", n.Addr, "--limit", "2", "--output", "json"); len(oneJSON(t, out).([]any)) != 2 {
		t.Errorf("--limit 2: %s", out)
	}
	_, out, _ := ran("locks", "--addr", n.Addr)
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	slices.Sort(lines)
	if len(lines) != 5 || strings.Join(strings.Fields(lines[0]), " ") != "KEY KIND OWNER HOLDERS TOKEN TTL WAITERS HELD FOR CLIENT" ||
		!strings.HasPrefix(lines[2], `evil\x1b]0;owned\a\n\u202e  plain     me\xff\x9b `) || !strings.HasPrefix(lines[4], "order:7                     redisson  "+redissonOwner) {
		t.Errorf("%q", lines)
	}
	_, out, _ = ran("locks", "--addr", n.Addr, "--match", "evil*", "--output", "json")
	if !strings.Contains(out, `"owner": "me\ufffd\ufffd", "owner_base64": "bWX/mw==", `) || !strings.Contains(out, `"ttl": -1`) {
		t.Error(out)
	}

	code, out, faults := ran("lock-info", "catalogue", "--addr", n.Addr)
	if fields := strings.Fields(out); code != exitOK || !strings.Contains(out, "kind     shared\n") || !strings.Contains(out, "holders  2\n") || !slices.Contains(fields, "reader-1") ||
		!strings.Contains(out, "\n\nOWNER     HOLDS  PERMITS  TOKEN") {
		t.Errorf("exit code %d: %s%s", code, out, faults)
	}
	_, out, _ = ran("lock-info", "catalogue", "--addr", n.Addr, "--output", "json")
	info := oneJSON(t, out).(map[string]any)
	if owners := info["owners"].([]any); len(owners) != 2 || strings.Join(names(owners[0]), " ") != "addr age client holds name node owner permits token ttl" ||
		strings.Join(names(info), " ") != "holders key kind owners token ttl waiters" {
		t.Errorf("%v", info)
	}
	for _, form := range []string{"text", "json"} {
		code, out, faults := ran("lock-info", "no lock", "--addr", n.Addr, "--output", form)
		if code != exitNoLock || out != map[string]string{"text": "", "json": "null\n"}[form] || faults != "lockstep: there is no lock \"no lock\" in this database\n" {
			t.Errorf("exit code %d: %q %q", code, out, faults)
		}
	}

	_, out, _ = ran("lock-waiters", "nightly-report", "--addr", n.Addr)
	if fields := strings.Fields(out); len(fields) != 11 || strings.Join(fields[:9], " ") != "OWNER QUEUE USER WAITED SHARED NODE host-9:17 server default" || fields[10] != "no" {
		t.Error(out)
	}
	_, out, _ = ran("lock-waiters", "nightly-report", "--addr", n.Addr, "--output", "json")
	if list := oneJSON(t, out).([]any); len(list) != 1 || list[0].(map[string]any)["shared"] != false {
		t.Error(out)
	}
	_, out, _ = ran("lock-waiters", "catalogue", "--addr", n.Addr)
	_, none, _ := ran("lock-waiters", "catalogue", "--addr", n.Addr, "--output", "json")
	if out != "no client waits for \"catalogue\"\n" || none != "[]\n" {
		t.Errorf("%q, %q", out, none)
	}
}

// TestForceOnTheCommandLine ends locks: only that which the flags name, with the reason.
func TestForceOnTheCommandLine(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	locksOfAllKinds(t, n)
	events := n.Dial()
	if _, err := events.Do("SUBSCRIBE", "__lock@0__:forced"); err != nil {
		t.Fatal(err)
	}
	force := func(want int, words string, args ...string) {
		t.Helper()
		code, out, faults := ran(append([]string{"force", "--addr", n.Addr, "--reason", "a test"}, args...)...)
		if code != want || !strings.Contains(out+faults, words) {
			t.Errorf("%q: exit code %d: %s%s", args, code, out, faults)
		}
	}
	t.Setenv("LOCKSTEP_OWNER", "host-9:17") // as under lockstep lock: it is no flag
	t.Setenv("LOCKSTEP_TOKEN", "1")
	force(exitOK, "lost the lock: 0\n", "nightly-report", "--owner", "somebody")
	force(exitOK, "lost the lock: 0\n", "nightly-report", "--owner", "")
	force(exitOK, "lost the lock: 0\n", "nightly-report", "--token", "1")
	force(exitOK, "lost the lock: 0\n", "absent")
	force(exitOK, `{"ended": 0}`, "other", "--output", "json")
	force(exitOK, `{"ended": 1}`, "other", "--db", "3", "--output", "json")
	force(exitOK, "lost the lock: 1\n", "catalogue", "--owner", "reader-1")
	force(exitOK, "lost the lock: 1\n", "nightly-report")
	force(exitRuntime, "LOCKMODE", "no lock")
	force(exitUsage, "token", "x", "--token", "-1")
	force(exitUsage, "token", "x", "--token", "9223372036854775808")
	force(exitUsage, "one NAME and a reason")
	force(exitUsage, "one NAME and a reason", "a", "b")
	if code, _, faults := ran("force", "a", "--addr", n.Addr); code != exitUsage || !strings.Contains(faults, "--reason") {
		t.Errorf("without a reason: exit code %d: %s", code, faults)
	}
	if got, err := n.Do("GET", "nightly-report"); got != "host-9:17" {
		t.Errorf("the lock has gone to %v, %v, not to the client that waited", got, err)
	}
	for _, key := range []string{"catalogue", "nightly-report"} {
		got, err := events.Receive()
		if list, _ := got.([]any); err != nil || len(list) != 3 || !strings.Contains(fmt.Sprint(list[2]), `"key":"`+key+`"`) || !strings.Contains(fmt.Sprint(list[2]), `"reason":"a test"`) {
			t.Errorf("an event for %s: %v, %v", key, got, err)
		}
	}
}

// TestUsageOfLocks: mistakes on the command line are named before a node is asked.
func TestUsageOfLocks(t *testing.T) {
	for _, c := range []struct {
		args  []string
		words []string
	}{
		{[]string{"locks", "order*"}, []string{"unexpected argument", "--match order*", "lock-info"}},
		{[]string{"locks", "--limit", "-1"}, []string{"--limit", "from 0 on"}},
		{[]string{"locks", "--min-waiters", "-1"}, []string{"--min-waiters", "from 0 on"}},
		{[]string{"locks", "--limit", "many"}, []string{"limit", "a whole number"}},
		{[]string{"lock-info"}, []string{"want one NAME", "lockstep lock-info nightly-report"}},
		{[]string{"lock-waiters", "a", "b"}, []string{"want one NAME"}},
		{[]string{"lock-info", "a", "--timeout", "0s"}, []string{"--timeout must be more than 0"}},
	} {
		refused(t, exitUsage, c.words, c.args...)
	}
}

// TestLocksAsAUser: an ACL user sees the locks that it may see, and ends none without the right.
func TestLocksAsAUser(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	locksOfAllKinds(t, n)
	if got, err := n.Do("ACL", "SETUSER", "auditor", "on", ">pass", "~order:*", "+lock.list", "+lock.info", "+select"); got != "OK" {
		t.Fatal(got, err)
	}
	as := []string{"--addr", n.Addr, "--user", "auditor", "--requirepass", "pass", "--output", "json"}
	if _, out, faults := ran(append([]string{"locks"}, as...)...); keysOf(t, out) != "order:7" {
		t.Errorf("%s%s", out, faults)
	}
	for _, args := range [][]string{{"lock-info", "nightly-report"}, {"lock-waiters", "order:7"}, {"force", "order:7", "--reason", "x"}, {"lock-info", "a", "--db", "99"}} {
		if code, out, faults := ran(append(args, as...)...); code != exitRuntime || out != "" || !strings.Contains(faults, "NOPERM") && !strings.Contains(faults, "DB index") {
			t.Errorf("%q: exit code %d: %s%s", args, code, out, faults)
		}
	}
}

// TestManyLocks: all pages are read, and each lock is shown once.
func TestManyLocks(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	const count = 5000
	c := n.Dial()
	for i := range count {
		if err := c.Send("SET", fmt.Sprint("lock:", i), fmt.Sprint("owner", i), "NX"); err != nil {
			t.Fatal(err)
		}
	}
	for range count {
		if got, err := c.Receive(); got != "OK" {
			t.Fatal(got, err)
		}
	}
	code, out, faults := ran("locks", "--addr", n.Addr, "--output", "json")
	keys := strings.Fields(keysOf(t, out))
	if code != exitOK || len(slices.Compact(keys)) != count {
		t.Errorf("exit code %d: %d locks: %s", code, len(keys), faults)
	}
	_, out, _ = ran("locks", "--addr", n.Addr, "--limit", "1500")
	if lines := strings.Count(out, "\n"); lines != 1501 {
		t.Errorf("%d lines", lines)
	}
}

// firstLine is a writer that tells of its first write.
type firstLine struct {
	written chan struct{}
	all     strings.Builder
}

func (f *firstLine) Write(b []byte) (int, error) {
	if f.all.Len() == 0 {
		close(f.written)
	}
	return f.all.Write(b)
}

// TestLocksAreStreamed: the rows of a page are printed before the next page comes, so the memory does not grow with the number of locks.
func TestLocksAreStreamed(t *testing.T) {
	for _, form := range []string{"text", "json"} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		out := &firstLine{written: make(chan struct{})}
		go func() {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			for i, next := range []string{"5", "0"} {
				if _, err := conn.Read(make([]byte, 4096)); err != nil {
					return
				}
				if i == 1 {
					<-out.written
				}
				_, _ = io.WriteString(conn, "*2\r\n"+bulk(next)+"*1\r\n*2\r\n"+bulk("key")+bulk(fmt.Sprint("lock", i)))
			}
		}()
		code := run([]string{"locks", "--addr", ln.Addr().String(), "--output", form}, out, io.Discard)
		want := map[string]string{"text": "KEY\nlock0\nlock1\n", "json": "[\n{\"key\": \"lock0\"},\n{\"key\": \"lock1\"}\n]\n"}[form]
		if got := out.all.String(); code != exitOK || got != want {
			t.Errorf("exit code %d: %q", code, got)
		}
		ln.Close()
	}
}

// TestListThatBreaksOff: if a page does not come, what was printed is no whole JSON value, and the command fails.
func TestListThatBreaksOff(t *testing.T) {
	page := func(cursor string) string { return "*2\r\n" + bulk(cursor) + "*1\r\n*2\r\n" + bulk("key") + bulk("a") }
	for what, second := range map[string]string{"an error": "-ERR no\r\n", "the same cursor": page("5"), "a smaller cursor": page("4"), "no page": "*0\r\n", "no cursor": page("x"),
		"a cursor below 0": page("-1"), "rows of text": "*2\r\n" + bulk("0") + "*1\r\n" + bulk("a")} {
		code, out, faults := ran("locks", "--addr", stranger(t, page("5"), second), "--output", "json")
		if code != exitRuntime || !strings.HasPrefix(out, "[\n{\"key\": \"a\"}") || strings.Contains(out, "]") || strings.Count(faults, "lockstep: ") != 1 {
			t.Errorf("%s: exit code %d: %q %q", what, code, out, faults)
		}
	}
}

// figures are what differs from run to run: tokens, and times with and without their units.
var figures = regexp.MustCompile(`(?m)"(?:age|client)": \d+|"addr": "[\d.:]*"|\b(127\.0\.0\.1:\d+|n\d:\d+|1\d{15}|[\d.]+m?s|[1-9]\d{4}|\d{4}-\S+Z)\b|^\d+\b`)

// TestLocksAreDocumented runs the commands of "On the command line" in docs/locks.md, and compares the output but for the figures.
func TestLocksAreDocumented(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	locksOfAllKinds(t, n)
	_, block, found := strings.Cut(read(t, root+"/docs/locks.md"), "```\n$ lockstep locks")
	block, _, closed := strings.Cut(block, "\n```")
	if !found || !closed {
		t.Fatal("docs/locks.md has no such block")
	}
	plain := func(text string) string {
		return regexp.MustCompile(` +`).ReplaceAllString(figures.ReplaceAllString(strings.TrimSpace(text), "N"), " ")
	}
	token := ""
	for _, step := range strings.Split("locks"+block, "\n$ lockstep ") {
		line, want, _ := strings.Cut(step, "\n")
		line = regexp.MustCompile(`--token \d+`).ReplaceAllString(line, "--token "+token)
		var args []string
		for _, m := range regexp.MustCompile(`"([^"]*)"|(\S+)`).FindAllStringSubmatch(line, -1) {
			args = append(args, m[1]+m[2])
		}
		code, out, faults := ran(append(args, "--addr", n.Addr)...)
		if code != exitOK || plain(out) != plain(want) {
			t.Errorf("lockstep %s: exit code %d:\n%s%s\nwant\n%s", line, code, out, faults, want)
		}
		if m := regexp.MustCompile(`1\d{15}`).FindString(out); m != "" {
			token = m
		}
	}
}

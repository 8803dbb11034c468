package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// events returns the events of a JSON list, each with its lock and its owner.
func events(t *testing.T, out string) (list []string) {
	t.Helper()
	rows, is := oneJSON(t, out).([]any)
	if !is {
		t.Fatalf("no list: %s", out)
	}
	for _, row := range rows {
		m, _ := row.(map[string]any)
		list = append(list, fmt.Sprint(m["event"], " ", m["key"], " ", m["owner"]))
	}
	return list
}

// TestHistoryOnTheCommandLine shows what has happened to locks, in both forms, for one lock and for all.
func TestHistoryOnTheCommandLine(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	c := n.Dial()
	for _, command := range [][]string{{"SET", "a", "one", "NX", "PX", "60000"}, {"DEL", "a"}, {"SET", "b\x1b[2J", "two\xff", "NX"}, {"LOCK.FORCE", "b\x1b[2J", "REASON", "it hangs\n"},
		{"SELECT", "2"}, {"SET", "c", "three", "NX"}} {
		if got, err := c.Do(command...); err != nil {
			t.Fatal(command, got, err)
		}
	}
	const a, b = "granted a one, released a one", "granted b\x1b[2J two\ufffd, forced b\x1b[2J two\ufffd"
	soon := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, c := range []struct{ args, want string }{
		{"", a + ", " + b},
		{"a", a},
		{"absent", ""},
		{"--db 2", "granted c three"},
		{"--event forced", "forced b\x1b[2J two\ufffd"},
		{"--count 1", "forced b\x1b[2J two\ufffd"},
		{"--count 1 --from 0", "granted a one"},
		{"--since 1h a", a},
		{"--since 2020-01-01T00:00:00Z a", a},
		{"--since " + soon, ""},
		{"--from 9223372036854775807", ""},
	} {
		code, out, faults := ran(append([]string{"history", "--addr", n.Addr, "--output", "json"}, strings.Fields(c.args)...)...)
		var got []string
		for _, event := range events(t, out) {
			if !strings.HasPrefix(event, "gap ") { // what the node cannot tell is there in every reply
				got = append(got, event)
			}
		}
		if code != exitOK || strings.Join(got, ", ") != c.want {
			t.Errorf("%q: exit code %d: %q, want %q%s", c.args, code, got, c.want, faults)
		}
	}
	_, out, _ := ran("history", "--addr", n.Addr, "--event", "forced", "--output", "json")
	if got := strings.Join(names(oneJSON(t, out).([]any)[0]), " "); got != "at client event holds key kind node owner owner_base64 reason seq token ttl user" {
		t.Error(got)
	}
	_, out, _ = ran("history", "--addr", n.Addr)
	row := regexp.MustCompile(`(?m)^\d+ +\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z +forced +b\\x1b\[2J +plain +two\\xff +\d{16} +0 +0s +default +it hangs\\n *$`)
	if !strings.HasPrefix(out, "SEQ ") || !row.MatchString(out) {
		t.Errorf("%q", out)
	}
	if code, out, _ := ran("history", "--addr", n.Addr, "--from", "9223372036854775807"); code != exitOK || out != "no events\n" {
		t.Errorf("exit code %d: %q", code, out)
	}
}

// TestLockStatsOnTheCommandLine counts events by kind, and names the locks that are taken most.
func TestLockStatsOnTheCommandLine(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	code, out, faults := ran("lock-stats", "--addr", n.Addr)
	if code != exitOK || out != "kinds: none\n\ntop: none\n" {
		t.Errorf("exit code %d: %q%s", code, out, faults)
	}
	locksOfAllKinds(t, n)
	_, out, _ = ran("lock-stats", "--addr", n.Addr)
	if !strings.HasPrefix(out, "KIND      GRANTED  ") || !regexp.MustCompile(`(?m)^redisson +1 +0 `).MatchString(out) || !regexp.MustCompile(`(?m)^catalogue +2 +0 +0 `).MatchString(out) {
		t.Error(out)
	}
	_, out, _ = ran("lock-stats", "--addr", n.Addr, "--top", "1", "--output", "json")
	v, _ := oneJSON(t, out).(map[string]any)
	kinds, _ := v["kinds"].([]any)
	top, _ := v["top"].([]any)
	if len(kinds) < 3 || len(top) != 1 || !strings.HasPrefix(strings.Join(names(kinds[0]), " "), "expired forced granted kind ") ||
		strings.Join(names(top[0]), " ") != "expired forced granted held_ms key longest_ms" {
		t.Error(out)
	}
}

// TestUsageOfHistory: mistakes on the command line are named before a node is asked, or by the node.
func TestUsageOfHistory(t *testing.T) {
	for _, c := range []struct {
		args  []string
		words []string
	}{
		{[]string{"history", "a", "b"}, []string{"unexpected argument", "want one NAME"}},
		{[]string{"history", "--count", "0"}, []string{"--count 0", "from 1 to 10000"}},
		{[]string{"history", "--count", "10001"}, []string{"--count 10001"}},
		{[]string{"history", "--from", "-1"}, []string{"from", "a whole number"}},
		{[]string{"history", "--since", "10"}, []string{"since", "such as 10m"}},
		{[]string{"history", "--since", "-10m"}, []string{"since", "such as 10m"}},
		{[]string{"history", "--since", "1960-01-01T00:00:00Z"}, []string{"since", "such as 10m"}},
		{[]string{"lock-stats", "a"}, []string{"unexpected argument"}},
		{[]string{"lock-stats", "--top", "-1"}, []string{"--top -1"}},
	} {
		refused(t, exitUsage, c.words, c.args...)
	}
	n := nodes.Start(t, 1)[0]
	refused(t, exitRuntime, []string{"unknown event"}, "history", "--event", "lost", "--addr", n.Addr)
	refused(t, exitRuntime, []string{"TOP"}, "lock-stats", "--top", "1001", "--addr", n.Addr)
}

// TestStatsOfAStranger: lists of another form are an error.
func TestStatsOfAStranger(t *testing.T) {
	for _, reply := range []string{"*2\r\n" + bulk("kinds") + bulk("x"), "*2\r\n" + bulk("kinds") + "*2\r\n" + bulk("plain") + bulk("x"), "*2\r\n" + bulk("kinds") + "*1\r\n" + bulk("x")} {
		for _, form := range []string{"text", "json"} {
			if code, out, faults := ran("lock-stats", "--addr", stranger(t, reply), "--output", form); code != exitRuntime || out != "" || !strings.Contains(faults, "answered otherwise") {
				t.Errorf("%q: exit code %d: %q %q", reply, code, out, faults)
			}
		}
	}
	for _, reply := range []string{"*2\r\n" + bulk("x") + bulk("0"), "*2\r\n" + bulk("-1") + bulk("0"), "*2\r\n" + bulk("9223372036854775807") + bulk("0"), "*0\r\n"} {
		if code, _, faults := ran("history", "--since", "1h", "--addr", stranger(t, reply)); code != exitRuntime || !strings.Contains(faults, "answered otherwise") {
			t.Errorf("%q: exit code %d: %q", reply, code, faults)
		}
	}
}

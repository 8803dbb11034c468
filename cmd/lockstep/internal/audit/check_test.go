package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/server/history"
	"lockstep/store"
)

// line parses "SEQ EVENT KEY KIND OWNER TOKEN [HOLDS]".
func line(t *testing.T, text string) history.Event {
	t.Helper()
	e := history.Event{At: 1_700_000_000_000}
	var how string
	e.Holds = 1
	if _, err := fmt.Sscan(text, &e.Seq, &how); err != nil {
		t.Fatal(text, err)
	}
	e.How, _ = store.LockHowOf(how)
	if words := strings.Fields(text); len(words) > 2 {
		e.Key, e.Kind, e.Owner = words[2], words[3], words[4]
		fmt.Sscan(words[5], &e.Token)
		e.Permits, e.Limit = 1, 2
		if e.Holds = store.Flag(!e.How.Ends()).Int; len(words) > 6 {
			fmt.Sscan(words[6], &e.Holds)
		}
	}
	return e
}

// written writes a file of events.
func written(t *testing.T, events string) string {
	t.Helper()
	var b []byte
	for _, text := range strings.Split(events, "; ") {
		e := line(t, text)
		b = append(e.AppendJSON(b), '\n')
	}
	path := filepath.Join(t.TempDir(), "events.jsonl")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFaultsAreFound: each fault is found, and nothing else is one.
func TestFaultsAreFound(t *testing.T) {
	const thread, other = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0:1", "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0:2"
	for events, want := range map[string]string{
		"1 granted k plain a 5; 2 released k plain a 5; 3 granted k plain b 6":                                     "",
		"1 granted k plain a 5; 2 granted k plain b 6":                                                             `k of database 0 was granted to "b" while "a" held it`,
		"1 granted k plain a 5; 2 granted l plain b 6":                                                             "",
		"1 granted k plain a 5; 2 gap; 3 granted k plain b 6":                                                      "",
		"1 granted k plain a 5; 2 flushed; 3 granted k plain b 6":                                                  "",
		"1 granted k redisson a 5; 2 granted k redisson a 5 2; 3 released k redisson a 5 1; 4 granted k plain b 6": "was granted to",
		"1 granted k redisson a 5; 2 granted k redisson a 5 2; 3 released k redisson a 5 0; 4 granted k plain b 6": "",
		"1 granted k plain a 5; 2 expired k plain a 5; 3 granted k plain b 5":                                      "with the token 5, after 5",
		"1 granted k plain a 5; 2 forced k plain a 5; 3 granted k plain b 4":                                       "with the token 4, after 5",
		"1 granted k shared a 5; 2 granted k shared b 6":                                                           "",
		"1 granted k shared a 5; 2 granted k exclusive b 6":                                                        "was granted to",
		"1 granted k exclusive a 5; 2 granted k shared a 5; 3 granted k shared b 6":                                "",
		"1 granted k limit a 5; 2 granted k limit b 6":                                                             "",
		"1 granted k limit a 5; 2 granted k limit b 6; 3 granted k limit c 7":                                      "has 2 permits",
		"1 granted k redisson-readwrite " + thread + " 5; 2 granted k redisson-readwrite " + other + " 5":          "",
		"1 granted k redisson-readwrite " + thread + ":write 5; 2 granted k redisson-readwrite " + other + " 5":    "was granted to",
		"1 granted k redisson-readwrite " + thread + ":write 5; 2 granted k redisson-readwrite " + thread + " 5":   "",
		"1 granted k redisson-readwrite " + thread + " 5; 2 granted k redisson-readwrite " + other + ":write 6":    "was granted to",
	} {
		_, faults := check(t, written(t, events))
		if want == "" && faults != "" || !strings.Contains(faults, want) {
			t.Errorf("%s: %q, want %q", events, faults, want)
		}
	}
}

// TestLeaseThatEndsEarly: a lease that ended before its time is found, but for what an entry may be set back.
func TestLeaseThatEndsEarly(t *testing.T) {
	for early, want := range map[int64]bool{-1: false, lateness: false, lateness + 1: true} {
		e := history.Event{LockEvent: store.LockEvent{How: store.LockExpired, Key: "k", Owner: "a", Deadline: 1000}, Seq: 1, Lease: 1000 - early}
		path := filepath.Join(t.TempDir(), "events.jsonl")
		if err := os.WriteFile(path, append(e.AppendJSON(nil), '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, faults := check(t, path); strings.Contains(faults, "ended 1 ms too early") != want {
			t.Errorf("%d ms early: %q", early, faults)
		}
	}
}

// TestNodesAreCompared: what one node has missed another one tells, and no two tell different things.
func TestNodesAreCompared(t *testing.T) {
	all := "1 granted k plain a 5; 2 released k plain a 5; 3 granted k plain b 6; 4 granted k plain c 7"
	whole := written(t, all)
	gap := written(t, "1 granted k plain a 5; 3 gap; 4 granted k plain c 7")
	late := written(t, "2 gap; 3 granted k plain b 6; 4 granted k plain c 7")
	for _, paths := range [][]string{{whole}, {whole, gap}, {gap, whole}, {late, whole, gap}, {whole, whole}} {
		if sum, faults := check(t, paths...); sum.Events != 4 || sum.Gaps != 0 || sum.Faults != 1 || !strings.Contains(faults, `granted to "c" while "b" held it`) {
			t.Errorf("%+v %s", sum, faults)
		}
	}
	if sum, faults := check(t, gap); sum.Gaps != 1 || faults != "" {
		t.Errorf("%+v %s", sum, faults)
	}
	different := written(t, "1 granted k plain a 5; 2 released k plain a 5; 3 granted k plain z 6")
	if _, faults := check(t, whole, different); !strings.Contains(faults, "write set 3: ") || !strings.Contains(faults, "tell different events") {
		t.Error(faults)
	}
}

// TestBadFiles: what is no history of locks is an error that names the line.
func TestBadFiles(t *testing.T) {
	good := `{"seq":2,"at":"2026-01-01T00:00:00.000Z","event":"flushed"}` + "\n"
	for text, want := range map[string]string{
		good + "x\n": "events.jsonl:2: ",
		good + strings.Replace(good, "2", "1", 1):   "events.jsonl:2: write set 1 comes after 2",
		strings.Repeat("y", 2*maxLine):              "events.jsonl:1: ",
		strings.Replace(good, "flushed", "gone", 1): "unknown event",
	} {
		path := filepath.Join(t.TempDir(), "events.jsonl")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Check([]string{path}, func(string) {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q", text, err, want)
		}
	}
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "absent")} {
		if _, err := Check([]string{path}, func(string) {}); err == nil {
			t.Error(path)
		}
	}
}

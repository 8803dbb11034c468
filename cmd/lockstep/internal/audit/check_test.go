package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/server/history"
	"github.com/lockstep-io/lockstep/store"
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
	switch words := strings.Fields(text); {
	case e.How == store.LockGap && len(words) > 2:
		e.Reason = anotherState
	case len(words) > 2:
		e.Key, e.Kind, e.Owner = words[2], words[3], strings.TrimPrefix(words[4], "-")
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
		"1 granted k plain - 5; 2 released k plain - 5; 3 granted k plain b 6":                                     "",
		"1 granted k plain - 5; 2 granted k plain b 6":                                                             "was granted to",
		"1 granted k plain a 5; 2 gap; 3 granted k plain a 5 2; 4 granted k plain a 5 3":                           "",
		"1 granted k plain a 5; 2 gap; 3 granted k plain b 5":                                                      "k of database 0 was granted with the token 5, after 5",
		"1 granted k plain a 5; 2 released k plain a 5; 3 granted k plain b 5 2":                                   "k of database 0 was granted with the token 5, after 5",
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

// TestNodeThatTellsNothing: a node that has no event of a write set, and no gap either, has lost it.
func TestNodeThatTellsNothing(t *testing.T) {
	whole := written(t, "1 granted k plain a 5; 2 renewed k plain a 5; 3 released k plain a 5; 4 granted k plain b 6; 5 released k plain b 6")
	for events, want := range map[string]string{
		"1 granted k plain a 5; 3 released k plain a 5; 4 granted k plain b 6; 5 released k plain b 6": "",
		"1 granted k plain a 5; 5 released k plain b 6":                                                "write set 3: ",
		"1 granted k plain a 5; 4 gap; 5 released k plain b 6":                                         "",
		"1 granted k plain a 5; 1 gap; 5 released k plain b 6":                                         "",
		"4 granted k plain b 6; 5 released k plain b 6":                                                "",
		"1 granted k plain a 5":                                                                        "",
	} {
		if _, faults := check(t, whole, written(t, events)); want == "" && faults != "" || !strings.Contains(faults, want) {
			t.Errorf("%s: %q, want %q", events, faults, want)
		}
	}
}

// TestNodesAfterARestore: the write sets of a restored cluster have numbers that its nodes have given before, and not all of them equally many.
func TestNodesAfterARestore(t *testing.T) {
	const first, second = "1 granted k plain a 5; 2 released k plain a 5", "; 1 gap new; 2 granted k plain b 100; 3 granted l plain b 101; 4 released k plain b 100"
	long, short := written(t, first+"; 3 granted k plain c 7; 4 released k plain c 7; 5 granted k plain d 8"+second), written(t, first+second)
	for _, paths := range [][]string{{long}, {short}, {long, short}, {short, long}, {short, long, long}} {
		if sum, faults := check(t, paths...); faults != "" || sum.Locks != 2 {
			t.Errorf("%+v %s", sum, faults)
		}
	}
	if _, faults := check(t, long, written(t, first+strings.Replace(second, "101", "102", 1))); !strings.Contains(faults, "write set 3: ") {
		t.Error(faults)
	}
}

// TestFlushesAndSwaps: FLUSHALL and SWAPDB do not visit each of many locks.
func TestFlushesAndSwaps(t *testing.T) {
	c := &checker{fault: func(text string) { t.Error(text) }, dbs: map[int]*database{}}
	e := history.Event{LockEvent: store.LockEvent{How: store.LockGranted, Kind: "plain", Holds: 1}}
	grant := func(db int, key, owner string, token uint64) {
		e.DB, e.Key, e.Owner, e.Token = db, key, owner, token
		c.event(&e)
	}
	for i := range 100_000 {
		grant(0, fmt.Sprint(i), "a", 1)
	}
	grant(1, "k", "b", 2)
	for range 100_001 {
		c.event(&history.Event{LockEvent: store.LockEvent{How: store.LockSwapped, Holds: 1}})
		c.event(&history.Event{LockEvent: store.LockEvent{How: store.LockFlushed, DB: 7}})
	}
	grant(0, "k", "b", 2) // still held
	grant(0, "7", "c", 3)
	c.event(&history.Event{LockEvent: store.LockEvent{How: store.LockFlushed, DB: 1}})
	grant(1, "7", "d", 4)
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

// TestNodesNeedNotKnowTheClient: a node that cannot name the client of a grant tells the same event as one that can.
func TestNodesNeedNotKnowTheClient(t *testing.T) {
	e := history.Event{LockEvent: store.LockEvent{How: store.LockGranted, Key: "k", Owner: "o", Token: 7}, Seq: 3}
	named, other := e, e
	named.Node, named.ClientID, other.Owner = "n2", 17, "p"
	if !same(e, named) || same(e, other) {
		t.Errorf("%v %v", same(e, named), same(e, other))
	}
}

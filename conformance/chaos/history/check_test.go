package history

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// line is an operation as the tests write it. Times are in milliseconds. A return time of 0 means that the outcome is unknown.
type line struct {
	from, to    int64
	call, owner string
	result      string
}

const ttl = 1000 // ms, of every lease in the tests

func ops(kind Kind, lines []line) []Op {
	var list []Op
	for i, l := range lines {
		list = append(list, Op{Client: i, Kind: kind, Key: "k", Call: l.call, Owner: l.owner, TTL: ttl * 1e6,
			Invoke: l.from * 1e6, Return: l.to * 1e6, Unknown: l.to == 0, Result: l.result})
	}
	return list
}

var histories = []struct {
	name  string
	kind  Kind
	good  bool
	lines []line
}{
	{"one owner after the other", Lock, true, []line{{1, 2, "acquire", "a", "1"}, {3, 4, "acquire", "b", "0"}, {5, 6, "read", "", "a"},
		{7, 8, "release", "a", "1"}, {9, 10, "read", "", ""}, {11, 12, "acquire", "b", "1"}, {13, 14, "left", "", "998"}}},
	{"two owners at once", Lock, false, []line{{1, 2, "acquire", "a", "1"}, {3, 4, "acquire", "b", "1"}}},
	{"two owners at once, asked together", Lock, false, []line{{1, 9, "acquire", "a", "1"}, {1, 9, "acquire", "b", "1"}}},
	{"two owners after one another, asked together with the release", Lock, true,
		[]line{{1, 2, "acquire", "a", "1"}, {3, 9, "release", "a", "1"}, {3, 9, "acquire", "b", "1"}}},
	{"a lease that ended in time", Lock, true, []line{{0, 2, "acquire", "a", "1"}, {900, 1000, "acquire", "b", "1"}}},
	{"a lease that ended early", Lock, false, []line{{2, 3, "acquire", "a", "1"}, {900, 1000, "acquire", "b", "1"}}},
	{"a lease that ended late", Lock, true, []line{{2, 3, "acquire", "a", "1"}, {9000, 9001, "acquire", "b", "0"}}},
	{"a lease that ended early, seen by a read", Lock, false, []line{{2, 3, "acquire", "a", "1"}, {998, 999, "read", "", ""}}},
	{"a lease that is shorter than promised", Lock, false, []line{{2, 3, "acquire", "a", "1"}, {4, 5, "left", "", "900"}}},
	{"a lease that ended and came back", Lock, false, []line{{2, 3, "acquire", "a", "1"}, {2001, 2002, "read", "", ""}, {2003, 2004, "read", "", "a"}}},
	{"a renewed lease that ended early", Lock, false, []line{{1, 2, "acquire", "a", "1"}, {500, 501, "renew", "a", "1"}, {1100, 1200, "acquire", "b", "1"}}},
	{"a renewed lease", Lock, true, []line{{1, 2, "acquire", "a", "1"}, {500, 501, "renew", "a", "1"}, {1400, 1600, "acquire", "b", "1"}}},
	{"renewed after it was lost", Lock, false, []line{{1, 2, "acquire", "a", "1"}, {1400, 1600, "acquire", "b", "1"}, {1601, 1602, "renew", "a", "1"}}},
	{"two orders of ends that cannot both be", Lock, false, []line{{1, 2, "acquire", "a", "1"}, {900, 1600, "acquire", "b", "1"}, {1700, 1800, "acquire", "c", "1"}}},
	{"a lost lock", Lock, false, []line{{1, 2, "acquire", "a", "1"}, {3, 4, "release", "a", "0"}}},
	{"an old owner read", Lock, false, []line{{1, 2, "acquire", "a", "1"}, {3, 4, "release", "a", "1"}, {5, 6, "acquire", "b", "1"}, {7, 8, "read", "", "a"}}},
	{"released twice", Lock, false, []line{{1, 2, "acquire", "a", "1"}, {3, 4, "release", "a", "1"}, {5, 6, "release", "a", "1"}}},
	{"refused by nobody", Lock, false, []line{{1, 2, "acquire", "a", "0"}}},
	{"refused by an acquisition nobody heard of", Lock, true, []line{{1, 0, "acquire", "x", ""}, {2, 3, "acquire", "a", "0"}, {4, 5, "read", "", "x"}}},
	{"an unknown acquisition that takes a held lock", Lock, false, []line{{1, 0, "acquire", "x", ""}, {2, 3, "acquire", "a", "1"}, {4, 5, "read", "", "x"}}},
	{"an unknown release that came later", Lock, true, []line{{1, 2, "acquire", "a", "1"}, {3, 0, "release", "a", ""}, {4, 5, "read", "", "a"}, {6, 7, "acquire", "b", "1"}}},
	{"growing counts", Lock, true, []line{{1, 2, "fenced", "a", "1"}, {3, 4, "release", "a", "1"}, {5, 6, "fenced", "b", "2"}, {7, 8, "release", "b", "1"}, {9, 0, "fenced", "c", ""}, {10, 11, "release", "c", "1"}, {12, 13, "fenced", "d", "4"}}},
	{"a count twice", Lock, false, []line{{1, 2, "fenced", "a", "1"}, {3, 4, "release", "a", "1"}, {5, 6, "fenced", "b", "1"}}},
	{"a count left out", Lock, false, []line{{1, 2, "fenced", "a", "1"}, {3, 4, "release", "a", "1"}, {5, 6, "fenced", "b", "3"}}},

	{"growing tokens", Lock, true, []line{{1, 2, "grant", "a", "5"}, {3, 4, "token", "a", "5"}, {5, 6, "release", "a", "1"}, {7, 8, "grant", "b", "7"}, {9, 10, "token", "a", ""}}},
	{"a token twice", Lock, false, []line{{1, 2, "grant", "a", "5"}, {3, 4, "release", "a", "1"}, {5, 6, "grant", "b", "5"}}},
	{"a token twice, after a lease", Lock, false, []line{{1, 2, "grant", "a", "5"}, {1200, 1201, "grant", "b", "5"}}},
	{"a smaller token", Lock, false, []line{{1, 2, "grant", "a", "5"}, {3, 4, "release", "a", "1"}, {5, 6, "acquire", "b", "1"}, {7, 8, "token", "b", "4"}}},
	{"a smaller token than that of the last owner but one", Lock, false,
		[]line{{1, 2, "grant", "a", "5"}, {3, 4, "release", "a", "1"}, {5, 0, "grant", "b", ""}, {7, 8, "release", "b", "1"}, {9, 10, "grant", "c", "4"}}},
	{"a token that a renewal has kept", Lock, true,
		[]line{{1, 2, "acquire", "a", "1"}, {3, 4, "token", "a", "5"}, {5, 6, "renew", "a", "1"}, {7, 8, "token", "a", "5"}}},
	{"a token that a renewal has changed", Lock, false,
		[]line{{1, 2, "acquire", "a", "1"}, {3, 4, "token", "a", "5"}, {5, 6, "renew", "a", "1"}, {7, 8, "token", "a", "6"}}},
	{"a held lock without a token", Lock, false, []line{{1, 2, "grant", "a", "5"}, {3, 4, "token", "a", ""}}},
	{"a token of somebody who has released", Lock, false, []line{{1, 2, "acquire", "a", "1"}, {3, 4, "release", "a", "1"}, {5, 6, "token", "a", "5"}}},
	{"tokens of owners who released while they asked", Lock, true,
		[]line{{1, 2, "grant", "a", "5"}, {3, 9, "token", "a", "5"}, {3, 9, "release", "a", "1"}, {3, 9, "grant", "b", "6"}, {3, 9, "token", "a", ""}}},

	{"taken and left twice", Hash, true, []line{{1, 2, "lock", "a", "1"}, {3, 4, "lock", "a", "2"}, {5, 6, "lock", "b", "0"}, {7, 8, "unlock", "a", "1"}, {9, 10, "count", "a", "1"}, {11, 12, "unlock", "a", "0"}, {13, 14, "lock", "b", "1"}}},
	{"free although taken twice and left once", Hash, false, []line{{1, 2, "lock", "a", "1"}, {3, 4, "lock", "a", "2"}, {5, 6, "unlock", "a", "1"}, {7, 8, "lock", "b", "1"}}},
	{"one call executed twice", Hash, false, []line{{1, 2, "lock", "a", "2"}}},
	{"one call executed twice, seen at the end", Hash, false, []line{{1, 0, "lock", "a", ""}, {2, 3, "count", "a", "2"}}},
	{"an unknown second entry", Hash, true, []line{{1, 2, "lock", "a", "1"}, {3, 0, "lock", "a", ""}, {4, 5, "unlock", "a", "1"}, {6, 7, "unlock", "a", "0"}}},
	{"two owners", Hash, false, []line{{1, 2, "lock", "a", "1"}, {3, 4, "lock", "b", "1"}}},
	{"a new count after the lease", Hash, true, []line{{1, 2, "lock", "a", "1"}, {1003, 1004, "lock", "a", "1"}}},
	{"a new count within the lease", Hash, false, []line{{1, 2, "lock", "a", "1"}, {903, 904, "lock", "a", "1"}}},
	{"a token until it was left", Hash, true, []line{{1, 2, "lock", "a", "1"}, {3, 4, "token", "a", "5"}, {5, 6, "lock", "a", "2"}, {7, 8, "unlock", "a", "1"},
		{9, 10, "token", "a", "5"}, {11, 12, "unlock", "a", "0"}, {13, 14, "lock", "a", "1"}, {15, 16, "token", "a", "6"}}},
	{"a new token when it was taken twice", Hash, false, []line{{1, 2, "lock", "a", "1"}, {3, 4, "token", "a", "5"}, {5, 6, "lock", "a", "2"}, {7, 8, "token", "a", "6"}}},
	{"the same token when it was left and taken", Hash, false,
		[]line{{1, 2, "lock", "a", "1"}, {3, 4, "token", "a", "5"}, {5, 6, "unlock", "a", "0"}, {7, 8, "lock", "a", "1"}, {9, 10, "token", "a", "5"}}},
	{"the same token after the lease", Hash, false, []line{{1, 2, "lock", "a", "1"}, {3, 4, "token", "a", "5"}, {1203, 1204, "lock", "b", "1"}, {1205, 1206, "token", "b", "5"}}},
	{"left by another", Hash, false, []line{{1, 2, "lock", "a", "1"}, {3, 4, "unlock", "b", "0"}}},
	{"renewed by another", Hash, false, []line{{1, 2, "lock", "a", "1"}, {3, 4, "renew", "b", "1"}}},
	{"lost before it was left", Hash, false, []line{{1, 2, "lock", "a", "1"}, {3, 4, "unlock", "a", "-1"}}},

	{"read after write", Register, true, []line{{1, 2, "set", "x", "OK"}, {3, 9, "set", "y", "OK"}, {4, 5, "get", "", "y"}, {6, 7, "get", "", "y"}, {10, 11, "swap", "z", "y"}}},
	{"a stale read", Register, false, []line{{1, 2, "set", "x", "OK"}, {3, 4, "set", "y", "OK"}, {5, 6, "get", "", "x"}}},
	{"new, then old", Register, false, []line{{1, 2, "set", "x", "OK"}, {3, 0, "set", "y", ""}, {5, 6, "get", "", "y"}, {7, 8, "get", "", "x"}}},
	{"a lost update", Register, false, []line{{1, 2, "set", "x", "OK"}, {3, 4, "swap", "y", "x"}, {5, 6, "swap", "z", "x"}}},
	{"read before it was written", Register, false, []line{{1, 2, "get", "", "x"}, {3, 4, "set", "x", "OK"}}},

	{"counted once each", Counter, true, []line{{1, 9, "incr", "", "2"}, {1, 9, "incr", "", "1"}, {10, 0, "incr", "", ""}, {11, 12, "get", "", "2"}, {13, 14, "get", "", "3"}}},
	{"a lost increment", Counter, false, []line{{1, 2, "incr", "", "1"}, {3, 4, "incr", "", "1"}}},
	{"a double increment", Counter, false, []line{{1, 2, "incr", "", "1"}, {3, 4, "incr", "", "3"}}},
	{"an unknown increment that counts twice", Counter, false, []line{{1, 0, "incr", "", ""}, {3, 4, "get", "", "2"}}},
	{"a refused increment that counts", Counter, false, []line{{3, 4, "get", "", "1"}}},

	{"appended", List, true, []line{{1, 9, "push", "x", "2"}, {1, 9, "push", "y", "1"}, {10, 11, "range", "", "y,x,"}}},
	{"an element twice", List, false, []line{{1, 2, "push", "x", "1"}, {3, 4, "range", "", "x,x,"}}},
	{"an element lost", List, false, []line{{1, 2, "push", "x", "1"}, {3, 4, "push", "y", "2"}, {5, 6, "range", "", "y,"}}},
	{"two histories", List, false, []line{{1, 0, "push", "x", ""}, {1, 0, "push", "y", ""}, {5, 6, "range", "", "x,y,"}, {5, 6, "range", "", "y,x,"}}},

	{"handed out once", Queue, true, []line{{1, 2, "push", "x", "1"}, {3, 4, "push", "y", "2"}, {5, 9, "pop", "", "y"}, {5, 9, "pop", "", "x"}, {10, 11, "pop", "", ""}}},
	{"handed out twice", Queue, false, []line{{1, 2, "push", "x", "1"}, {3, 4, "pop", "", "x"}, {5, 6, "pop", "", "x"}}},
	{"handed out to nobody", Queue, false, []line{{1, 2, "push", "x", "1"}, {3, 4, "pop", "", ""}}},
	{"popped by somebody who never heard", Queue, true, []line{{1, 2, "push", "x", "1"}, {3, 0, "pop", "", ""}, {5, 6, "pop", "", ""}}},
}

func TestHistories(t *testing.T) {
	judged := map[Kind][2]int{}
	for _, h := range histories {
		found, err := Check(ops(h.kind, h.lines), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if (len(found) == 0) != h.good {
			t.Errorf("%s: %s: found %v, good is %v", h.kind, h.name, found, h.good)
		}
		n := judged[h.kind]
		if h.good {
			n[0]++
		} else {
			n[1]++
		}
		judged[h.kind] = n
	}
	for kind := range models() {
		if n := judged[kind]; n[0] == 0 || n[1] == 0 {
			t.Errorf("%s: %d good and %d bad histories; want some of each", kind, n[0], n[1])
		}
	}
}

// If one key among good ones has a wrong history, Check names that key, and its history can be saved.
func TestViolationIsSaved(t *testing.T) {
	dir := t.TempDir()
	r, err := NewRecorder(filepath.Join(dir, "all.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		for _, op := range ops(Counter, []line{{1, 2, "incr", "", "1"}, {3, 4, "incr", "", "2"}}) {
			op.Key = fmt.Sprintf("{c}:%d", i)
			if i == 7 {
				op.Result = "1"
			}
			r.Add(op)
		}
	}
	if _, err := r.Close(); err != nil {
		t.Fatal(err)
	}
	list, err := Load(filepath.Join(dir, "all.jsonl"))
	if err != nil || len(list) != 20 {
		t.Fatalf("%d operations, %v", len(list), err)
	}
	found, err := Check(list, time.Second)
	if err != nil || len(found) != 1 || found[0].Key != "{c}:7" {
		t.Fatalf("found %v, %v", found, err)
	}
	if err := found[0].Save(dir); err != nil {
		t.Fatal(err)
	}
	kept, err := Load(filepath.Join(dir, "counter--c--7.jsonl"))
	if err != nil || len(kept) != 2 {
		t.Errorf("kept %v, %v", kept, err)
	}
	if page, err := os.ReadFile(filepath.Join(dir, "counter--c--7.html")); err != nil || !strings.Contains(string(page), "incr") {
		t.Errorf("no picture of the history: %v", err)
	}
}

func TestUnknownKind(t *testing.T) {
	if _, err := Check([]Op{{Kind: "nothing", Key: "k"}}, time.Second); err == nil {
		t.Error("a history without a model was accepted")
	}
}

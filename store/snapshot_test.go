package store

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden bytes in testdata")

// golden compares bytes with a hex dump in testdata.
func golden(t *testing.T, name string, b []byte) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, []byte(hex.Dump(b)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.Dump(b); got != string(want) {
		t.Errorf("%s: old logs and snapshots would not be readable any more; got\n%s", name, got)
	}
}

// everyWrite uses each primitive write at least once.
func everyWrite(txn *Txn) {
	txn.SetString(0, []byte("lock"), "owner", 1_030_000)
	txn.SetString(0, []byte("plain"), "value", 0)
	txn.Patch(0, []byte("plain"), 7, "!")
	txn.SetDeadline(0, []byte("plain"), 2_000_000)
	txn.HashSet(0, []byte("hash"), "uuid:1", "1")
	txn.HashSet(0, []byte("hash"), "uuid:2", "2")
	txn.HashDelete(0, []byte("hash"), "uuid:1")
	txn.HashSet(3, []byte("large"), "field", strings.Repeat("v", defaultForms.hashValue+1))
	txn.Copy(0, []byte("hash"), 3, []byte("copy"))
	txn.Move(0, []byte("plain"), 0, []byte("moved"))
	txn.SetString(0, []byte("gone"), "", 0)
	txn.Delete(0, []byte("gone"))
	txn.SetString(1, []byte("flushed"), "x", 0)
	txn.Flush(1)
	txn.Swap(3, 15)
	txn.FlushScripts()
	txn.LoadScript("0000000000000000000000000000000000000000", "return 0", false)
	txn.FlushScripts()
	txn.LoadScript("1111111111111111111111111111111111111111", "return 1", true)
	txn.LoadScript("2222222222222222222222222222222222222222", "return 2", false)
	txn.Publish(Channel, "news", "hello")
	txn.Publish(Shard, "shard", "hello")
}

func TestGoldenBytes(t *testing.T) {
	d := newTestDB(t)
	setup := d.begin()
	setup.SetString(0, []byte("old"), "x", 10)
	d.apply(setup)
	txn := d.begin()
	if txn.LookupWrite(0, []byte("old")) != nil {
		t.Fatal("the key has not expired")
	}
	everyWrite(txn)
	seen := map[op]bool{}
	for _, o := range opsOf(txn.Writes().Bytes()) {
		seen[o] = true
	}
	for o := opDB; o < opPushHead; o++ {
		if !seen[o] {
			t.Errorf("no write has operation %d", o)
		}
	}
	golden(t, "writeset.golden", txn.Writes().Bytes())
	sink := &recorder{}
	d.sink = sink
	d.apply(txn)
	golden(t, "snapshot.golden", encode(t, d.s))
	if got, want := fmt.Sprint(sink.messages), "[0 news hello 1 shard hello]"; got != want {
		t.Errorf("published %s, want %s", got, want)
	}
	if d.s.Expired() != 1 {
		t.Errorf("expired %d keys, want 1", d.s.Expired())
	}
}

// everyElementWrite uses each primitive write of lists, sets and sorted sets.
func everyElementWrite(txn *Txn) {
	list, set, scores := []byte("list"), []byte("set"), []byte("scores")
	txn.PushTail(0, list, "b")
	txn.PushTail(0, list, "c")
	txn.PushHead(0, list, "a")
	txn.ListInsert(0, list, 1, "between")
	txn.ListSet(0, list, 3, "last")
	txn.ListRemove(0, list, 2, 1)
	txn.SetAdd(0, set, "10")
	txn.SetAdd(0, set, "-3")
	txn.SetAdd(0, []byte("words"), "word")
	txn.SetAdd(0, []byte("words"), "10")
	txn.SetAdd(0, set, "4")
	txn.SetRemove(0, set, "4")
	txn.ScoreSet(0, scores, "m", 1700000300000)
	txn.ScoreSet(0, scores, "n", -0.5)
	txn.ScoreSet(0, scores, "gone", 1)
	txn.ScoreRemove(0, scores, "gone")
	txn.ScoreSetLarge(0, []byte("large"), "zero", math.Copysign(0, -1))
	txn.ScoreSet(0, []byte("large"), "inf", math.Inf(1))
}

// TestGoldenElements has a golden file of its own, so that the recorded bytes of the older writes need not change.
func TestGoldenElements(t *testing.T) {
	d := newTestDB(t)
	txn := d.begin()
	everyElementWrite(txn)
	seen := map[op]bool{}
	for _, o := range opsOf(txn.Writes().Bytes()) {
		seen[o] = true
	}
	for o := opPushHead; o <= opScoreSetLarge; o++ {
		if !seen[o] {
			t.Errorf("no write has operation %d", o)
		}
	}
	golden(t, "writeset-elements.golden", txn.Writes().Bytes())
	d.apply(txn)
	golden(t, "snapshot-elements.golden", encode(t, d.s))
	d.script(`
		LRANGE list 0 -1 => ["a" "between" "last"]
		SMEMBERS set => ~["-3" "10"]
		OBJECT ENCODING words => "hashtable"
		ZRANGE scores 0 -1 WITHSCORES => ["n" ,-0.5 "m" ,1700000300000]
		ZRANGE large 0 -1 WITHSCORES => ["zero" ,-0 "inf" ,inf]
	`)
}

type recorder struct{ messages []string }

func (r *recorder) Publish(kind PublishKind, channel, message string) {
	r.messages = append(r.messages, fmt.Sprint(int(kind), " ", channel, " ", message))
}

func TestSnapshotRoundTrip(t *testing.T) {
	d := newTestDB(t)
	txn := d.begin()
	everyWrite(txn)
	everyElementWrite(txn)
	d.apply(txn)
	for i := range 600 {
		d.do("SET", fmt.Sprint("key", i), fmt.Sprint(i), "PX", "1000")
		d.do("HSET", "wide", fmt.Sprint("field", i), "1")
		d.do("LPUSH", "queue", fmt.Sprint(i))
		d.do("SADD", "ints", fmt.Sprint(i))
		d.do("SADD", "members", fmt.Sprint("m", i))
		d.do("ZADD", "scores", fmt.Sprint(i%50), fmt.Sprint("m", i))
	}
	want := encode(t, d.s)
	restored, err := Restore(bytes.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(encode(t, restored), want) {
		t.Error("a restored store has another snapshot")
	}
	checkIndexes(t, restored)
	if body, ok := restored.Begin(d.now, 1, Env{}).Script("1111111111111111111111111111111111111111"); !ok || body != "return 1" {
		t.Errorf("script: %q %v", body, ok)
	}
	for n := 0; n < len(want); n += 1 + n/100 {
		if _, err := Restore(bytes.NewReader(want[:n])); !errors.Is(err, ErrCorruptSnapshot) {
			t.Fatalf("the first %d of %d bytes: error %v", n, len(want), err)
		}
	}
}

// TestSnapshotOfLargeValues: Restore allocates the memory for the data only once.
func TestSnapshotOfLargeValues(t *testing.T) {
	d := newTestDB(t)
	const values, size = 5, 7 << 20
	for i := range values {
		d.do("SET", fmt.Sprint(i), strings.Repeat("v", size))
	}
	snapshot := bytes.NewReader(encode(t, d.s))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Restore(snapshot); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > (values+1)*size {
		t.Errorf("it allocated %d MB for %d MB", took>>20, values*size>>20)
	}
}

// TestSnapshotIsFrozen reads a snapshot while the store changes. With the race detector it also tests that the two share memory
// safely.
func TestSnapshotIsFrozen(t *testing.T) {
	d := newTestDB(t)
	for i := range 600 {
		d.do("SET", fmt.Sprint("key", i), "old")
		d.do("HSET", "wide", fmt.Sprint("field", i), "old")
		d.do("RPUSH", "queue", fmt.Sprint("old", i))
		d.do("SADD", "members", fmt.Sprint("old", i))
		d.do("ZADD", "scores", fmt.Sprint(i), fmt.Sprint("old", i))
	}
	d.do("HSET", "narrow", "field", "old")
	d.do("SADD", "ints", "1", "2", "3")
	d.do("ZADD", "few", "1", "old")
	want := encode(t, d.s)
	snap := d.s.Snapshot()
	got := make(chan []byte)
	go func() {
		var b bytes.Buffer
		if snap.Encode(&b) != nil {
			b.Reset()
		}
		got <- b.Bytes()
	}()
	for i := range 300 {
		d.do("SET", fmt.Sprint("key", i), "new", "PX", "1000")
		d.do("HSET", "wide", fmt.Sprint("field", i), "new")
		d.do("HSET", "narrow", "field", "new")
		d.do("LPOP", "queue")
		d.do("RPUSH", "queue", "new")
		d.do("LSET", "queue", "100", "new")
		d.do("SREM", "members", fmt.Sprint("old", i))
		d.do("SADD", "members", fmt.Sprint("new", i))
		d.do("ZINCRBY", "scores", "1000", fmt.Sprint("old", i))
		d.do("SADD", "ints", fmt.Sprint(i))
		d.do("ZINCRBY", "few", "1", "old")
		d.do("DEL", fmt.Sprint("key", i+150))
	}
	d.do("SWAPDB", "0", "1")
	d.do("FLUSHALL")
	if !bytes.Equal(<-got, want) {
		t.Error("writes after the snapshot show in it")
	}
}

func TestApplyRefuses(t *testing.T) {
	for name, b := range map[string][]byte{
		"an unknown operation": {99},
		"a negative deadline":  {byte(opSet), 1, 'k', 1, 'v', 255, 255, 255, 255, 255, 255, 255, 255, 255, 1},
		"a deadline below 0":   {byte(opSet), 1, 'k', 1, 'v', 0, byte(opDeadline), 1, 'k', 255, 255, 255, 255, 255, 255, 255, 255, 255, 1},
		"an empty library":     {byte(opLibraryLoad), 1, 'l', 0, 1, 1, 'f', 0, 0, 0},
		"a missing argument":   {byte(opSet), 1, 'k', 1},
		"a length beyond":      {byte(opDelete), 200, 1, 'k'},
		"a database beyond":    {byte(opDB), Databases},
		"a swap beyond":        {byte(opSwap), 0, 77},
		"an endless number":    {byte(opDelete), 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
		"a field of a string":  {byte(opSet), 1, 'k', 1, 'v', 0, byte(opHashSet), 1, 'k', 1, 'f', 1, 'v'},
		"a push onto a string": {byte(opSet), 1, 'k', 1, 'v', 0, byte(opPushHead), 1, 'k', 1, 'x'},
		"a set of no list":     {byte(opListSet), 1, 'k', 0, 1, 'x'},
		"a set beyond":         {byte(opPushTail), 1, 'k', 1, 'x', byte(opListSet), 1, 'k', 1, 1, 'y'},
		"an insertion beyond":  {byte(opPushTail), 1, 'k', 1, 'x', byte(opListInsert), 1, 'k', 2, 1, 'y'},
		"a removal beyond":     {byte(opPushTail), 1, 'k', 1, 'x', byte(opListRemove), 1, 'k', 0, 2},
		"a removal of -1":      {byte(opPushTail), 1, 'k', 1, 'x', byte(opListRemove), 1, 'k', 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1},
		"a member of a list":   {byte(opPushTail), 1, 'k', 1, 'x', byte(opSetAdd), 1, 'k', 1, 'y'},
		"no member of a list":  {byte(opPushTail), 1, 'k', 1, 'x', byte(opSetRemove), 1, 'k', 1, 'y'},
		"a score of a list":    {byte(opPushTail), 1, 'k', 1, 'x', byte(opScoreSet), 1, 'k', 1, 'y', 0},
		"no score of a list":   {byte(opPushTail), 1, 'k', 1, 'x', byte(opScoreRemove), 1, 'k', 1, 'y'},
		"a score of NaN":       {byte(opScoreSet), 1, 'k', 1, 'y', 128, 128, 128, 128, 128, 128, 128, 252, 127},
		"no field of a string": {byte(opSet), 1, 'k', 1, 'v', 0, byte(opHashDelete), 1, 'k', 1, 'f'},
	} {
		if err := New().Apply(b, 1, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func FuzzApply(f *testing.F) {
	for _, writes := range []func(*Txn){everyWrite, everyElementWrite} {
		txn := New().Begin(Time{Lease: 1}, 1, Env{})
		writes(txn)
		f.Add(txn.Writes().Bytes())
	}
	f.Add([]byte{byte(opSet), 1, 'k', 1, 'v', 0, byte(opHashSet), 1, 'k', 1, 'f', 1, 'v'})
	f.Add([]byte{byte(opUserSet), 0, 0, byte(opLibraryLoad), 1, 'l', 0, 1, 1, 'f', 0, 0, 0})
	f.Add([]byte{byte(opSet), 1, 'k', 1, 'v', 1, byte(opDeadline), 1, 'k', 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		one, two := New(), New()
		errOne := one.Apply(b, 1, &recorder{})
		errTwo := two.Apply(b, 1, &recorder{})
		if fmt.Sprint(errOne) != fmt.Sprint(errTwo) {
			t.Fatalf("errors differ: %v, %v", errOne, errTwo)
		}
		if errOne != nil && !errors.Is(errOne, ErrCorrupt) {
			t.Fatalf("error %v", errOne)
		}
		first := encode(t, one)
		if !bytes.Equal(first, encode(t, two)) {
			t.Fatal("two stores with the same history differ")
		}
		checkIndexes(t, one)
		restored, err := Restore(bytes.NewReader(first))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(encode(t, restored), first) {
			t.Fatal("a restored store has another snapshot")
		}
	})
}

func FuzzRestore(f *testing.F) {
	d := newTestDB(f)
	for _, writes := range []func(*Txn){everyWrite, everyElementWrite} {
		txn := d.begin()
		writes(txn)
		d.apply(txn)
		f.Add(encode(f, d.s))
	}
	f.Add([]byte{recString, 255, 255, 255, 255, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Restore(bytes.NewReader(b))
		if err != nil {
			if !errors.Is(err, ErrCorruptSnapshot) || s != nil {
				t.Fatalf("store %v, error %v", s, err)
			}
			return
		}
		checkIndexes(t, s)
		if keys, err := Skim(bytes.NewReader(b)); err != nil || keys != keysOf(s) {
			t.Fatalf("Skim: %d keys, want %d; %v", keys, keysOf(s), err)
		}
		again, err := Restore(bytes.NewReader(encode(t, s)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(encode(t, again), encode(t, s)) {
			t.Fatal("a restored store has another snapshot")
		}
	})
}

// TestSnapshotsInAnotherOrder: snapshots of version 0.1.0 have their keys in the order of another hash function. Restore makes the
// same state from them.
func TestSnapshotsInAnotherOrder(t *testing.T) {
	for _, name := range []string{"snapshot", "snapshot-forms", "snapshot-elements"} {
		older, now := dumped(t, name+"-fnv.golden"), dumped(t, name+".golden")
		s, err := Restore(bytes.NewReader(older))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := encode(t, s); bytes.Equal(older, now) || !bytes.Equal(got, now) {
			t.Errorf("%s: got\n%s", name, hex.Dump(got))
		}
	}
}

// dumped returns the bytes of a hex dump in testdata.
func dumped(t *testing.T, name string) (b []byte) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		digits, _, _ := strings.Cut(line[10:], "|")
		part, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, part...)
	}
	return b
}

// handmade restores a snapshot of the records that parts writes; arrived is its number of arrived scripts.
func handmade(arrived uint64, parts func(w *snapWriter)) (*Store, error) {
	var out bytes.Buffer
	w := &snapWriter{Writer: bufio.NewWriter(&out)}
	parts(w)
	w.WriteByte(recEnd)
	w.int(0)
	w.int(arrived)
	w.Flush()
	return Restore(&out)
}

// TestNewestOfASnapshot: Newest considers all numbers of write sets in a snapshot: three of each key, that of the users, and that of
// each database's latest SWAPDB.
func TestNewestOfASnapshot(t *testing.T) {
	key := func(token, changed, leased uint64) func(w *snapWriter) {
		return func(w *snapWriter) {
			w.WriteByte(recString)
			w.str("k")
			for _, n := range []uint64{0, token, changed, leased} {
				w.int(n)
			}
			w.str("v")
		}
	}
	for what, parts := range map[string]func(w *snapWriter){
		"token": key(9, 1, 1), "changed": key(1, 9, 1), "leased": key(1, 1, 9),
		"users":   func(w *snapWriter) { w.WriteByte(recUsers); w.int(9) },
		"swapped": func(w *snapWriter) { w.WriteByte(recSwapped); w.int(1); w.int(9) },
	} {
		if s, err := handmade(0, parts); err != nil || s.Newest() != 9 {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestImpossibleSnapshots: Restore refuses a snapshot that no store can have written.
func TestImpossibleSnapshots(t *testing.T) {
	key := func(w *snapWriter, name string, deadline uint64) {
		w.WriteByte(recString)
		w.str(name)
		for _, n := range []uint64{deadline, 5, 5, 7} {
			w.int(n)
		}
		w.str("v")
	}
	users := func(w *snapWriter, version uint64) {
		w.WriteByte(recUsers)
		w.int(version)
	}
	user := func(w *snapWriter, name string) {
		w.WriteByte(recUser)
		w.str(name)
		w.str("")
	}
	library := func(w *snapWriter, code string) {
		lib := &Library{Name: "l", Code: code, Functions: []Function{{Name: "f"}}}
		w.WriteByte(recLibrary)
		w.str(string(appendLibrary(nil, lib)))
	}
	cached := func(w *snapWriter, sha string, pinned, order uint64) {
		w.WriteByte(recScript)
		w.str(sha)
		w.str("return 1")
		w.int(pinned)
		w.int(order)
	}
	const arrived = 7
	for _, c := range []struct {
		fault string
		parts func(w *snapWriter)
	}{
		{"", func(w *snapWriter) { cached(w, "a", 0, arrived); cached(w, "b", 0, 1); cached(w, "c", 1, 1) }},
		{`script "a" twice`, func(w *snapWriter) { cached(w, "a", 1, 1); cached(w, "a", 1, 2) }},
		{"two scripts with the number 2", func(w *snapWriter) { cached(w, "a", 0, 2); cached(w, "b", 0, 2) }},
		{"one has the number 8", func(w *snapWriter) { cached(w, "a", 0, arrived+1) }},
		{"", func(w *snapWriter) { user(w, "u") }},
		{"", func(w *snapWriter) { library(w, "#!lua name=l") }},
		{"", func(w *snapWriter) { user(w, "") }},
		{"a function library", func(w *snapWriter) { library(w, "") }},
		{"", func(w *snapWriter) { key(w, "a", 0); key(w, "b", math.MaxInt64); users(w, maxUsersVersion) }},
		{"", func(w *snapWriter) { key(w, "a", 0); w.WriteByte(recDB); w.int(1); key(w, "a", 0) }},
		{`key "a" twice`, func(w *snapWriter) { key(w, "a", 0); key(w, "b", 0); key(w, "a", 0) }},
		{`key "a" has the deadline -9`, func(w *snapWriter) { key(w, "a", 1<<63) }},
		{`key "a" has the deadline -1`, func(w *snapWriter) { key(w, "a", math.MaxUint64) }},
		{"of the users", func(w *snapWriter) { users(w, math.MaxUint64) }},
	} {
		_, err := handmade(arrived, c.parts)
		if refused := errors.Is(err, ErrCorruptSnapshot) && strings.Contains(err.Error(), c.fault); refused != (c.fault != "") || err != nil && !refused {
			t.Errorf("%q: %v", c.fault, err)
		}
	}
	if _, err := handmade(math.MaxUint64, func(*snapWriter) {}); !errors.Is(err, ErrCorruptSnapshot) {
		t.Errorf("scripts without number have arrived: %v", err)
	}
}

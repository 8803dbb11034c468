package store

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// generator makes random legal commands. They use only few keys, so that many commands use the same key.
type generator struct{ *rand.Rand }

func (g generator) of(list ...string) string { return list[g.IntN(len(list))] }
func (g generator) key() string              { return g.of("a", "b", "c", "d", "h", "i", "") }
func (g generator) field() string            { return "f" + strconv.Itoa(g.IntN(6)) }
func (g generator) num() string              { return strconv.Itoa(g.IntN(40) - 10) }
func (g generator) ms() string               { return strconv.Itoa(1 + g.IntN(60)) }
func (g generator) db() string               { return strconv.Itoa(g.IntN(3)) }

func (g generator) value() string {
	switch g.IntN(8) {
	case 0:
		return strings.Repeat("x", 70) // too long for a compact hash
	case 1:
		return ""
	case 2:
		return "word"
	}
	return g.num()
}

func (g generator) set() []string {
	args := []string{"set", g.key(), g.value()}
	switch g.IntN(4) {
	case 0:
		args = append(args, g.of("nx", "xx"))
	case 1:
		args = append(args, g.of("ifeq", "ifne"), g.value())
	}
	if g.IntN(3) == 0 {
		args = append(args, "get")
	}
	switch g.IntN(4) {
	case 0:
		args = append(args, "keepttl")
	case 1, 2:
		args = append(args, "px", g.ms())
	}
	return args
}

func (g generator) hset() []string {
	args := []string{"hset", g.of("h", "i", "a")}
	n := 1 + g.IntN(3)
	if g.IntN(30) == 0 {
		n = 150 // too many for a compact hash
	}
	for i := range n {
		field := g.field()
		if n > 3 {
			field = "f" + strconv.Itoa(i)
		}
		args = append(args, field, g.value())
	}
	return args
}

func (g generator) command() []string {
	if g.IntN(2) == 0 {
		return g.elems()
	}
	switch g.IntN(34) {
	case 0, 1, 2, 3, 4, 5:
		return g.set()
	case 6, 7, 8, 9:
		return g.hset()
	case 10:
		return []string{"hdel", g.of("h", "i", "a"), g.field(), g.field(), g.field()}
	case 11:
		return []string{"hsetnx", g.of("h", "i"), g.field(), g.value()}
	case 12:
		return []string{"hincrby", g.of("h", "i", "a"), g.field(), g.num()}
	case 13:
		return []string{"hget", g.of("h", "i", "a"), g.field()}
	case 14:
		return []string{"hlen", g.key()}
	case 15:
		return []string{"get", g.key()}
	case 16:
		return []string{"getset", g.key(), g.value()}
	case 17:
		return []string{"getdel", g.key()}
	case 18:
		return []string{"getex", g.key(), "px", g.ms()}
	case 19:
		return []string{"append", g.key(), g.value()}
	case 20:
		return []string{"setrange", g.key(), strconv.Itoa(g.IntN(6)), g.of("", "ab", "z")}
	case 21:
		return []string{"incrby", g.key(), g.num()}
	case 22:
		return []string{"msetnx", g.key(), g.value(), g.key(), g.value()}
	case 23:
		return []string{g.of("exists", "del"), g.key(), g.key()}
	case 24:
		args := []string{"pexpire", g.key(), g.num()}
		return append(args, [][]string{nil, nil, {"nx"}, {"xx"}, {"gt"}, {"lt"}, {"xx", "gt"}}[g.IntN(7)]...)
	case 25:
		return []string{g.of("pttl", "persist"), g.key()}
	case 26:
		return []string{g.of("rename", "renamenx"), g.key(), g.key()}
	case 27:
		return append([]string{"copy", g.key(), g.key()}, [][]string{nil, {"replace"}}[g.IntN(2)]...)
	case 28:
		return []string{"move", g.key(), g.db()}
	case 29:
		return []string{g.of("dbsize", "keys")}
	case 30:
		return []string{"select", g.db()}
	case 31:
		return append([]string{"delex", g.key()}, [][]string{nil, {"ifeq", g.value()}, {"ifne", g.value()}}[g.IntN(3)]...)
	case 32:
		return []string{"delifeq", g.key(), g.value()}
	}
	if g.IntN(4) > 0 {
		return []string{"exists", g.key()}
	}
	return [][]string{{"swapdb", g.db(), g.db()}, {"flushdb"}}[g.IntN(2)]
}

// step runs one random command on the store and on the model.
func (g generator) step(t *testing.T, d *testDB, txn *Txn, m *model) {
	t.Helper()
	args := g.command()
	want := m.run(args...)
	real := args
	if args[0] == "keys" {
		real = []string{"keys", "*"}
	}
	before := txn.Writes().Len()
	r := d.run(txn, real...)
	got := render(r)
	switch {
	case args[0] == "keys":
		got = sortedReply(r)
	case r.IsError():
		got, _, _ = strings.Cut(got, " ")
		if n := txn.Writes().Len(); n > before && strings.Contains(want, "-") && !expiredOnly(txn, before) {
			t.Errorf("%q failed with %s but wrote", args, got)
		}
	}
	if got != want {
		t.Fatalf("%q: got %s, want %s", args, got, want)
	}
	if got, want := txn.Size(d.db), len(m.dbs[m.db]); got != want {
		t.Fatalf("%q: size %d, want %d", args, got, want)
	}
}

// expiredOnly reports whether all writes after the first n delete expired keys. A command that fails may also make such writes.
func expiredOnly(txn *Txn, n int) bool {
	deletes := 0
	for _, o := range opsOf(txn.Writes().Bytes()) {
		if o == opDB {
			continue
		}
		if n > 0 {
			n--
		} else if o != opExpire {
			return false
		} else {
			deletes++
		}
	}
	return deletes > 0
}

// opsOf lists the operations of a write set.
func opsOf(b []byte) (ops []op) {
	shapes := map[op]string{
		opDB: "i", opSet: "ssi", opKeep: "ss", opForm: "si", opDelete: "s", opExpire: "s", opDeadline: "si", opHashSet: "sss",
		opHashDelete: "ss", opPublish: "iss", opSwap: "ii", opMove: "iss", opCopy: "iss", opScriptLoad: "ssi", opPatch: "sis",
		opPushHead: "ss", opPushTail: "ss", opListSet: "sis", opListInsert: "sis", opListRemove: "sii",
		opSetAdd: "ss", opSetRemove: "ss", opScoreSet: "ssi", opScoreRemove: "ss", opScoreSetLarge: "ssi",
	}
	d := newDecoder(b)
	for len(d.B) > 0 {
		o := op(d.B[0])
		d.B = d.B[1:]
		for _, arg := range shapes[o] {
			if arg == 's' {
				d.Str()
			} else {
				d.int()
			}
		}
		ops = append(ops, o)
	}
	return ops
}

// TestModel: random batches and rollbacks give the replies and keys of a model. A store that only applies their writes has the same bytes.
func TestModel(t *testing.T) {
	for seed := range uint64(25) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runModel(t, seed, 120) })
	}
}

func runModel(t *testing.T, seed uint64, batches int) {
	g := generator{rand.New(rand.NewPCG(seed, 1))}
	d, replica, m := newTestDB(t), New(), newModel()
	for range batches {
		d.advance(int64(g.IntN(25)))
		m.now = d.now.Lease
		txn := d.begin()
		if g.IntN(4) == 0 {
			txn.ExpireDue(1+g.IntN(4), math.MaxInt, math.MaxInt)
		}
		for range 1 + g.IntN(8) {
			g.step(t, d, txn, m)
			if g.IntN(6) == 0 {
				undone(t, g, d, txn, m)
			}
		}
		checkBatch(t, d, txn, m, replica)
		if g.IntN(20) == 0 {
			restored, err := Restore(bytes.NewReader(encode(t, d.s)))
			if err != nil {
				t.Fatal(err)
			}
			d.s = restored
		}
	}
}

// undone runs commands and rolls them back, in the transaction and in the model.
func undone(t *testing.T, g generator, d *testDB, txn *Txn, m *model) {
	t.Helper()
	saved, db, view := m.clone(), d.db, dump(txn)
	writes := bytes.Clone(txn.Writes().Bytes())
	sp := txn.Savepoint()
	for range 1 + g.IntN(5) {
		g.step(t, d, txn, m)
		if g.IntN(4) == 0 {
			undone(t, g, d, txn, m)
		}
		if g.IntN(6) == 0 {
			inner := txn.Savepoint()
			g.step(t, d, txn, m)
			txn.Release(inner)
		}
	}
	if g.IntN(4) == 0 {
		txn.Release(sp)
		return
	}
	txn.Rollback(sp)
	*m, d.db = *saved, db
	if !bytes.Equal(txn.Writes().Bytes(), writes) {
		t.Fatal("a rollback left writes behind")
	}
	if got := dump(txn); got != view {
		t.Fatalf("after a rollback:\n%s\nbefore:\n%s", got, view)
	}
}

func checkBatch(t *testing.T, d *testDB, txn *Txn, m *model, replica *Store) {
	t.Helper()
	if got, want := modelDump(txn), m.dump(); got != want {
		t.Fatalf("transaction:\n%s\nmodel:\n%s", got, want)
	}
	view := dump(txn)
	frozen := d.s.Snapshot()
	var before, after bytes.Buffer
	if err := frozen.Encode(&before); err != nil {
		t.Fatal(err)
	}
	writes := bytes.Clone(txn.Writes().Bytes())
	d.apply(txn)
	if err := frozen.Encode(&after); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before.Bytes(), after.Bytes()) {
		t.Fatal("a write changed an earlier snapshot")
	}
	if got := dump(d.begin()); got != view {
		t.Fatalf("applied:\n%s\ntransaction:\n%s", got, view)
	}
	if len(writes) > 0 {
		if err := replica.Apply(writes, d.seq, nil); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(encode(t, d.s), encode(t, replica)) {
		t.Fatal("two stores with the same history differ")
	}
	checkIndexes(t, d.s)
	checkSizes(t, d.s, txn)
}

// checkIndexes compares the index of deadlines with the keys. In each large sorted set it compares the two trees with each other.
func checkIndexes(t *testing.T, s *Store) {
	t.Helper()
	for db, ks := range s.dbs {
		n := 0
		ks.keys.ascend(0, func(e slot) bool {
			checkScores(t, e.Scores())
			if e.deadline != 0 {
				n++
				if b := ks.deadlines.find(e.deadline).bucket; b == nil || !slices.Contains(b.entries, e.Entry) {
					t.Fatalf("database %d: the deadline of %q is not indexed", db, e.key)
				}
			}
			return true
		})
		if n != ks.deadlines.size {
			t.Fatalf("database %d: %d deadlines indexed, %d set", db, ks.deadlines.size, n)
		}
	}
}

func checkScores(t *testing.T, z *SortedSet) {
	t.Helper()
	if z == nil || z.Compact() {
		return
	}
	if z.byName.Len() != z.byScore.Len() {
		t.Fatalf("%d members by name, %d by score", z.byName.Len(), z.byScore.Len())
	}
	z.Each(0, func(m Scored) bool {
		if score, ok := z.Score(m.Member); !ok || score != m.Score {
			t.Fatalf("%q: score %v by name, %v by score", m.Member, score, m.Score)
		}
		return true
	})
}

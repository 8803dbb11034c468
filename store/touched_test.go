package store

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// touches is a Toucher that keeps what it is told.
type touches struct{ list []string }

func (t *touches) Touch(key string, origin uint64) {
	t.list = append(t.list, fmt.Sprintf("%s by %d", strings.Clone(key), origin))
}

func (t *touches) TouchAll() { t.list = append(t.list, "all") }

// TestEachWriteHasAShape runs every primitive write through EachTouched. If EachTouched does not know a write, or reads it wrongly,
// it reports "all".
func TestEachWriteHasAShape(t *testing.T) {
	d := newTestDB(t)
	txn := d.begin()
	everyWrite(txn)
	got := &touches{}
	EachTouched(txn.Writes().Bytes(), got)
	want := []string{"lock by 0", "plain by 0", "plain by 0", "plain by 0", "hash by 0", "hash by 0", "hash by 0", "large by 0",
		"copy by 0", "plain by 0", "moved by 0", "gone by 0", "gone by 0", "flushed by 0", "all", "all"}
	if !slices.Equal(got.list, want) {
		t.Errorf("got  %q\nwant %q", got.list, want)
	}
	for o := opSet; o <= opConfig; o++ {
		if !o.known() {
			t.Errorf("operation %d has no shape", o)
		}
	}
}

// TestTouchedIsWhatChanged compares what EachTouched reports with the changes of the keyspace.
func TestTouchedIsWhatChanged(t *testing.T) {
	for _, calls := range []string{
		"RPUSH l a b c|LPUSH l x|LSET l 0 y|LINSERT l AFTER y z|LREM l 0 z|LTRIM l 1 2|RPOPLPUSH l l2",
		"SADD s a b|SREM s a|SMOVE s t b|SUNIONSTORE u t t",
		"ZADD z 1 a 2 b|ZINCRBY z 1 a|ZREM z b|ZUNIONSTORE y 1 z",
		"HSET h f v|HDEL h f|SET k v PX 1000|APPEND k x|SETBIT k 3 1|PERSIST k|COPY k c|RENAME k m|MOVE m 1|DEL c",
	} {
		d := newTestDB(t)
		for _, call := range strings.Split(calls, "|") {
			before := snapshotText(d)
			txn := d.begin()
			txn.SetOrigin(7)
			d.run(txn, words(call)...)
			got := &touches{}
			EachTouched(txn.Writes().Bytes(), got)
			d.apply(txn)
			after := snapshotText(d)
			for key := range after {
				if before[key] == after[key] {
					delete(after, key)
				}
			}
			for key := range before {
				if _, still := after[key]; !still && before[key] != snapshotText(d)[key] {
					after[key] = ""
				}
			}
			told := map[string]bool{}
			for _, line := range got.list {
				key, by, _ := strings.Cut(line, " by ")
				if told[key] = true; by != "7" {
					t.Errorf("%s: %s", call, line)
				}
			}
			for key := range after {
				if !told[key] {
					t.Errorf("%s: nothing about %s in %q", call, key, got.list)
				}
				delete(told, key)
			}
			if len(told) > 0 {
				t.Errorf("%s: %v have not changed", call, told)
			}
		}
	}
}

// snapshotText returns the values of all keys, by name.
func snapshotText(d *testDB) map[string]string {
	all := map[string]string{}
	txn := d.begin()
	for db := range Databases {
		txn.Ascend(db, 0, func(e *Entry) bool {
			all[e.key] += fmt.Sprintf("%d %s;", db, valueText(e))
			return true
		})
	}
	return all
}

func TestOrigins(t *testing.T) {
	d := newTestDB(t)
	d.do("SET", "old", "v", "PX", "10")
	d.advance(20)
	txn := d.begin()
	txn.SetString(0, []byte("a"), "v", 0)
	size := txn.Writes().Size()
	txn.SetOrigin(1 << 63)
	if txn.Writes().Size() != size {
		t.Error("an origin that writes nothing takes room")
	}
	txn.ExpireDue(10, math.MaxInt, math.MaxInt)
	txn.SetString(0, []byte("b"), "v", 0)
	sp := txn.Savepoint()
	txn.SetOrigin(2)
	txn.SetString(0, []byte("c"), "v", 0)
	txn.Rollback(sp)
	txn.SetOrigin(3)
	txn.SetString(1, []byte("d"), "v", 0)
	txn.SetOrigin(0)
	txn.SetString(1, []byte("e"), "v", 0)
	golden(t, "writeset-origin.golden", txn.Writes().Bytes())
	got := &touches{}
	EachTouched(txn.Writes().Bytes(), got)
	want := []string{"a by 0", "old by 0", fmt.Sprintf("b by %d", uint64(1<<63)), "d by 3", "e by 0"}
	if !slices.Equal(got.list, want) {
		t.Errorf("got  %q\nwant %q", got.list, want)
	}
	d.apply(txn)
	if txn = d.begin(); txn.Writes().Len() != 0 {
		t.Error("a new transaction has writes")
	}
	txn.SetString(0, []byte("f"), "v", 0)
	got.list = nil
	EachTouched(txn.Writes().Bytes(), got)
	if !slices.Equal(got.list, []string{"f by 0"}) {
		t.Errorf("an origin has outlived its transaction: %q", got.list)
	}
}

func TestUnknownWritesTouchAll(t *testing.T) {
	for _, code := range []byte{0, 1, 43, 255} {
		got := &touches{}
		EachTouched([]byte{byte(opDelete), 1, 'k', code, 0x80}, got)
		if want := "k by 0 all"; code != byte(opDB) && strings.Join(got.list, " ") != want {
			t.Errorf("code %d: %q", code, got.list)
		}
	}
	got := &touches{}
	for _, other := range []string{"\x1b\x01u\x01r", "\x1c\x01u", "\x1d\x01n\x01c\x02\x01f\x00\x00\x01\x01g\x01\x01d\x02", "\x1d\x01n\x01c\x00", "\x1e\x01n", "\x1f"} {
		EachTouched([]byte(other+"\x03\x01k"), got)
	}
	if want := strings.Repeat("k by 0,", 6); strings.Join(got.list, ",")+"," != want {
		t.Errorf("users and functions: %q", got.list)
	}
	got = &touches{}
	EachTouched([]byte{byte(opSet), 200}, got) // a write set whose last string is cut short
	if len(got.list) > 0 {
		t.Errorf("%q", got.list)
	}
}

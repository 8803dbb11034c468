package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

func TestChecksum(t *testing.T) {
	// Redis's own test of its CRC has this check value.
	if got := rdbChecksum([]byte("123456789")); got != 0xe9c6d914c4b8d9ca {
		t.Errorf("got %x", got)
	}
}

// seal puts version and checksum behind a value.
func seal(value []byte) string {
	b := binary.LittleEndian.AppendUint16(bytes.Clone(value), rdbVersion)
	return string(binary.LittleEndian.AppendUint64(b, rdbChecksum(b)))
}

// fillAllTypes makes a key of every type in every form.
func fillAllTypes(d *testDB) (keys []string) {
	for _, s := range []string{"", "0", "-128", "128", "-32769", "2147483647", "2147483648", "01", "text", strings.Repeat("ab", 500), strings.Repeat("x", 70000)} {
		key := "string" + strconv.Itoa(len(keys))
		d.do("SET", key, s)
		keys = append(keys, key)
	}
	for i := range 700 {
		text := strings.Repeat(fmt.Sprint(i, " "), i%40)
		d.do("RPUSH", "list", text, fmt.Sprint(i*i*i*i*i*i-5000))
		d.do("SADD", "set", "m"+fmt.Sprint(i))
		d.do("HSET", "hash", fmt.Sprint("f", i), text)
		d.do("ZADD", "scores", fmt.Sprint(float64(i)/3), fmt.Sprint("m", i))
		if i < 100 {
			d.do("SADD", "ints", fmt.Sprint(i*i-500))
			d.do("SADD", "wide", fmt.Sprint((i-50)<<40))
			d.do("HSET", "few", fmt.Sprint("f", i), fmt.Sprint(i<<(i%60)))
			d.do("ZADD", "short", fmt.Sprint(float64(i)/4), fmt.Sprint("m", i))
		}
	}
	d.do("ZADD", "short", "inf", "top", "-inf", "bottom")
	d.do("RPUSH", "long", strings.Repeat("y", 9000), "z")
	return append(keys, "list", "set", "hash", "scores", "ints", "wide", "few", "short", "long")
}

func TestDumpAndRestore(t *testing.T) {
	d := newTestDB(t)
	for _, key := range fillAllTypes(d) {
		txn := d.begin()
		before := valueText(txn.Lookup(0, []byte(key)))
		dump := d.run(txn, "DUMP", key).Str
		if got := d.do("RESTORE", "copy", "0", dump, "REPLACE"); got != "+OK" {
			t.Errorf("%s: %s", key, got)
			continue
		}
		if after := valueText(d.begin().Lookup(0, []byte("copy"))); after != before {
			t.Errorf("%s became %.300s, was %.300s", key, after, before)
		}
		if a, b := d.do("OBJECT", "ENCODING", key), d.do("OBJECT", "ENCODING", "copy"); a != b {
			t.Errorf("%s: encoding %s became %s", key, a, b)
		}
		if again := d.run(d.begin(), "DUMP", "copy").Str; again != dump {
			t.Errorf("%s: the dump of its copy differs", key)
		}
	}
}

// TestRestoreOldForms: RESTORE reads the old forms that Redis 7.0 still reads, but no longer writes.
func TestRestoreOldForms(t *testing.T) {
	d := newTestDB(t)
	score := binary.LittleEndian.AppendUint64(nil, math.Float64bits(2.5))
	for _, tc := range []struct{ value, call, want string }{
		{"\x01\x02\x01a\x01b", "LRANGE k 0 -1", `["a" "b"]`},
		{"\x03\x02\x01a\x031.5\x01b\xfe", "ZRANGE k 0 -1 WITHSCORES", `["a" ,1.5 "b" ,inf]`},
		{"\x03\x01\x01a\xff", "ZRANGE k 0 -1 WITHSCORES", `["a" ,-inf]`},
		{"\x05\x01\x01a" + string(score), "ZRANGE k 0 -1 WITHSCORES", `["a" ,2.5]`},
		{"\x12\x01\x01\x03abc", "LRANGE k 0 -1", `["abc"]`},
		{"\x02\x02\xc0\x05\x01x", "SCARD k", ":2"},
		{"\x04\x01\x01f\xc1\x00\x01", "HGETALL k", `{"f" "256"}`},
		{"\x00\x80\x00\x00\x00\x02hi", "GET k", `"hi"`},
		{"\x00\x81\x00\x00\x00\x00\x00\x00\x00\x02hi", "GET k", `"hi"`},
		{"\x00\x40\x02hi", "GET k", `"hi"`},
	} {
		if got := d.do("RESTORE", "k", "0", seal([]byte(tc.value)), "REPLACE"); got != "+OK" {
			t.Errorf("%q: %s", tc.value, got)
		}
		if got := d.do(words(tc.call)...); got != tc.want {
			t.Errorf("%q: %s is %s, want %s", tc.value, tc.call, got, tc.want)
		}
	}
}

func TestRestoreRefuses(t *testing.T) {
	d := newTestDB(t)
	nan := binary.LittleEndian.AppendUint64(nil, math.Float64bits(math.NaN()))
	for name, value := range map[string]string{
		"nothing":                "",
		"an unknown type":        "\x63\x01a",
		"a stream":               "\x0f\x01",
		"a string cut short":     "\x00\x05abc",
		"a length cut short":     "\x00\x80\x00",
		"a length too large":     "\x00\x80\xff\xff\xff\xff",
		"an unknown length":      "\x00\x82\x00",
		"an unknown encoding":    "\x00\xc4",
		"an empty list":          "\x01\x00",
		"an empty set":           "\x02\x00",
		"a count beyond":         "\x02\x80\x7f\xff\xff\xff\x01a",
		"a member twice":         "\x02\x02\x01a\x01a",
		"a field twice":          "\x04\x02\x01f\x01a\x01f\x01b",
		"a score of NaN":         "\x05\x01\x01a" + string(nan),
		"an old score of NaN":    "\x03\x01\x01a\xfd",
		"an old score of text":   "\x03\x01\x01a\x02xx",
		"an intset cut short":    "\x0b\x09\x02\x00\x00\x00\x02\x00\x00\x00\x01",
		"an intset of bytes":     "\x0b\x09\x01\x00\x00\x00\x01\x00\x00\x00\x01",
		"a listpack cut short":   "\x10\x07\x07\x00\x00\x00\x01\x00\x05",
		"an odd listpack":        "\x10\x09\x09\x00\x00\x00\x01\x00\x05\x01\xff",
		"a wrong count":          "\x10\x09\x09\x00\x00\x00\x02\x00\x05\x01\xff",
		"an entry beyond":        "\x10\x09\x09\x00\x00\x00\x01\x00\xf0\x01\xff",
		"a node of another kind": "\x12\x01\x03\x01a",
		"LZF that goes back":     "\x00\xc3\x03\x09\x20\x50\x01",
		"LZF that is too long":   "\x00\xc3\x02\x01\x01a",
		"LZF that explodes":      "\x00\xc3\x02\x80\x1f\xff\xff\xff\x00a",
	} {
		if got, want := d.do("RESTORE", "k", "0", seal([]byte(value))), render(Err(ErrDumpFormat)); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	good := seal([]byte("\x00\x01a"))
	newer := []byte(good)
	newer[len(newer)-rdbFooter] = rdbVersion + 1
	for name, dump := range map[string]string{"too short": "x", "cut short": good[:len(good)-1], "changed": "\x00\x01b" + good[3:], "newer": string(newer)} {
		if got, want := d.do("RESTORE", "k", "0", dump), render(Err(ErrDumpChecksum)); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestRestoreDeadline(t *testing.T) {
	d := newTestDB(t)
	dump := seal([]byte("\x02\x02\x01a\x01b"))
	now := d.now.Wall / 1000
	d.do("SET", "k", "old")
	d.script(`RESTORE k 0 x => -BUSYKEY Target key name already exists.`)
	if got := d.do("RESTORE", "k", "5000", dump, "REPLACE") + d.do("PTTL", "k"); got != "+OK:5000" {
		t.Errorf("relative: %s", got)
	}
	if got := d.do("RESTORE", "k", fmt.Sprint(now+700), dump, "REPLACE", "ABSTTL") + d.do("PTTL", "k"); got != "+OK:700" {
		t.Errorf("absolute: %s", got)
	}
	if got := d.do("RESTORE", "k", fmt.Sprint(now-1), dump, "REPLACE", "ABSTTL") + d.do("EXISTS", "k"); got != "+OK:0" {
		t.Errorf("in the past: %s", got)
	}
}

func FuzzRestoreValue(f *testing.F) {
	d := newTestDB(f)
	for _, key := range fillAllTypes(d) {
		dump := d.run(d.begin(), "DUMP", key).Str
		if len(dump) < 5000 {
			f.Add([]byte(dump[:len(dump)-rdbFooter]))
		}
	}
	d = newTestDB(f)
	f.Fuzz(func(t *testing.T, value []byte) {
		d.t = t
		d.do("FLUSHALL")
		if got := d.do("RESTORE", "k", "0", seal(value)); got != "+OK" {
			if d.wrote != 0 {
				t.Fatalf("%s, but wrote", got)
			}
			return
		}
		dump := d.run(d.begin(), "DUMP", "k").Str
		if got := d.do("RESTORE", "copy", "0", dump); got != "+OK" {
			t.Fatalf("its own dump: %s", got)
		}
		if again := d.run(d.begin(), "DUMP", "copy").Str; again != dump {
			t.Fatalf("dumps differ:\n%q\n%q", dump, again)
		}
	})
}

// If a value would unpack to more than one command may write, it is refused before it is unpacked.
func TestRestoreUnpacksNoBombs(t *testing.T) {
	length := func(n int) string { return "\x80" + string(binary.BigEndian.AppendUint32(nil, uint32(n))) }
	long := func(s string) string { return length(len(s)) + s }
	squeezed := func(size int) string { // a string of size bytes, compressed to about a hundredth of them
		b := "\x00a" + strings.Repeat("\xe0\xff\x00", (size-1)/264)
		return "\xc3" + length(len(b)) + length(1+(size-1)/264*264) + b
	}
	ints := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 2), 3<<20)
	ints = append(ints, make([]byte, 6<<20)...)
	pack := strings.Repeat("\x01\x01", 3<<20)
	pack = string(binary.LittleEndian.AppendUint32(nil, uint32(len(pack)+7))) + "\xff\xff" + pack + "\xff"
	for name, body := range map[string]string{
		"a string":               "\x00" + squeezed(200<<20),
		"a list of long strings": "\x01" + length(30) + strings.Repeat(squeezed(5<<20), 30),
		"empty strings":          "\x01" + length(7<<20) + strings.Repeat("\x00", 7<<20),
		"numbers":                "\x02" + length(6<<20) + strings.Repeat("\xc0\x01", 6<<20),
		"a set of integers":      "\x0b" + long(string(ints)),
		"a hash":                 "\x10" + long(pack),
		"a list":                 "\x12\x01\x02" + long(pack),
		"a sorted set":           "\x11" + long(pack),
		"a stream of nothing":    "\x12" + length(7<<20) + strings.Repeat("\x01\x00", 7<<19),
	} {
		d := newTestDB(t)
		dump := seal([]byte(body))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := d.do("RESTORE", "k", "0", dump)
		runtime.ReadMemStats(&after)
		if got != "-"+string(ErrEntryTooBig(DefaultMaxEntry)) {
			t.Errorf("%s: %s", name, got)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 128<<20 {
			t.Errorf("%s of %d bytes took %d MB", name, len(dump), took>>20)
		}
	}
	if _, err := newTestDB(t).begin().ReadLibraries(seal([]byte("\xf5" + squeezed(200<<20)))); err != "" {
		t.Error(err)
	}
	r, _ := newTestDB(t).begin().ReadLibraries(seal([]byte("\xf5" + squeezed(200<<20))))
	if code, more, err := r.Next(); code != "" || more || err != ErrEntryTooBig(DefaultMaxEntry) {
		t.Errorf("libraries: %d bytes, %v, %s", len(code), more, err)
	}
}

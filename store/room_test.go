package store

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// named appends to args a name of the format name, followed by more, for each number in [from, to).
func named(args []string, from, to int, name string, more ...string) []string {
	for i := from; i < to; i++ {
		args = append(append(args, fmt.Sprintf(name, i)), more...)
	}
	return args
}

// TestRoomOfWhatIsGone makes keys of each form that were large once and are small now. It compares the heap with the bytes that
// maxmemory counts.
func TestRoomOfWhatIsGone(t *testing.T) {
	long := strings.Repeat("v", 56)
	kilo := strings.Repeat("k", 1000)
	for _, c := range []struct {
		what string
		keys int
		make func(d *testDB, key string)
	}{
		{"compact hash, from the end", 40, func(d *testDB, key string) {
			d.do(named([]string{"HSET", key}, 0, 512, "%04d"+long, long)...)
			names := named([]string{}, 1, 512, "%04d"+long)
			slices.Reverse(names)
			d.do(append([]string{"HDEL", key}, names...)...)
		}},
		{"compact hash, from the head", 40, func(d *testDB, key string) {
			d.do(named([]string{"HSET", key}, 0, 512, "%03d", "")...)
			d.do(named([]string{"HDEL", key}, 0, 511, "%03d")...)
		}},
		{"compact hash that has grown", 40, func(d *testDB, key string) {
			d.do(named([]string{"HSET", key}, 0, 257, "%03d", "")...)
		}},
		{"integers", 40, func(d *testDB, key string) {
			d.do(named([]string{"SADD", key}, 0, 512, "%d")...)
			d.do(named([]string{"SREM", key}, 1, 512, "%d")...)
		}},
		{"compact sorted set", 40, func(d *testDB, key string) {
			add := []string{"ZADD", key, "0", "left"}
			for i := range 127 {
				add = append(add, "1", fmt.Sprint(i))
			}
			d.do(add...)
			d.do("ZREMRANGEBYRANK", key, "1", "-1")
		}},
		{"large hash", 100, func(d *testDB, key string) {
			d.do(named([]string{"HSET", key, long + long, ""}, 0, 61, "%d", "")...)
			d.do(named([]string{"HDEL", key, long + long}, 1, 61, "%d")...)
		}},
		{"set", 100, func(d *testDB, key string) {
			d.do(named([]string{"SADD", key}, 0, 62, "m%d")...)
			d.do(named([]string{"SREM", key}, 1, 62, "m%d")...)
		}},
		{"large sorted set", 100, func(d *testDB, key string) {
			add := []string{"ZADD", key, "1", long + long}
			for i := range 61 {
				add = append(add, "0", fmt.Sprint(i))
			}
			d.do(add...)
			d.do("ZREMRANGEBYRANK", key, "1", "-1")
		}},
		{"list", 100, func(d *testDB, key string) {
			d.do(named([]string{"RPUSH", key}, 0, 62, "%d")...)
			d.do("LTRIM", key, "0", "0")
		}},
		{"copy of a list", 100, func(d *testDB, key string) {
			d.do(named([]string{"RPUSH", "from"}, 0, 62, "%d")...)
			d.do("COPY", "from", key)
			d.do("LTRIM", key, "61", "-1")
			d.do("DEL", "from")
		}},
		{"long list", 20, func(d *testDB, key string) {
			d.do(named([]string{"RPUSH", key}, 0, 5000, "%d")...)
			d.do("LTRIM", key, "2500", "2500")
		}},
		{"list with short elements in the place of long ones", 20, func(d *testDB, key string) {
			d.do(named([]string{"RPUSH", key}, 0, 66, kilo+"%d")...)
			for i := range 35 {
				d.do("LSET", key, fmt.Sprint(65-i), "")
			}
			d.do("LTRIM", key, "29", "-1")
		}},
		{"large hash with short values in the place of long ones", 20, func(d *testDB, key string) {
			for i := range 64 {
				d.do("HSET", key, fmt.Sprint(i), kilo)
			}
			for i := range 64 {
				d.do("HSET", key, fmt.Sprint("more", i), "", fmt.Sprint(i), "")
			}
		}},
		{"large hash of which each second is gone", 2, func(d *testDB, key string) {
			d.do(named([]string{"HSET", key}, 0, 4000, "%d", "")...)
			for i := 0; i < 4000; i += 2 {
				d.do("HDEL", key, fmt.Sprint(i))
			}
		}},
		{"short value in the place of a long one", 1000, func(d *testDB, key string) {
			d.do("SET", key, long+long[:50])
			d.do("SET", key, "")
		}},
		{"short name in the place of a long one", 1000, func(d *testDB, key string) {
			d.do("SET", key+long+long[:50], "x")
			d.do("RENAME", key+long+long[:50], key)
		}},
		{"value written to in part", 1000, func(d *testDB, key string) {
			d.do("SET", key, long+long[:50])
			d.do("APPEND", key, "x")
			d.do("SET", key, "")
		}},
		{"long strings", 50, func(d *testDB, key string) { d.do("SET", key, strings.Repeat("x", 32769)) }},
	} {
		d := newTestDB(t)
		before, counted := live(), d.s.DataSize()
		for i := range c.keys {
			c.make(d, fmt.Sprintf("key%05d", i))
		}
		took := int64(live()) - int64(before)
		counted = d.s.DataSize() - counted
		t.Logf("%s: %d bytes each, counted %d: %.2f", c.what, took/int64(c.keys), counted/int64(c.keys), float64(took)/float64(counted))
		if took > counted*3/2+16<<10 {
			t.Errorf("%s: a key takes %d bytes, and %d are counted", c.what, took/int64(c.keys), counted/int64(c.keys))
		}
		runtime.KeepAlive(d)
	}
}

package store

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"
)

// recorded calls fn for each line in a file of testdata: quoted strings, and last the result of redis-server 7.0.15.
func recorded(t *testing.T, name string, fn func(fields []string)) {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for lines := bufio.NewScanner(f); lines.Scan(); n++ {
		fields := strings.Split(lines.Text(), "\t")
		for i, field := range fields {
			if text, err := strconv.Unquote(field); err == nil {
				fields[i] = text
			}
		}
		fn(fields)
	}
	if n == 0 {
		t.Fatalf("%s is empty", name)
	}
}

func TestIncrByFloatEqualsRedis(t *testing.T) {
	recorded(t, "incrbyfloat.tsv", func(f []string) {
		d := newTestDB(t)
		want := strconv.Quote(f[2])
		if strings.HasPrefix(f[2], "-ERR") {
			want = f[2]
		}
		d.do("SET", "k", f[0])
		if got := d.do("INCRBYFLOAT", "k", f[1]); got != want {
			t.Errorf("%q + %q: got %s, want %s", f[0], f[1], got, want)
		}
	})
}

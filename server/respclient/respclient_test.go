package respclient

import (
	"bufio"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func receive(text string) (any, error) {
	c := Conn{r: bufio.NewReader(strings.NewReader(text))}
	return c.Receive()
}

// TestOutsizedReplies: if something else than a node answers, the answer can neither make the client take much memory nor end the
// process.
func TestOutsizedReplies(t *testing.T) {
	for what, text := range map[string]string{
		"a length":   "$9223372036854775806\r\n",
		"a count":    "*9223372036854775807\r\n",
		"some count": "*2000000000\r\n",
		"counts":     strings.Repeat("*16000000\r\n", 100),
		"depth":      strings.Repeat("*1\r\n", 1_000_000),
		"a line":     "+" + strings.Repeat("x", 3<<20) + "\r\n",
	} {
		if _, err := receive(text); !errors.Is(err, errTooLarge) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestMost: a caller says how much memory a reply may take.
func TestMost(t *testing.T) {
	within := strings.Repeat("x", 1000)
	for text, want := range map[string]error{
		"$1000\r\n" + within + "\r\n": nil, "+" + within + "\r\n": nil, "*10\r\n" + strings.Repeat(":1\r\n", 10): nil,
		"$1025\r\n": errTooLarge, "+" + strings.Repeat("x", 10_000): errTooLarge, "*17\r\n" + strings.Repeat("+a\r\n", 17): errTooLarge,
		"*2\r\n" + strings.Repeat("+"+within[:600]+"\r\n", 2): errTooLarge,
		"*2\r\n$600\r\n" + within[:600] + "\r\n$600\r\n":      errTooLarge,
	} {
		c := Conn{r: bufio.NewReader(strings.NewReader(text)), Most: 1024}
		if _, err := c.Receive(); !errors.Is(err, want) {
			t.Errorf("%.20q: %v, want %v", text, err, want)
		}
	}
}

// TestReplies: Receive returns without a change what nodes send. It refuses invalid replies, and replies that end too early.
func TestReplies(t *testing.T) {
	long := strings.Repeat("x", 3<<20)
	got, err := receive("*5\r\n$3145728\r\n" + long + "\r\n:7\r\n-ERR no\r\n*2\r\n$-1\r\n*-1\r\n+" + long[:10_000] + "\r\n")
	want := []any{long, int64(7), ServerError("ERR no"), []any{nil, nil}, long[:10_000]}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%.100v, %v", got, err)
	}
	for _, bad := range []string{"$-5\r\n", "*-2\r\n"} {
		if _, err := receive(bad); !errors.Is(err, errNegative) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := receive("$5\r\nxx"); err == nil {
		t.Error("a part is taken for the whole")
	}
}
